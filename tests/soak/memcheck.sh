#!/bin/bash
# Runs each operation under valgrind's memcheck: three ranks as threads, then two processes over tcp, then the
# quick form of the conformance suite.
#
#   tests/soak/memcheck.sh [BUILD_DIR]     default: build, which has the tests and no sanitizer
#
# Exits with 0 if there was no error and none of our blocks was definitely lost.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
${CC:-cc} -std=gnu11 -g -O1 -Wall -Wextra -Iinclude tests/soak/every.c -L"$build/lib" -Wl,-rpath,"$build/lib" -ltutti \
    -lpthread -o "$folder/every"
export TUTTI_BACKEND_PATH=$build/tests/plugins:$build/lib/tutti
memcheck=(valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite
    --errors-for-leak-kinds=definite --fair-sched=yes --num-callers=30 --suppressions=tests/soak/memcheck.supp)
"${memcheck[@]}" "$folder/every" threads 3
echo "threads over loop: no errors, nothing lost"
"$build/bin/tutti-run" -n 2 "${memcheck[@]}" "$folder/every" tcp
echo "processes over tcp: no errors, nothing lost"
"$build/bin/tutti-run" --no-prefix -n 2 "${memcheck[@]}" "$build/bin/tutti-conformance" --join --quick >"$folder/suite"
grep '^all ' "$folder/suite"
echo "the conformance suite over tcp: no errors, nothing lost"
