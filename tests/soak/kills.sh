#!/bin/bash
# Kills one rank of four 100 times, at a random moment: attaching, in small operations, in large ones.  Prints the seed.
# FAULTS_SEED=n repeats it.
#
#   tests/soak/kills.sh [BUILD_DIR] [TIMES]     default: build 100
set -euo pipefail
cd "$(dirname "$0")/../.."
FAULTS_SEED=${FAULTS_SEED:-$(date +%s)}
FAULTS_KILLS=${2:-100}
export FAULTS_SEED FAULTS_KILLS
echo "FAULTS_SEED=$FAULTS_SEED"
"$(realpath "${1:-build}")/tests/test_faults_kills"
