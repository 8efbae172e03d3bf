#!/bin/bash
# Runs each operation with more than 2 GiB, and checks it.  Takes a minute and 5 GiB of memory with two ranks.
#
#   tests/soak/huge.sh [BUILD_DIR] [BACKEND]     default: build tcp
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
program=$(mktemp -d)
trap 'rm -rf "$program"' EXIT
${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Iinclude tests/soak/huge.c -L"$build/lib" -Wl,-rpath,"$build/lib" -ltutti \
    -o "$program/huge"
start=("$build/bin/tutti-run" -n 2)
[[ ${2:-tcp} == mpi* ]] && start+=(--mpi)
time "${start[@]}" "$program/huge" "${2:-tcp}"
