#!/bin/bash
# Starts as many ranks as cores, beside a busy process that may use every core, and prints for how long two ranks shared
# a core: the longest time of each start in ms, sorted.  Takes STARTS * 1.5 s.
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
for _ in $(seq "$starts"); do
    timeout 60 "$build/bin/tutti-run" --no-prefix -n "$(nproc)" "${@:3}" "$program/spread"
done | sort -n | awk '{ ms[NR] = $1; over += $1 > 10; printf "%s ", $1 }
    END { printf "\nmedian %s, longest %s, over 10 ms: %d of %d\n", ms[int((NR + 1) / 2)], ms[NR], over, NR }'
