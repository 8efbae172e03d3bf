#!/bin/bash
# Prints what the flight recorder, TUTTI_TRACE and a tool (examples/count_tool) add to operations: medians of ROUNDS
# rounds, in each of which all variants run one after the other.  "none" is a library without the recorder, which is
# built in BUILD_DIR/without-recorder.  Takes about ROUNDS * 15 s after that, and wants a quiet machine.
#
#   tests/soak/overhead.sh [BUILD_DIR] [ROUNDS]     default: build 5
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}") rounds=${2:-5}
without=$build/without-recorder
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake -S . -B "$without" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_FLAGS=-DTUTTI_RECORD_OFF >"$work/log"
cmake --build "$without" -j "$(nproc)" --target tutti tutti_tcp tutti-run tutti-bench bench_issue >>"$work/log"

# measure VARIANT BUILD_DIR: adds lines "CASE VARIANT NUMBER", in ns
measure() {
    local variant=$1 directory=$2
    mkdir -p "$work/trace"
    TUTTI_BACKEND_PATH=$directory/lib/tutti "$directory/tests/bench_issue" 300 |
        sed -nE "s/^all_reduce ([0-9.]+) ns/one_rank_all_reduce $variant \1/p; s/^isend.* ([0-9.]+) ns/message $variant \1/p"
    "$directory/bin/tutti-run" --no-prefix -n 2 "$directory/bin/tutti-bench" --ops all_reduce,pingpong,barrier \
        --sizes 4,64K --ms 300 --csv | awk -F , -v variant="$variant" '
            { printf "two_ranks_%s_%s %s %.1f\n", $2, $4, variant, 1000 * $5 }'
    rm -rf "$work/trace"
}

for ((round = 0; round < rounds; round++)); do
    measure none "$without"
    measure recorder "$build"
    TUTTI_TRACE=$work/trace measure trace "$build"
    TUTTI_TOOL=$build/examples/count_tool/libcount_tool.so measure tool "$build" 2>/dev/null
done >"$work/all"

sort -k1,1 -k2,2 -k3,3n "$work/all" | awk '
    function finish() { if (n) median[name, variant] = value[int((n + 1) / 2)] }
    $1 != name || $2 != variant { finish(); n = 0; name = $1; variant = $2; if (!(name in seen)) order[++cases] = name; seen[name] = 1 }
    { value[++n] = $3 }
    END {
        finish()
        printf "%-28s %10s %10s %10s %10s   (ns, medians)\n", "", "none", "recorder", "trace", "tool"
        for (i = 1; i <= cases; i++) {
            c = order[i]
            printf "%-28s %10.1f %10.1f %10.1f %10.1f\n", c, median[c, "none"], median[c, "recorder"], median[c, "trace"], median[c, "tool"]
        }
    }'
