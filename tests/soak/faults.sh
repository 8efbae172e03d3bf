#!/bin/bash
# Stops and kills ranks at random for a while, over shared memory and the network in turns.  Then kills ranks in their
# first operation.  Counts hangs, wrong values and wrong names.  FAULTS_SEED=n repeats a run.
#
#   tests/soak/faults.sh [BUILD_DIR] [SECONDS] [COLD_KILLS]     default: build 300 200
set -euo pipefail
cd "$(dirname "$0")/../.."
tests=$(realpath "${1:-build}")/tests
export FAULTS_SEED=${FAULTS_SEED:-$(date +%s)} FAULTS_SECONDS=${2:-300} FAULTS_KILLS=${3:-200}
echo "FAULTS_SEED=$FAULTS_SEED"
"$tests/test_faults_soak"
"$tests/test_faults_cold"
