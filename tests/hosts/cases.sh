#!/bin/bash
# Jobs over several hosts that must succeed, or be refused with an error.  Each case makes its own hosts.
#
#   TUTTI_BUILD_DIR=build tests/hosts/cases.sh [CASE..]      all, unless some are named; status 77: skipped
set -uo pipefail

all=(two_and_two_v4 three_and_one_v4 two_and_two_v6 three_and_one_v6 every_example every_operation hierarchy_two_and_two
    hierarchy_three_and_one hierarchy_mixed hierarchy_bytes tuning links traced one_address iface by_name
    own_name_is_loopback store_late refusals another_token suite_two_and_two_v4 suite_three_and_one_v6 thirty_two_hosts)

two_and_two_v4() { examples_on 10.77.0.1 "0 1" 2 '10\.77\.0\.'; }
three_and_one_v4() { examples_on 10.77.0.1 "0 1 0 0" 1 '10\.77\.0\.'; }
two_and_two_v6() { examples_on fd77::1 "0 1" 2 '\[fd77::'; }
# The prefix is short, because node 0 is on host 1, whose address is ::2.
three_and_one_v6() { examples_on fd77::1 "1 0 1 1" 1 '\[fd77::'; }

# examples_on ADDRESS "HOST.." RANKS PREFIX: runs examples on four ranks.  Checks their output, and that they listen on
# addresses of the network.
examples_on() {
    local address=$1 on=$2 ranks=$3 prefix=$4 rank
    hosts_up 2
    [[ $on == 1* ]] && address=${address%1}2

    TUTTI_LOG=info nodes "$address" "$on" "$ranks" "$examples/all_reduce"
    all_well all_reduce
    printed all_reduce <<<"$(for rank in 0 1 2 3; do
        echo "Rank $rank has the sum of the ranks [6]"
        echo "Rank $rank has the sum, counted from 1 [10]"
        echo "Rank $rank has the average, counted from 1 [2.5]"
    done)"
    [[ $(cat "$work"/*.err | grep -cE "tcp: rank [0-3] listens on $prefix") == 4 ]] ||
        fail "not all four ranks listen on an address of $prefix"

    jobs_clear
    nodes "$address" "$on" "$ranks" "$examples/isend_irecv"
    all_well isend_irecv
    printed isend_irecv <<<"Rank 0 started sending
Rank 0 has 42.0 after
Rank 1 has 0.0 before
Rank 1 started receiving
Rank 1 has 42.0 after
$(for rank in 0 1; do printf "Rank $rank exchanged %d bytes: right\n" 4 67108864; done)"

    jobs_clear
    nodes "$address" "$on" "$ranks" "$examples/train" tcp --epochs 5
    all_well train # fails below 95 %
    said '*.out' 'accuracy 9[5-9]\.[0-9]+ % on 357 held-out rows, 4 ranks' "the training does not say how good it is"
}

# The examples print the same on two hosts as on one.
every_example() {
    hosts_up 2
    local program
    for program in "$examples"/*; do
        [[ -x $program && -f $program && $program != */spawn ]] || continue # spawn starts its own ranks, on one host
        jobs_clear
        job 0 -n 4 "$program"
        await_job 0
        [[ $status == 0 ]] || fail "$program fails on one host"
        without_times >"$work/one"
        jobs_clear
        nodes 10.77.0.1 "0 1" 2 "$program"
        all_well "$program"
        without_times >"$work/two"
        diff "$work/one" "$work/two" || fail "$program prints something else on two hosts"
    done
}

without_times() {
    cat "$work"/[0-9]*.out | sed -E 's/^\[[0-9]+\] //; s/(took )?[0-9.]+ s(econds)?//g; s/overlap.*//' | sort
}

# Runs all operations with ranks of both hosts and checks their data.
every_operation() {
    hosts_up 2
    operations_on "0 1 0" 1
}

# operations_on "HOST.." RANKS
operations_on() {
    local ranks=$(($(wc -w <<<"$1") * $2))
    nodes 10.77.0.1 "$1" "$2" "$build/bin/tutti-bench" --sizes 0,4,1000,64K,1M --ms 1 --csv --name x --ranks $ranks
    all_well tutti-bench
    grep -vE "^(\[0\] )?x,[a-z_]+,$ranks,[0-9]+,.*,ok\$" "$work"/*.out && fail "a result is wrong"
    [[ $(cat "$work"/*.out | wc -l) == 46 ]] || fail "not 9 operations in 5 sizes and a barrier"
}

# Does the same with the algorithms that reduce within each host first, chosen by name for all sizes.
hierarchy_two_and_two() { hierarchy_on "0 1" 2; }
hierarchy_three_and_one() { hierarchy_on "0 0 0 1" 1; }
hierarchy_mixed() { hierarchy_on "0 1 1 0 1" 1; }
hierarchy_on() {
    local algorithm
    hosts_up 2
    for algorithm in hierarchical leaders; do
        TUTTI_ALGO=$algorithm operations_on "$@"
        jobs_clear
    done
}

# Counts the bytes that an all_reduce of 4 MiB sends from host 0 to host 1.  With two hosts each needs to send the data
# once.  A ring over four ranks sends them one and a half times, and twice as often if the hosts alternate in it.  The
# links get 500 Mbit/s: without a limit, or with a high one, they are as fast as sockets within a namespace beside other
# tests, and then the ring may be right.
hierarchy_bytes() {
    hosts_up 2
    local host
    for host in 0 1; do
        in_host $host tc qdisc add dev eth0 root tbf rate 500mbit burst 64kb latency 400ms 2>"$work/tc" ||
            skip "no tbf: $(cat "$work/tc")"
    done
    local bytes
    for on in "0 0 1 1" "0 0 0 1" "0 1 0 1"; do
        count_bytes "$on" ring
        bytes=$count
        ((bytes > 5500000)) || fail "a ring over hosts $on sends $bytes bytes, less than it must"
        count_bytes "$on" ''
        echo "hosts $on: $count bytes an all_reduce of 4194304; a ring sends $bytes"
        ((count > 4000000 && count < 4900000)) || fail "over hosts $on $count bytes are sent, not 4 MiB"
    done
}

# count_bytes "HOST.." ALGORITHM: sets $count to the bytes that leave host 0 in a round.  Rounds are so many that what
# is sent before and after them does not matter.
count_bytes() {
    local before rounds=0 seconds
    for ((seconds = 1; rounds < 6 && seconds < 64; seconds *= 2)); do
        jobs_clear
        before=$(in_host 0 cat /sys/class/net/eth0/statistics/tx_bytes)
        TUTTI_ALGO=$2 nodes 10.77.0.1 "$1" 1 "${loop[@]}" $seconds 30000 4194304
        all_well "all_reduce with ${2:-the default}"
        rounds=$(sed -nE 's/.*right after ([0-9]+) rounds/\1/p' "$work/0.out")
    done
    count=$((($(in_host 0 cat /sys/class/net/eth0/statistics/tx_bytes) - before) / rounds))
    echo "$1: $rounds rounds"
}

# Runs the conformance suite's quick form.  tests/soak/conformance.sh runs the full form.
suite_two_and_two_v4() { suite_on 10.77.0.1 "0 1" 2 --quick; }
suite_two_and_two_v6() { suite_on fd77::1 "0 1" 2 --quick; }
suite_three_and_one_v4() { suite_on 10.77.0.1 "0 1 0 0" 1 --quick; }
suite_three_and_one_v6() { suite_on fd77::2 "1 0 1 1" 1 --quick; }
suite_full_two_and_two_v6() { bound=3600 suite_on fd77::1 "0 1" 2; }
suite_full_three_and_one_v4() { bound=3600 suite_on 10.77.0.1 "0 1 0 0" 1; }

# suite_on ADDRESS "HOST.." RANKS OPTION..: runs the suite on four ranks
suite_on() {
    local address=$1 on=$2 ranks=$3
    shift 3
    hosts_up 2
    bound=${bound:-200} nodes "$address" "$on" "$ranks" "$build/bin/tutti-conformance" --join "$@" --junit "$work/suite.xml"
    all_well "the suite with $*"
    said 0.out '^\[0\] all +[0-9]{4,} +0 +0 ' "not thousands of cases passed, none skipped and none failed"
    said suite.xml 'testsuite name="tcp, 4 processes of a job"'
    grep -E '^(\[0\] )?all ' "$work/0.out"
}

# Node 0 has a tuning file and node 1 has none.  Both must use node 0's, or they would wait for each other.
tuning() {
    hosts_up 2
    nodes 10.77.0.1 "0 1" 2 "$build/bin/tutti-bench" --ops all_reduce --sizes 4,1M --ms 1 --tune "$work/measured"
    all_well "tuning"
    grep -qE '^tcp 4 2 all_reduce any ' "$work/measured" || fail "no row for 4 ranks on 2 hosts: $(cat "$work/measured")"
    jobs_clear
    printf 'tutti tuning 1\ntcp 4 2 all_reduce any ring\ntcp 4 2 broadcast any chain\n' >"$work/tuning"
    TUTTI_TUNING=$work/tuning job 0 --nnodes 2 --node-rank 0 --master-addr 10.77.0.1 --master-port 29500 \
        --token-file "$work/token" -n 2 "$build/bin/tutti-bench" --ops all_reduce,broadcast --sizes 4,1M --ms 1
    job 1 --nnodes 2 --node-rank 1 --master-addr 10.77.0.1 --master-port 29500 \
        --token-file "$work/token" -n 2 "$build/bin/tutti-bench" --ops all_reduce,broadcast --sizes 4,1M --ms 1
    all_well "a file on node 0 alone"
}

# A link of 10 Mbit/s is found to be far slower than one without a limit, and all ranks use the same figures.
links() {
    hosts_up 2
    at_least=64 measured 4 "$build/bin/tutti-bench" --explain all_reduce 64K
    local fast=$bytes_per_us
    in_host 0 tc qdisc add dev eth0 root tbf rate 10mbit burst 16kb latency 400ms 2>"$work/tc" ||
        skip "no tbf: $(cat "$work/tc")"
    measured 4 "$build/bin/tutti-bench" --explain all_reduce 64K
    echo "between hosts: $fast bytes/us, at 10 Mbit/s $bytes_per_us"
    ((fast > 5 * bytes_per_us)) || fail "a link of 10 Mbit/s is found to have $bytes_per_us bytes/us, another $fast"
    # without shared memory, messages within a host take sockets
    TUTTI_SHM=0 measured 4 "$build/bin/tutti-bench" --explain broadcast 1K
    said 0.out 'within a host: latency 8\.19 us \(assumed\)' "without shared memory, other figures within a host"
}

# measured RANKS PROGRAM..: runs it on two hosts until a bandwidth of $at_least was measured, at most ten times: on a
# busy machine the ranks may not run meanwhile.  Sets $bytes_per_us, and checks that the ranks agree.
measured() {
    local ranks=$1 tries
    shift
    bytes_per_us=0
    for ((tries = 0; tries < 10 && ${bytes_per_us:-0} < ${at_least:-1}; tries++)); do
        jobs_clear
        TUTTI_LOG=info nodes 10.77.0.1 "0 1" $((ranks / 2)) "$@"
        all_well "$*"
        bytes_per_us=$(sed -nE 's/.*between hosts: latency .*, ([0-9]+) bytes.us \(measured\)$/\1/p' "$work/0.out")
        grep -hoE 'tcp messages between hosts: .*' "$work"/*.err >"$work/figures"
        [[ $(wc -l <"$work/figures") == "$ranks" ]] || fail "not all ranks say what they use"
        [[ $(sort -u "$work/figures" | wc -l) == 1 ]] || fail "different figures: $(sort -u "$work/figures")"
    done
    [[ $bytes_per_us -gt 0 ]] || fail "nothing was measured"
}

# 128 ranks on 32 hosts: a barrier, an all_reduce, an all_to_all and some groups.
thirty_two_hosts() {
    hosts_up 32
    bound=200 nodes 10.77.0.1 "$(seq -s' ' 0 31)" 4 "$build/tests/test_many_ranks" 128
    all_well "32 hosts"
}

# While a job runs, the store and each rank listen on that one address.
one_address() {
    hosts_up 2
    LOOP_STOP=$work/stop nodes 10.77.0.1 "0 1" 2 "${loop[@]}" 60 20000 4096
    until_true 40 prints 0.out running || fail "the job does not start"
    local host
    for host in 0 1; do
        in_host "$host" ss -Htln | awk '{print $4}' >"$work/listens"
        grep -v "^10\.77\.0\.$((host + 1)):" "$work/listens" && fail "host $host listens elsewhere, too"
        [[ $(wc -l <"$work/listens") == $((host == 0 ? 3 : 2)) ]] ||
            fail "host $host has another number of listeners: $(cat "$work/listens")"
        in_host "$host" ss -Htn state established | awk '{print $3; print $4}' >"$work/linked"
        grep -v '^10\.77\.0\.' "$work/linked" && fail "host $host has connections between other addresses"
        grep -q "^10\.77\.0\.$((2 - host)):" "$work/linked" || fail "host $host has no connection to the other host"
    done
    touch "$work/stop"
    all_well loop
    [[ $(cat "$work"/*.out | grep -c 'right after') == 4 ]] || fail "not all ranks end well"
}

iface() {
    hosts_up 2
    local wanted address
    while read -r wanted address; do
        TUTTI_IFACE=$wanted TUTTI_LOG=info nodes 10.77.0.1 "0 1" 1 "$examples/hello"
        all_well "TUTTI_IFACE=$wanted"
        [[ $(cat "$work"/*.err | grep -cE "tcp: rank [01] listens on $address") == 2 ]] ||
            fail "TUTTI_IFACE=$wanted is not followed"
        jobs_clear
    done <<'WANTED'
eth0 10\.77\.0\.
10.77.0.0/16 10\.77\.0\.
fd77::/64 \[fd77::
WANTED

    TUTTI_IFACE=eth9 nodes 10.77.0.1 "0 1" 1 "$examples/hello"
    for wanted in 0 1; do
        await_job "$wanted"
        [[ $status != 0 ]] || fail "TUTTI_IFACE=eth9 is taken"
        said "$wanted.err" 'TUTTI_IFACE=eth9: no interface with this name'
    done
    jobs_clear
    TUTTI_IFACE=192.168.0.0/16 nodes 10.77.0.1 "0 1" 1 "$examples/hello"
    for wanted in 0 1; do
        await_job "$wanted"
        [[ $status != 0 ]] || fail "TUTTI_IFACE=192.168.0.0/16 is taken"
        said "$wanted.err" 'TUTTI_IFACE=192.168.0.0/16: no interface'
    done
}

# The hosts, and node 0 itself, resolve the name of node 0.
by_name() {
    hosts_up 2
    hosts_name 10.77.0.1 first
    TUTTI_LOG=info nodes first "0 1" 2 "$examples/all_reduce"
    all_well "by name"
    [[ $(cat "$work"/*.err | grep -cE "tcp: rank [0-3] listens on 10\.77\.0\.") == 4 ]] || fail "not on the wire"
}

# Debian resolves a host's own name to 127.0.1.1, which other hosts cannot reach.
own_name_is_loopback() {
    hosts_up 2
    hosts_name 127.0.1.1 first 0
    hosts_name 10.77.0.1 first 1
    job 0 --nnodes 2 --node-rank 0 --master-addr first --master-port 29500 --token-file "$work/token" -n 1 \
        --timeout 2 "$examples/hello"
    await_job 0
    [[ $status != 0 ]] || fail "two hosts of which one is missing"
    said 0.err 'first.*127\.0\.1\.1' "node 0 does not say that its name leads to loopback"
}

# Starts node 1 first, and node 0 after 3 s.
store_late() {
    hosts_up 2
    job 1 --nnodes 2 --node-rank 1 --master-addr 10.77.0.1 --master-port 29500 --token-file "$work/token" -n 2 \
        "$examples/hello"
    sleep 3
    job 0 --nnodes 2 --node-rank 0 --master-addr 10.77.0.1 --master-port 29500 --token-file "$work/token" -n 2 \
        "$examples/hello"
    all_well "a late store"
    [[ $(cat "$work"/*.out | grep -c 'out of 4 processes') == 4 ]] || fail "not all four ranks are there"
}

refusals() {
    hosts_up 2
    local common=(--nnodes 2 --master-addr 10.77.0.1 --master-port 29500)

    job 0 "${common[@]}" --node-rank 0 -n 1 "$examples/hello" # without a token
    await_job 0
    [[ $status != 0 ]] || fail "a job of two hosts starts without a token"
    said 0.err 'token' "it does not say that the token is missing"
    said 0.err '--token-file|TUTTI_TOKEN_FILE' "it does not say what to do"
    jobs_clear

    # a program that is started without tutti-run
    in_host 0 env RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 timeout 20 "$examples/hello" \
        >"$work/0.out" 2>"$work/0.err" && fail "a store on the wire serves without a token"
    said 0.err '10\.77\.0\.1:29500 is not a loopback address and there is no job token.*set TUTTI_TOKEN_FILE'
    jobs_clear

    in_host 0 env RANK=0 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT=29500 TUTTI_INSECURE=1 timeout 20 \
        "$examples/hello" >"$work/0.out" 2>"$work/0.err" && fail "a store binds every address"
    said 0.err 'means every address of this host'
    jobs_clear

    job 1 "${common[@]}" --node-rank 0 --token-file "$work/token" -n 1 "$examples/hello" # node 0 on the wrong host
    await_job 0
    [[ $status != 0 ]] || fail "node 0 starts where its address is not"
    said 0.err '10\.77\.0\.1:29500 is not an address of this host'
    jobs_clear

    job 0 "${common[@]}" --node-rank 0 --token-file "$work/token" -n 1 "${loop[@]}" 1 20000 4096
    until_true 40 in_use || fail "the first job does not listen"
    job 0 "${common[@]}" --node-rank 0 --token-file "$work/token" -n 1 "$examples/hello" # the port is taken
    await_job 1
    [[ $status != 0 ]] || fail "two stores on one port"
    said 1.err '10\.77\.0\.1:29500 is in use'
    job 1 "${common[@]}" --node-rank 1 --token-file "$work/token" -n 1 "${loop[@]}" 1 20000 4096
    for n in 0 2; do
        await_job $n
        [[ $status == 0 ]] || fail "the first job was disturbed"
    done
}

in_use() { in_host 0 ss -Htln | grep -q ':29500 '; }

# Node 1 has another token, so it gets an error.  Node 0 times out and names the missing ranks.
another_token() {
    hosts_up 2
    (umask 077 && head -c 32 /dev/urandom >"$work/another")
    local common=(--nnodes 2 --master-addr 10.77.0.1 --master-port 29500 -n 1)
    job 0 "${common[@]}" --node-rank 0 --token-file "$work/token" "${loop[@]}" 1 2000 4096 6000
    job 1 "${common[@]}" --node-rank 1 --token-file "$work/another" "${loop[@]}" 1 2000 4096 6000
    await_job 1
    [[ $status != 0 ]] || fail "a node with another token joins"
    said 1.out 'TUTTI_ERR_AUTH: .*the server refused this rank, which has another job token' "node 1 is not told that it is the token"
    await_job 0
    [[ $status != 0 ]] || fail "node 0 goes on alone"
    said 0.out 'TUTTI_ERR_TIMEOUT: .*joined 1 of 2, missing 1' "node 0 does not say who is missing"
}

# The clocks of two hosts are aligned through the store.
traced() {
    hosts_up 2
    TUTTI_TRACE=$work/trace nodes 10.77.0.1 "0 1" 2 "$examples/all_reduce"
    all_well all_reduce
    "$build/bin/tutti-trace" report "$work/trace" >"$work/report.out" 2>"$work/report.err" || fail "no report"
    said report.out '^4 ranks on .*, 12 operations, 3 collectives' "not all operations are in the report"
    said report.out "^clocks: aligned to rank 0's host within [0-9.]+ us" "the clocks are not aligned"
}

. "$(dirname "$0")/hosts.sh"
run_cases "$@"
