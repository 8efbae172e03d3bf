#!/bin/bash
# Measures the reducer's iteration between two hosts of network namespaces that are joined by a link of RATE: 32 MiB of
# gradients as they are and compressed, against buckets by hand.  Then trains the digits for an epoch in each form.
# Needs root, and takes about a minute.
#
#   tests/soak/reducer.sh [BUILD_DIR] [RATE]     default: build 1gbit
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
export TUTTI_BUILD_DIR
TUTTI_BUILD_DIR=$(realpath "${1:-build}")
rate=${2:-1gbit}

. tests/hosts/hosts.sh

hosts_up 2
for host in 0 1; do shape "$host" eth0 "$rate"; done
# shellcheck disable=SC2154 # hosts.sh sets build and work
export TUTTI_BACKEND_PATH=$build/lib/tutti
nodes 10.77.0.1 "0 1" 1 "$build/tests/bench_reducer" 32 50 7
all_well "bench_reducer"
sed 's/^\[0\] //' "$work/0.out"
jobs_clear
for form in "" "--compress bfloat16" "--compress float8_e4m3fn" "--powersgd 4"; do
    # shellcheck disable=SC2086
    nodes 10.77.0.1 "0 1" 1 "$build/examples/train" tcp --epochs 3 --hidden 1024,1024 --bucket 1024 $form
    all_well "train $form"
    echo "train ${form:-float32}: $(sed 's/^\[0\] //' "$work/0.out" | grep -E 'epoch  3|gradients' | tr '\n' ' ')"
    jobs_clear
done
