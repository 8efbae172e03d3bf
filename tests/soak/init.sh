#!/bin/bash
# Kills one rank of four 500 times on each transport, at a random moment from the first instruction of main to the
# return of init.  Prints the seed.  INIT_SEED=n repeats it.
#
#   tests/soak/init.sh [BUILD_DIR] [TIMES]     default: build 500
set -euo pipefail
cd "$(dirname "$0")/../.."
INIT_SEED=${INIT_SEED:-$(date +%s)}
INIT_KILLS=${2:-500}
export INIT_SEED INIT_KILLS
echo "INIT_SEED=$INIT_SEED"
"$(realpath "${1:-build}")/tests/test_faults_init"
