#!/bin/bash
# Jobs whose network between hosts fails.  Each case makes its own hosts.
#
#   TUTTI_BUILD_DIR=build tests/hosts/faults.sh [CASE..]      all, unless some are named; status 77: skipped
set -uo pipefail

all=(killed_measuring link_returns loss slow reset destroyed vanished vanished_without_proc partition
    partition_one_way partition_short partition_to_one partition_from_one partition_to_one_large
    partition_from_one_large
    partition_to_host partition_from_host partition_deaf
    partition_resting partition_before partition_large loss_heavy rail_returns rail_lost rail_rank_killed)

# All ranks report how they end, although the launcher ends those of its host a second after the first one's report.
export LOOP_REPORTS=1

# looping TIMEOUT_MS BYTES SECONDS [PAUSE_S]: starts a job of 2 + 2 ranks that reduces, and waits until it runs
looping() {
    hosts_up 2
    bound=80 nodes 10.77.0.1 "0 1" 2 "${loop[@]}" "$3" "$1" "$2" 20000 "${4:-0}"
    until_true 40 all_running || fail "the job does not start"
}

all_running() { all_say running; }
all_say() { [[ $(cat "$work"/*.out | grep -c "$1\$") == 4 ]]; }

# Checks that all four ranks ended, with right values in every round.
got_through() {
    all_well "$1"
    [[ $(cat "$work"/*.out | grep -c ' right after') == 4 ]] || fail "$1: not all ranks end well"
}

# ended HIGH STATUSES FILES RANKS: checks that this many ranks in FILES ended with one of the statuses within HIGH
# seconds of their last good round, and exited within 3 s after that.
# shellcheck disable=SC2086 # FILES is a pattern
ended() {
    local line high=$1 n=0
    while read -r line; do
        [[ $line =~ ^\[[0-9]\]\ ([0-9.]+)\ ($2):\  ]] || fail "a rank ends with: $line"
        awk -v took="${BASH_REMATCH[1]}" -v high="$high" 'BEGIN { exit !(took <= high) }' ||
            fail "a rank waits for ${BASH_REMATCH[1]} s: $line"
        ((n++))
    done < <(grep -h ' TUTTI_ERR_' "$work"/$3)
    [[ $n == "$4" ]] || fail "$n ranks end, not $4"
    while read -r line; do
        awk -v took="${line##* }" 'BEGIN { exit !(took <= 3) }' || fail "giving back took long: $line"
    done < <(grep -h ' destroyed in ' "$work"/$3)
}

await_all() {
    local n
    for ((n = 0; n < ${#jobs[@]}; n++)); do
        await_job "$n"
        [[ $status == 3 || $status == 0 || $status == 143 ]] || fail "job $n ended with status $status"
    done
}

report() { [[ -n ${SHOW:-} ]] && grep -hE ' TUTTI_ERR_|destroyed|right after' "$work"/*.out; }

lost='TUTTI_ERR_PEER_LOST|TUTTI_ERR_TIMEOUT|TUTTI_ERR_ABORTED'

# Rank 1, with which rank 0 measures the network, is killed there.  Rank 0 names it.
killed_measuring() {
    hosts_up 2
    DIES_RANK=1 DIES_TCP=$build/lib/tutti/libtutti_tcp.so TUTTI_BACKEND_PATH=$build/tests/plugins \
        nodes 10.77.0.1 "0 1" 1 "$build/bin/tutti-bench" --backend dies_measuring --explain all_reduce 64K
    await_job 0
    [[ $status != 0 ]] || fail "rank 0 does not notice that rank 1 has died"
    said 0.err 'rank 1 is lost' "rank 0 does not name rank 1"
    await_job 1
}

# ---- faults that a job survives (docs/faults.md, row 12) -------------------------------------------------------------

link_returns() {
    looping 20000 65536 3
    in_host 0 ip link set eth0 down
    sleep 1
    in_host 0 ip addr add fd77::1/64 dev eth0 nodad 2>/dev/null # the link takes its IPv6 addresses with it
    in_host 0 ip link set eth0 up
    got_through "a link that was down for a second"
}

losing() { # PERCENT SECONDS
    local host
    hosts_up 2
    needs_nft
    for host in 0 1; do nft_in "$host" numgen random mod 100 "<" "$1" drop; done
    bound=80 nodes 10.77.0.1 "0 1" 2 "${loop[@]}" "$2" 30000 65536
    got_through "$1 % of the packets lost"
}
loss() { losing 5 2; }
loss_heavy() { losing 15 10; }

slow() {
    local host
    hosts_up 2
    for host in 0 1; do
        in_host "$host" tc qdisc add dev eth0 root tbf rate 10mbit burst 16kb latency 50ms 2>"$work/tc" ||
            skip "no tbf: $(cat "$work/tc")"
    done
    nodes 10.77.0.1 "0 1" 2 "${loop[@]}" 2 30000 262144
    got_through "10 Mbit/s"
}

# Stops the ranks of a host for longer than a host may be silent, with all buffers full.  The host's kernel answers.
stopped() {
    looping 40000 33554432 12
    local pid stopped=()
    for pid in $(ip netns pids "$name-1"); do
        grep -qz '^loop$' "/proc/$pid/cmdline" && ! grep -qz '^--nnodes$' "/proc/$pid/cmdline" && stopped+=("$pid")
    done
    [[ ${#stopped[@]} == 2 ]] || fail "not two ranks: ${stopped[*]}"
    kill -STOP "${stopped[@]}"
    sleep 8
    kill -CONT "${stopped[@]}"
    got_through "ranks that were stopped"
}

# ---- faults that end a job -----------------------------------------------------------------------------------------

# Row 13.  Both sides answer any packet but a reset with a reset.
reset() {
    needs_nft_on 60000 65536
    local host
    for host in 0 1; do
        nft_in "$host" 'tcp sport != 29500 tcp dport != 29500 tcp flags & rst != rst reject with tcp reset'
    done
    await_all
    report
    ended 3 "$lost" '*.out' 4
    grep -q PEER_LOST "$work"/*.out || fail "nobody says PEER_LOST"
}

# Row 13 by destroying sockets, if the kernel can (CONFIG_INET_DIAG_DESTROY).
destroyed() {
    looping 60000 65536 30
    in_host 1 ss -K state established dst 10.77.0.1 sport != :29500 dport != :29500 >"$work/ss" 2>&1
    sleep 0.5
    grep -q ' TUTTI_ERR_' "$work"/*.out || skip "ss -K destroys nothing here: $(head -n 1 "$work/ss")"
    await_all
    report
    ended 3 "$lost" '*.out' 4
    grep -q PEER_LOST "$work"/*.out || fail "nobody says PEER_LOST"
}

# Row 14, with a shorter limit than the usual 5 s.
vanished() {
    export TUTTI_SILENT_MS=2000
    needs_nft_on 60000 65536
    cut
    for pid in $(ip netns pids "$name-1"); do kill -KILL "$pid" 2>/dev/null; done
    await_job 0
    report
    ended 5 "$lost" '0.out' 2
}

# Row 11: within min(T, 6 s).
# Row 48: without /proc.
vanished_without_proc() {
    command -v unshare >/dev/null || skip "unshare is not there"
    export TUTTI_SILENT_MS=2000
    hosts_up 2
    needs_nft
    bound=80 nodes 10.77.0.1 "0 1" 2 unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh \
        "${loop[@]}" 40 60000 65536 20000
    until_true 40 all_running || fail "the job does not start"
    cut
    for pid in $(ip netns pids "$name-1"); do kill -KILL "$pid" 2>/dev/null; done
    await_job 0
    report
    ended 5 "$lost" '0.out' 2
}

partition() {
    needs_nft_on 60000 65536
    cut
    await_all
    report
    ended 8 "$lost" '*.out' 4
}

partition_large() {
    needs_nft_on 60000 33554432
    cut
    await_all
    report
    ended 9 "$lost" '*.out' 4
}

partition_one_way() {
    needs_nft_on 60000 65536
    nft_in 1 drop
    await_all
    report
    ended 8 "$lost" '*.out' 4
}

# Row 42: with four hosts, the packets of one do not arrive at one other, or at all others.
losing_way() { # HOSTS BYTES HOST RULE..
    local n=$1 bytes=$2 host=$3
    shift 3
    hosts_up "$n"
    needs_nft
    bound=80 nodes 10.77.0.1 "${hosts[*]}" $((4 / n)) "${loop[@]}" 40 60000 "$bytes" 20000
    until_true 40 all_running || fail "the job does not start"
    nft_in "$host" "$@"
    await_all
    report
    ended 7 "$lost" '*.out' 4
}
partition_to_one() { losing_way 4 65536 1 ip saddr 10.77.0.1 drop; }
partition_from_one() { losing_way 4 65536 0 ip saddr 10.77.0.2 drop; }
partition_to_one_large() { losing_way 4 33554432 1 ip saddr 10.77.0.1 drop; }
partition_from_one_large() { losing_way 4 33554432 0 ip saddr 10.77.0.2 drop; }
partition_to_host() { losing_way 2 4194304 1 drop; }
partition_from_host() { losing_way 2 4194304 0 drop; }
partition_deaf() { losing_way 4 1024 2 drop; }

partition_short() {
    needs_nft_on 2000 65536
    cut
    await_all
    report
    ended 4 "$lost" '*.out' 4
}

# No operation is pending when the link fails: the ranks notice in their next operation.
partition_resting() {
    looping 60000 65536 40 4
    needs_nft
    cut
    await_all
    report
    ended 12 "$lost" '*.out' 4
}

# The ranks have joined, but are not connected yet when the link fails.  A connection attempt has a longer limit,
# because the peer may be busy.  Ranks on other hosts than the store's notice the loss of the store first.
partition_before() {
    hosts_up 2
    bound=80 nodes 10.77.0.1 "0 1" 2 "${loop[@]}" 40 60000 65536 20000 2
    until_true 40 all_say joined || fail "the ranks do not join"
    needs_nft
    cut
    await_all
    report
    ended 25 "$lost|TUTTI_ERR_STORE" '*.out' 4
}

# ---- several interfaces ----------------------------------------------------------------------------------------------

# Starts a job of 2 + 2 ranks that reduces 16 MiB over two interfaces, and waits until both carry data.
railing() { # SECONDS
    rails_up 2
    TUTTI_IFACE=eth0,eth1 bound=80 nodes 10.77.0.1 "0 1" 2 "${loop[@]}" "$1" 20000 16777216 20000
    until_true 40 all_running || fail "the job does not start"
    until_true 20 rails_carry || fail "eth1 carries nothing"
}
rails_carry() { (($(sent 0 eth1) > 4000000 && $(sent 1 eth1) > 4000000)); }

rail_returns() {
    railing 3
    in_host 0 ip link set eth1 down
    sleep 1
    in_host 0 ip link set eth1 up
    got_through "an interface that was down for a second"
}

rail_lost() {
    export TUTTI_SILENT_MS=2000
    railing 40
    in_host 0 ip link set eth1 down
    await_all
    report
    ended 6 "$lost" '*.out' 4
    # The kernel's keepalive, which ends the connection, may come before the rank's own check.
    said '*.out' 'PEER_LOST: .*(its host has not answered|connection closed) over eth1' "nobody names the interface"
}

rail_rank_killed() {
    railing 40
    local pid victim=
    for pid in $(ip netns pids "$name-1"); do
        grep -qz '^RANK=3$' "/proc/$pid/environ" && grep -qz '^loop$' "/proc/$pid/cmdline" && victim=$pid
    done
    kill -KILL "${victim:?no rank 3}"
    await_job 0
    report
    ended 2 "$lost" '0.out' 2
    # tutti-run of host 1 ends rank 2 at once, which may be seen first
    said 0.out 'PEER_LOST: .*rank [23]' "nobody names a rank of host 1"
}

cut() {
    local host
    for host in 0 1; do nft_in "$host" drop; done
}

needs_nft_on() { # TIMEOUT_MS BYTES
    looping "$1" "$2" 40
    needs_nft
}

. "$(dirname "$0")/hosts.sh"
run_cases "$@"
