#!/bin/bash
# Runs the conformance suite's full form: processes, threads, several hosts.  It takes some tens of minutes.
#
#   tests/soak/conformance.sh [BUILD_DIR]     default: build
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
build=$(realpath "${1:-build}")
suite=$build/bin/tutti-conformance
export TUTTI_BACKEND_PATH=$build/tests/plugins:$build/lib/tutti TUTTI_BUILD_DIR=$build
failed=0

# run NAME COMMAND..: runs a part of it
run() {
    local name=$1 started=$SECONDS status=0
    shift
    echo "=== $name"
    "$@" || status=$?
    echo "($name: status $status after $((SECONDS - started)) s)"
    [[ $status == 0 || $status == 77 ]] || failed=1
}

run "tcp, 1 to 8 processes" "$suite"
run "loop, 1 to 8 threads" "$suite" --backend loop --threads
run "a job of 4" "$build/bin/tutti-run" --no-prefix -n 4 "$suite" --join
run "2 + 2 on two hosts, IPv6" bash tests/hosts/cases.sh suite_full_two_and_two_v6
run "3 + 1 on two hosts, IPv4" bash tests/hosts/cases.sh suite_full_three_and_one_v4
exit $failed
