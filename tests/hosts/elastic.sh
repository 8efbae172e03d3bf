#!/bin/bash
# Jobs that go on when hosts join, leave or are lost, and when ranks are killed: between restarts, or in a new group.
#
#   TUTTI_BUILD_DIR=build tests/hosts/elastic.sh [CASE..]      status 77: skipped
set -uo pipefail

all=(elastic_host_lost elastic_host_joins regroup_hosts cut_with_message train_hosts)

# agent HOST MIN:MAX: starts a node of 2 ranks, which reduce for 60 s, and after a restart for half a second
agent() {
    export TUTTI_SILENT_MS=2000
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
    until_true 40 prints 0.out running || fail "the job does not start"
    in_host 1 ip link set eth0 down
    until_true 40 prints 0.err '^tutti-run: restart 1 of 3 in ' || fail "nobody notices that a host is lost"
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
    until_true 40 prints 0.out running || fail "the job does not start"
    agent 2 2:3
    for n in 0 1 2; do ended_well $n; done
    said 0.err 'restart, because node .* joins'
    said 2.out 'round 1 rank 5 of 6' "the third host does not take part"
}

# ---- a new group of survivors and replacements -----------------------------------------------------------------------

# members RANKS PROGRAM..: starts a job with so many ranks on each of hosts 0 and 1, which are replaced when they fail.
# Each host has process numbers of its own: no rank sees whether a process of another host is running.
members() {
    apart=(unshare --pid --fork --kill-child --mount-proc)
    options=(--on-failure=continue --replace 1000 --backoff 0)
    "${apart[@]}" true 2>"$work/apart" || skip "no namespace of processes: $(cat "$work/apart")"
    nodes 10.77.0.1 "0 1" "$@"
}

# kill_rank HOST: kills a rank on the host at random.  Sets $killed to the time of day.
kill_rank() {
    local pid pids=()
    for pid in $(ip netns pids "$name-$1"); do
        tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qE "^[^ ]*/$rank_program " && pids+=("$pid")
    done
    ((${#pids[@]} > 0)) || fail "no rank runs on host $1"
    killed=$EPOCHREALTIME
    kill -KILL "${pids[RANDOM % ${#pids[@]}]}"
}

cut_host() { # HOST
    killed=$EPOCHREALTIME
    in_host "$1" ip link set eth0 down
}

lines() { cat "$work"/*.out | sed 's/^\[[0-9]*\] //'; }

# regrouped RANKS: succeeds if so many ranks compute in a generation after $generation.  Sets $generation, and $at to
# the time when the last of them had its first result.
regrouped() {
    local found
    found=$(lines | awk -v ranks="$1" -v after="$generation" '
        $1 == "again" && $3 > after && $4 == ranks { n[$3]++; if ($2 > at[$3]) at[$3] = $2 }
        END { for (g in n) if (n[g] == ranks) { print g, at[g]; exit } }')
    [[ -n $found ]] && read -r generation at <<<"$found"
}

# heard RANKS: succeeds if so many idle ranks have heard of a loss since $killed.  Sets $at to the time of the last one.
heard() {
    at=$(lines | awk -v ranks="$1" -v since="$killed" '
        $1 == "heard" && $2 > since - 0.001 { n++; if ($2 > at) at = $2 }
        END { if (n >= ranks) print at }')
    [[ -n $at ]]
}

are_idle() { [[ $(lines | grep -cE "^idle [0-9.]+ $generation $1\$") == "$1" ]]; } # RANKS

rest() { # RANKS
    touch "$work/folder/idle"
    until_true 40 are_idle "$1" || fail "not all $1 ranks become idle"
}

# took LIMIT WHAT: prints the time from $killed to $at, and keeps it for figures.  LIMIT is the time in s that
# docs/regroup.md promises.  On a busy machine, where even a kill takes a while, twice that is good enough.
took() {
    local s
    s=$(awk -v at="$at" -v killed="$killed" 'BEGIN { printf "%.3f", at - killed }')
    echo "$2: $s s"
    printf '%s (promised: %s s)\t%s\n' "$2" "$1" "$s" >>"$work/figures"
    awk -v s="$s" -v limit="$1" 'BEGIN { exit !(s <= 2 * limit) }' || fail "$2: $s s, and $1 s are promised"
}

regrouping() { # RANKS on each host
    hosts_up 2
    mkdir "$work/folder"
    rank_program=test_hosts
    generation=-1
    members "$1" "$build/tests/test_hosts" regroup "$work/folder"
    until_true 40 regrouped $(($1 * 2)) || fail "the job does not start"
}

killed_busy() { # HOST
    kill_rank "$1"
    until_true 30 regrouped 4 || fail "the ranks do not go on after a rank of host $1 was killed"
    took 10 "rank killed while all compute, until all compute again"
}

killed_idle() { # HOST
    rest 4
    kill_rank "$1"
    until_true 30 heard 3 || fail "idle ranks do not hear that a rank of host $1 was killed"
    took 6 "rank killed while all are idle, until all have heard of it"
    rm "$work/folder/idle"
    until_true 30 regrouped 4 || fail "idle ranks do not go on"
}

cut_idle() {
    rest 4
    cut_host 1
    until_true 30 heard 2 || fail "idle ranks do not hear that a host is cut off"
    took 6 "host cut off while all are idle, until the others have heard of it"
    rm "$work/folder/idle"
    until_true 30 regrouped 2 || fail "the ranks do not go on without the host"
    took 10 "host cut off while all are idle, until the others compute"
}

cut_busy() {
    cut_host 1
    until_true 30 regrouped 2 || fail "the ranks do not go on without the host"
    took 10 "host cut off while all compute, until the others compute"
}

# cut_sending LIMIT: as soon as host 1 is cut off, rank 0, which is idle otherwise, sends its rank a message.  The kernel
# sends it 15 times, which takes 15 s or more, before it gives the connection up.
cut_sending() {
    rest 2
    cut_host 1
    touch "$work/folder/send"
    until_true 20 prints 0.out 'sent [0-9.]+' || fail "rank 0 does not send"
    until_true 30 heard 1 || fail "an idle rank does not hear that a host is cut off"
    took "$1" "host cut off while a message is on its way, until an idle rank has heard of it"
}

# The same with a shorter limit than the usual 5 s.
cut_with_message() {
    export TUTTI_SILENT_MS=2000
    regrouping 1
    cut_sending 3
}

# Ranks of both hosts are killed, while all compute and while all are idle.  Then a host is cut off.
regroup_hosts() {
    regrouping 2
    killed_busy 1
    killed_busy 0
    killed_idle 1
    cut_idle
    touch "$work/folder/stop"
    await_job 0
    [[ $status == 0 ]] || fail "job 0 ended with status $status"
    if lines | grep WRONG; then fail "a result is wrong"; fi
}

# Prints the median and the longest of $TIMES times of each kind (10).
regroup_figures() {
    local i all_figures
    all_figures=$(mktemp)
    for ((i = 0; i < ${TIMES:-10}; i++)); do
        (regrouping 2 && killed_busy $((i % 2)) && killed_idle $((i % 2)) && cut_idle &&
            cat "$work/figures" >>"$all_figures") || exit
        (regrouping 2 && cut_busy && cat "$work/figures" >>"$all_figures") || exit
        (regrouping 1 && cut_sending 6 && cat "$work/figures" >>"$all_figures") || exit
    done
    sort -t $'\t' -k1,1 -k2,2n "$all_figures" | awk -F '\t' '
        function finish() {
            if (n) printf "%s: %d times, median %.3f s, longest %.3f s\n", name, n, s[int((n + 1) / 2)], s[n]
        }
        $1 != name { finish(); n = 0; name = $1 }
        { s[++n] = $2 }
        END { finish() }'
    rm -f "$all_figures"
}

# ---- training --------------------------------------------------------------------------------------------------------

step() { lines | sed -nE 's/^step ([0-9]+)$/\1/p' | sort -n | tail -n 1; }
reached() { [[ $(step) -ge $1 ]]; } # STEP
loss() { sed -nE 's/.*: loss ([0-9.]+),.*/\1/p' "$@"; } # FILE..

# True if all four ranks train in a generation after $generation, which is set.
trains_again() {
    local newest
    newest=$(lines | sed -nE 's/^regrouped: 4 ranks, generation ([0-9]+),.*/\1/p' | sort -n | tail -n 1)
    ((${newest:-0} > generation)) && generation=$newest
}

# $KILLS ranks of two hosts (1) are killed at random steps while they train, and replaced.  The loss at the end is that
# of an undisturbed run, but for rounding.
train_hosts() {
    local kills=${KILLS:-1} apart_steps=${STEPS_A_KILL:-600} i at_step steps
    RANDOM=${SEED:-1}
    bound=$((150 + kills * 10))
    steps=$((apart_steps * (kills + 2))) # more than the script takes to look and kill
    hosts_up 2
    job 0 -n 2 "$examples/train_elastic" "$steps"
    await_job 0
    [[ $status == 0 ]] || fail "the undisturbed run fails"
    cp "$work/0.out" "$work/undisturbed"
    jobs_clear
    rank_program=train_elastic
    generation=0
    members 2 "$examples/train_elastic" "$steps"
    for ((i = 1; i <= kills; i++)); do
        at_step=$((apart_steps * i - RANDOM % (apart_steps / 2)))
        until_true "$bound" reached "$at_step" || fail "the training does not reach step $at_step"
        kill_rank $((RANDOM % 2))
        until_true 30 trains_again || fail "the training does not go on after kill $i"
    done
    all_well "training"
    echo "$kills kills: loss $(loss "$work"/*.out), undisturbed $(loss "$work/undisturbed")"
    awk -v a="$(loss "$work"/*.out)" -v b="$(loss "$work/undisturbed")" \
        'BEGIN { exit !(a > 0 && b > 0 && a - b < 1e-4 && b - a < 1e-4) }' || fail "the losses differ"
}

. "$(dirname "$0")/hosts.sh"
run_cases "$@"
