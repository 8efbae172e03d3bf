#!/bin/bash
# Makes every call for memory, a mapping, a descriptor or a thread fail once, on either of two ranks, over shared
# memory and over the network.  Runs about 600 jobs.
#
#   tests/soak/starved.sh [BUILD_DIR]     default: build
set -euo pipefail
cd "$(dirname "$0")/../.."
STARVED_ALL=1 "$(realpath "${1:-build}")/tests/test_faults_starved"
