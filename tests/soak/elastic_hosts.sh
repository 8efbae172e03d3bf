#!/bin/sh
# Prints how long ranks of two hosts take to go on after a kill, and after a host is cut off.  Then trains on two hosts
# while ranks are killed at random moments and replaced.
#
# usage: tests/soak/elastic_hosts.sh BUILD [KILLS [SEED [TIMES]]]     100 kills, 10 times
set -eu
export TUTTI_BUILD_DIR="${1:?usage: $0 BUILD [KILLS [SEED [TIMES]]]}"
export KILLS="${2:-100}" SEED="${3:-$(date +%s)}" TIMES="${4:-10}" STEPS_A_KILL=400
cases=$(dirname "$0")/../hosts/elastic.sh
"$cases" regroup_figures
echo "seed $SEED"
"$cases" train_hosts
