#!/bin/bash
# Starts as many ranks as cores, beside a busy process that may use every core, and prints for how long two ranks shared
# a core: the longest time of each start in ms, sorted, and the medians over the starts of the median and the mean time
# of a round (an all_gather and a broadcast) in us; first with blocking, then with asynchronous calls.  Takes
# STARTS * 3 s.
#
#   tests/soak/spread.sh [BUILD_DIR] [STARTS] [tutti-run options]     default: build 40
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}") starts=${2:-40}
program=$(mktemp -d)
busy=
trap 'kill $busy; rm -rf "$program"' EXIT
${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Iinclude tests/soak/spread.c -L"$build/lib" -Wl,-rpath,"$build/lib" -ltutti \
    -o "$program/spread"
while :; do :; done &
busy=$!
median() { sort -n | awk '{ value[NR] = $1 } END { printf "%s", value[int((NR + 1) / 2)] }'; }
for mode in blocking async; do
    for _ in $(seq "$starts"); do
        timeout 60 "$build/bin/tutti-run" --no-prefix -n "$(nproc)" "${@:3}" "$program/spread" "$mode"
    done >"$program/starts"
    echo "$mode: $(sort -n "$program/starts" | cut -d ' ' -f 1 | tr '\n' ' ')"
    sort -n "$program/starts" | awk '{ over += $1 > 10; longest = $1 }
        END { printf "    longest %s ms, over 10 ms: %d of %d\n", longest, over, NR }'
    echo "    median $(cut -d ' ' -f 1 "$program/starts" | median) ms;" \
        "round: median $(cut -d ' ' -f 2 "$program/starts" | median)," \
        "mean $(cut -d ' ' -f 3 "$program/starts" | median) us"
done
