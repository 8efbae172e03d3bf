# shellcheck shell=bash
# Hosts for tests: network namespaces, joined by a bridge in another namespace.  The cases source this file.
#
#   hosts_up N           hosts 0 .. N-1: 10.77.0.1.. and fd77::1.. on eth0; beside it aside0, which leads nowhere
#   rails_up N           the same hosts with a second network: 10.78.0.1.. and fd78::1.. on eth1
#   job HOST OPTION..    tutti-run on a host, in the background; await_job N waits for the N-th and sets $status
#   in_host HOST COMMAND..
#
# However the shell ends, it ends the processes on the hosts and removes the hosts.

build=${TUTTI_BUILD_DIR:?the folder of the build}
run=$build/bin/tutti-run
# shellcheck disable=SC2034 # for the cases
examples=$build/examples
# shellcheck disable=SC2034
loop=("$build/tests/test_hosts" loop) # a rank of the tests
hosts=() # numbers of the running hosts
jobs=()  # process ids
apart=()   # a command that starts jobs, such as unshare
options=() # of tutti-run, for nodes

fail() {
    echo "FAILED: $*"
    local file
    for file in "$work"/*.out "$work"/*.err; do
        [[ -s $file ]] && echo "--- $(basename "$file")" && tail -n 80 "$file"
    done
    exit 1
}

skip() {
    echo "skipped: $*"
    exit 77
}

# ---- hosts ---------------------------------------------------------------------------------------------------------

in_host() {
    local host=$1
    shift
    ip netns exec "$name-$host" "$@"
}

# This script made the namespaces, so it started all processes in them.
host_remove() {
    local pid
    for pid in $(ip netns pids "$name-$1" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
    ip netns del "$name-$1" 2>/dev/null
    rm -rf "/etc/netns/$name-$1"
}

hosts_down() {
    local host
    trap '' INT TERM HUP ALRM
    for host in "${hosts[@]}" switch; do host_remove "$host"; done
    rm -rf "$work"
}

# Removes the hosts that a test left when it was killed with SIGKILL.
hosts_sweep() {
    local left
    for left in $(ip netns list 2>/dev/null | sed -n 's/^\(tutti[0-9]*-[a-z0-9]*\).*/\1/p'); do
        local pid=${left#tutti}
        [[ -d /proc/${pid%%-*} ]] && continue
        ip netns del "$left" 2>/dev/null
        rm -rf "/etc/netns/$left"
    done
}

host_add() {
    local host=$1 number=$(($1 + 1))
    hosts+=("$host")
    ip netns add "$name-$host" || return
    in_host "$host" ip link set lo up
    # first in order, up, and alike on all hosts, like a container bridge: its address leads to no other host
    in_host "$host" ip link add aside0 type veth peer name aside1 || return
    in_host "$host" ip addr add 172.31.0.1/16 dev aside0
    in_host "$host" ip addr add fd31::1/64 dev aside0 nodad 2>/dev/null
    in_host "$host" ip link set aside0 up
    in_host "$host" ip link set aside1 up
    ip link add eth0 netns "$name-$host" type veth peer name "port$host" netns "$name-switch" || return
    in_host "$host" ip addr add "10.77.0.$number/24" dev eth0
    in_host "$host" ip addr add "fd77::$number/64" dev eth0 nodad 2>/dev/null
    in_host "$host" ip link set eth0 up
    in_host switch ip link set "port$host" master bridge up
}

hosts_up() {
    command -v ip >/dev/null || skip "ip (iproute2) is not there"
    hosts_sweep
    name=tutti$BASHPID
    work=$(mktemp -d)
    trap hosts_down EXIT
    trap 'exit 130' INT TERM HUP ALRM
    ip netns add "$name-switch" 2>"$work/netns" || skip "network namespaces are not permitted: $(cat "$work/netns")"
    in_host switch true 2>"$work/netns" || skip "a network namespace cannot be entered: $(cat "$work/netns")"
    in_host switch ip link add bridge type bridge 2>"$work/netns" || skip "no bridge: $(cat "$work/netns")"
    in_host switch ip link set bridge up
    local host
    for ((host = 0; host < $1; host++)); do
        host_add "$host" 2>"$work/netns" || skip "no host can be made of a namespace: $(cat "$work/netns")"
    done
    (umask 077 && head -c 32 /dev/urandom >"$work/token")
}

rails_up() {
    hosts_up "$1"
    local host number
    {
        in_host switch ip link add bridge1 type bridge && in_host switch ip link set bridge1 up
        for host in "${hosts[@]}"; do
            number=$((host + 1))
            ip link add eth1 netns "$name-$host" type veth peer name "second$host" netns "$name-switch" || break
            in_host "$host" ip addr add "10.78.0.$number/24" dev eth1
            in_host "$host" ip addr add "fd78::$number/64" dev eth1 nodad 2>/dev/null
            in_host "$host" ip link set eth1 up
            in_host switch ip link set "second$host" master bridge1 up || break
        done
    } 2>"$work/netns"
    [[ -s $work/netns ]] && skip "no second network: $(cat "$work/netns")"
}

# HOST INTERFACE RATE: limits what the host sends on it
shape() {
    in_host "$1" tc qdisc add dev "$2" root tbf rate "$3" burst 128kb latency "${4:-50ms}" 2>"$work/tc" ||
        skip "no tbf: $(cat "$work/tc")"
}

sent() { in_host "$1" cat "/sys/class/net/$2/statistics/tx_bytes"; } # HOST INTERFACE

# Makes hosts resolve a name: ADDRESS NAME [HOST..], all hosts unless some are named.
hosts_name() {
    local address=$1 what=$2 host
    shift 2
    for host in "${@:-"${hosts[@]}"}"; do
        mkdir -p "/etc/netns/$name-$host"
        printf '%s\n' "127.0.0.1 localhost" "$address $what" >"/etc/netns/$name-$host/hosts"
    done
}

# ---- jobs ----------------------------------------------------------------------------------------------------------

# job HOST OPTION..: starts a job, whose output goes to $work/N.out and N.err.  N counts the jobs.  Each has a time
# limit.
job() {
    local host=$1 n=${#jobs[@]}
    shift
    in_host "$host" "${apart[@]}" "$run" --timeout "${bound:-80}" "$@" >"$work/$n.out" 2>"$work/$n.err" </dev/null &
    jobs+=($!)
}

await_job() {
    wait "${jobs[$1]}"
    status=$?
}

jobs_clear() {
    jobs=()
    rm -f "$work"/*.out "$work"/*.err
}

# nodes ADDRESS "HOST.." RANKS PROGRAM..: starts a node on each named host, in order.  A host may have several.
nodes() {
    local address=$1 on ranks=$3 rank
    read -ra on <<<"$2"
    shift 3
    for ((rank = 0; rank < ${#on[@]}; rank++)); do
        job "${on[rank]}" --nnodes "${#on[@]}" --node-rank "$rank" --master-addr "$address" --master-port 29500 \
            --token-file "$work/token" "${options[@]}" -n "$ranks" "$@"
    done
}

# Waits for all jobs, which must succeed.
all_well() {
    local n
    for ((n = 0; n < ${#jobs[@]}; n++)); do
        await_job "$n"
        [[ $status == 0 ]] || fail "$1: job $n ended with status $status"
    done
}

# Compares the ranks' joint output with a file or here-document, in any order.
printed() {
    sort >"$work/wanted"
    cat "$work"/[0-9]*.out | sed 's/^\[[0-9]*\] //' | sort >"$work/got"
    diff "$work/wanted" "$work/got" >"$work/diff" || {
        cat "$work/diff"
        fail "$1: the ranks print something else"
    }
}

# shellcheck disable=SC2086 # the first is a pattern
said() { # FILES WORDS: succeeds if one of the files has the words
    grep -qE -- "$2" "$work"/$1 || fail "${3:-nobody says \"$2\"}"
}

# SECONDS COMMAND..: waits until the command succeeds
until_true() {
    local limit=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < limit)) || return 1
        sleep 0.05
    done
}

prints() { grep -qE -- "$2" "$work/$1" 2>/dev/null; } # FILE WORDS

# ---- faults --------------------------------------------------------------------------------------------------------

# nft_in HOST RULE..: adds a rule for incoming packets.  The table is removed with the host.
nft_in() {
    local host=$1
    shift
    in_host "$host" nft -f - <<RULES || return
table inet faults {
    chain in {
        type filter hook input priority 0; policy accept;
        iifname "eth0" $*
    }
}
RULES
}

nft_clear() { in_host "$1" nft delete table inet faults; }

needs_nft() {
    command -v nft >/dev/null || skip "nft (nftables) is not there"
    nft_in 0 counter 2>"$work/nft" || skip "nft rules are not permitted: $(cat "$work/nft")"
    nft_clear 0
}

# ---- cases ---------------------------------------------------------------------------------------------------------

# run_cases [CASE..]: runs the named cases, or those of $all, each in a shell of its own, which ends its hosts
run_cases() {
    local case code
    # shellcheck disable=SC2154 # the sourcing script sets all
    [[ $# -gt 0 ]] || set -- "${all[@]}"
    for case in "$@"; do
        ("$case")
        code=$?
        [[ $code == 0 ]] || exit "$code"
    done
}
