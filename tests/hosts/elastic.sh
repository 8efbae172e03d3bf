#!/bin/bash
# Jobs whose hosts join, leave and are lost between restarts.
#
#   TUTTI_BUILD_DIR=build tests/hosts/elastic.sh [CASE..]      status 77: skipped
set -uo pipefail

all=(elastic_host_lost elastic_host_joins)

# agent HOST MIN:MAX: starts a node of 2 ranks, which reduce for 60 s, and after a restart for half a second
agent() {
    export TUTTI_SILENT_MS=1000
    # shellcheck disable=SC2016 # the rank's shell expands it
    bound=60 job "$1" --nnodes "$2" --rdzv-endpoint 10.77.0.1:29400 --rdzv-id elastic --backoff 0.1 -n 2 \
        --rdzv-conf last_call_timeout=0.5,join_timeout=30 --token-file "$work/token" --max-restarts 3 \
        sh -c 'test $TUTTI_RESTART_COUNT = 0 && s=60 || s=0.5
               echo "round $TUTTI_RESTART_COUNT rank $RANK of $WORLD_SIZE"
               exec "$0" loop $s 20000 4096' "$build/tests/test_hosts"
}

ended_well() { # JOB
    await_job "$1"
    [[ $status == 0 ]] || fail "job $1 ended with status $status"
    prints "$1.out" 'right after' || fail "the ranks of job $1 did not finish"
}

# The second host's link fails.  The first one waits for another, which comes later.
elastic_host_lost() {
    hosts_up 3
    agent 0 2:3
    agent 1 2:3
    until_true 20 prints 0.out running || fail "the job does not start"
    in_host 1 ip link set eth0 down
    until_true 20 prints 0.err '^tutti-run: restart 1 of 3 in ' || fail "nobody notices that a host is lost"
    agent 2 2:3
    ended_well 0
    ended_well 2
    said 2.out 'round 1 rank 3 of 4' "the third host does not take part"
    await_job 1
    [[ $status == 1 ]] || fail "the lost host ended with status $status"
    said 1.err 'the node that runs the rendezvous, 10\.77\.0\.1 port 29400, is lost'
}

# A host comes while the others run.  They restart with it.
elastic_host_joins() {
    hosts_up 3
    agent 0 2:3
    agent 1 2:3
    until_true 20 prints 0.out running || fail "the job does not start"
    agent 2 2:3
    for n in 0 1 2; do ended_well $n; done
    said 0.err 'restart, because node .* joins'
    said 2.out 'round 1 rank 5 of 6' "the third host does not take part"
}

. "$(dirname "$0")/hosts.sh"
run_cases "$@"
