#!/bin/bash
# Measures how much faster two interfaces are than one.  Two hosts of network namespaces are joined by two links of
# RATE.  Runs with one and with two interfaces alternate; prints the medians of each in ms, and their ratio.  Needs root,
# and takes about ROUNDS * 5 s.
#
#   tests/soak/rails.sh [BUILD_DIR] [RATE] [RANKS_A_HOST] [ROUNDS]     default: build 1gbit 1 3
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
export TUTTI_BUILD_DIR
TUTTI_BUILD_DIR=$(realpath "${1:-build}")
rate=${2:-1gbit} ranks=${3:-1} rounds=${4:-3}
operations=all_reduce,pingpong,broadcast sizes=256K,1M,4M,32M

. tests/hosts/hosts.sh

# IFACES FILE: appends a line "OPERATION BYTES MICROSECONDS" for each result
measure() {
    # shellcheck disable=SC2154 # hosts.sh sets build and work
    TUTTI_IFACE=$1 nodes 10.77.0.1 "0 1" "$ranks" "$build/bin/tutti-bench" --ops $operations --sizes $sizes --ms 200
    all_well "TUTTI_IFACE=$1"
    sed 's/^\[0\] //' "$work/0.out" | awk '$1 ~ /^[a-z]/ { print $1, $2, $5 }' >>"$2"
    jobs_clear
}

rails_up 2
for host in 0 1; do for iface in eth0 eth1; do shape "$host" "$iface" "$rate" 20ms; done; done
for _ in $(seq "$rounds"); do
    measure eth0 "$work/one"
    measure eth0,eth1 "$work/two"
done
awk -v rounds="$rounds" '
function median(row,    n, x, i, j, t) {
    n = split(row, x, " ")
    for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (x[j] < x[i]) { t = x[i]; x[i] = x[j]; x[j] = t }
    return x[int((n + 1) / 2)] / 1000
}
{ key = $1 " " $2 }
FNR == NR { if (!(key in one)) order[++n] = key; one[key] = one[key] " " $3; next }
{ two[key] = two[key] " " $3 }
END {
    printf "%-12s %10s %10s %10s %7s\n", "operation", "bytes", "one, ms", "two, ms", "ratio"
    for (i = 1; i <= n; i++) {
        split(order[i], part, " ")
        printf "%-12s %10s %10.2f %10.2f %7.2f\n", part[1], part[2], a = median(one[order[i]]), b = median(two[order[i]]), a / b
    }
}' "$work/one" "$work/two"
