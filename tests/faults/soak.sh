#!/bin/sh
# Runs the fault tests longer than CI does: soak.sh BUILD-DIRECTORY [ROUNDS]
# Prints the seed of each round.  FAULTS_SEED=n repeats it.
set -eu
tests=${1:?usage: soak.sh BUILD-DIRECTORY [ROUNDS]}/tests
rounds=${2:-3}
first=${FAULTS_SEED:-$(date +%s)}
round=0
while [ "$round" -lt "$rounds" ]; do
    FAULTS_SEED=$((first + round))
    FAULTS_TIMES=200
    export FAULTS_SEED FAULTS_TIMES
    echo "round $((round + 1)) of $rounds, FAULTS_SEED=$FAULTS_SEED"
    for name in faults_peers faults_mismatch faults_stragglers faults_shrink faults_work faults_life idle; do
        "$tests/test_$name"
    done
    round=$((round + 1))
done
