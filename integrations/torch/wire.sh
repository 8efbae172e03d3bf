#!/bin/bash
# Times tutti and gloo between two hosts, which are network namespaces joined by a link of RATE: bench.py with one rank a
# host.  PYTHON is one that has torch and tutti_torch.  Needs root, and takes a few minutes.
#
#   integrations/torch/wire.sh PYTHON [RATE] [BENCH_OPTION..]     default: 1gbit --ddp
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
python=${1:?PYTHON [RATE] [BENCH_OPTION..]} rate=${2:-1gbit}
shift $(($# < 2 ? $# : 2))
[[ $# -gt 0 ]] || set -- --ddp

export TUTTI_BUILD_DIR=. # hosts.sh wants it for jobs of tutti-run, of which there are none
. tests/hosts/hosts.sh

hosts_up 2
for host in 0 1; do shape "$host" eth0 "$rate"; done
export WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1
for host in 0 1; do
    # shellcheck disable=SC2154 # hosts.sh sets work
    RANK=$host in_host "$host" "$python" integrations/torch/bench.py "$@" 2>"$work/$host.err" &
done
for host in 0 1; do
    wait -n || fail "bench.py ended with status $?"
done
