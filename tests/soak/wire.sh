#!/bin/bash
# Compares an all_reduce between two hosts with what the link carries.  Two hosts of network namespaces are joined by a
# link of RATE.  Prints the rate of iperf3 and, for 1 and for RANKS ranks a host, the time of an all_reduce of 32 MiB and
# the rate at which each host sends: it has to send 32 MiB at least.  Needs root and iperf3, and takes about a minute.
#
#   tests/soak/wire.sh [BUILD_DIR] [RATE] [RANKS]     default: build 1gbit 4
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
export TUTTI_BUILD_DIR
TUTTI_BUILD_DIR=$(realpath "${1:-build}")
rate=${2:-1gbit} ranks=${3:-4} seconds=5

. tests/hosts/hosts.sh

command -v iperf3 >/dev/null || skip "iperf3 is not there"
hosts_up 2
for host in 0 1; do shape "$host" eth0 "$rate"; done
in_host 0 iperf3 --server --one-off --bind 10.77.0.1 >/dev/null &
sleep 1
in_host 1 iperf3 --client 10.77.0.1 --time "$seconds" --format m | awk '/receiver/ { print "iperf3:", $7, $8 }'
wait
for each in 1 "$ranks"; do
    # shellcheck disable=SC2154 # hosts.sh sets build and work
    nodes 10.77.0.1 "0 1" "$each" "$build/bin/tutti-bench" --ops all_reduce --sizes 32M --ms 3000
    all_well "$each ranks a host"
    sed 's/^\[0\] //' "$work/0.out" | awk -v each="$each" '$1 == "all_reduce" {
        printf "%d ranks a host: %.1f ms, %.0f Mbits/sec\n", each, $5 / 1000, 32 * 8 * 1.048576 / ($5 / 1e6) }'
    jobs_clear
done
