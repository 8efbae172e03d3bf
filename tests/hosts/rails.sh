#!/bin/bash
# Jobs whose ranks use several interfaces.  Each case makes its own hosts, which two networks join: eth0 and eth1.
#
#   TUTTI_BUILD_DIR=build tests/hosts/rails.sh [CASE..]      all, unless some are named; status 77: skipped
set -uo pipefail

all=(rails_sizes rails_v6 rails_excluded rails_uneven rails_unreachable rails_apart rails_refused rails_datagrams
    rails_leave rails_cancelled)

# operations IFACES [IFACES_OF_HOST_1]: runs operations of sizes around the limits with two ranks a host, and checks
# their data.
operations() {
    local host ifaces=$1
    local common=(--nnodes 2 --master-addr "${address:-10.77.0.1}" --master-port 29500 --token-file "$work/token" -n 2)
    local ops=all_reduce,all_to_all,pingpong sizes=65536,65540,262140,262144,262148,3000004
    local bench=("$build/bin/tutti-bench" --ops "$ops" --sizes "$sizes" --ms 1 --csv --name x)
    for host in 0 1; do
        [[ $host == 1 ]] && ifaces=${2:-$1}
        TUTTI_LOG=debug TUTTI_IFACE=$ifaces job "$host" "${common[@]}" --node-rank "$host" "${bench[@]}"
    done
    all_well "TUTTI_IFACE=$1"
    [[ $(cat "$work"/*.out | grep -cE '^(\[0\] )?x,.*,ok$') == 18 ]] || fail "not 18 right results"
}

# Checks which interfaces carried more than a few packets between the hosts, in both directions.
carried() { # "eth0 .." "eth1 .."
    local host iface
    for host in 0 1; do
        for iface in $1; do (($(sent "$host" "$iface") > 2000000)) || fail "host $host sent little over $iface"; done
        for iface in ${2:-}; do (($(sent "$host" "$iface") < 100000)) || fail "host $host sent data over $iface"; done
    done
}

rails_sizes() {
    rails_up 2
    operations eth0,eth1
    carried "eth0 eth1"
    said '*.err' 'uses 2 interfaces: eth0 10\.77\.0\.1, eth1 10\.78\.0\.1'
    TUTTI_IFACE=eth0,eth1 in_host 0 "$build/bin/tutti-info" >"$work/info.out" 2>&1
    said info.out 'addresses for ranks on other hosts: eth0 10\.77\.0\.1, eth1 10\.78\.0\.1 \(TUTTI_IFACE\)'
    # each rank has a second connection to each rank of the other host, and none to the one beside it
    [[ $(cat "$work"/*.err | grep -c 'connected to rank [0-3] over eth1, too') == 8 ]] || fail "not 8 connections"
}

rails_v6() {
    rails_up 2
    address=fd77::1 operations fd77::/64,fd78::/64
    carried "eth0 eth1"
}

rails_excluded() {
    rails_up 2
    operations '^lo,aside'
    carried "eth0 eth1"
}

# Hosts with different numbers of interfaces use the smaller number.
rails_uneven() {
    rails_up 2
    operations eth0,eth1 eth0
    carried eth0 eth1
    cat "$work"/*.err | grep -q 'no connection to rank' && fail "a rank misses a connection that was not asked for"
    return 0
}

# An interface that leads nowhere: the ranks say so and do without it.
rails_unreachable() {
    rails_up 2
    operations eth0,aside0,eth1
    carried "eth0 eth1"
    said '*.err' 'no connection to rank [0-3] over aside0 \(172\.31\.0\.1\): .*; its messages do without it'
}

# The ranks of each host use one interface each, and remain on one host for the algorithms.
rails_apart() {
    rails_up 2
    # shellcheck disable=SC2016 # expands in the rank
    nodes 10.77.0.1 "0 1" 2 sh -c 'TUTTI_IFACE=eth$LOCAL_RANK exec "$@"' sh \
        "$build/bin/tutti-bench" --ops all_reduce --sizes 4,1M --ms 1 --tune "$work/measured"
    all_well "ranks of a host with different interfaces"
    grep -qE '^tcp 4 2 all_reduce any ' "$work/measured" || fail "not 4 ranks on 2 hosts: $(cat "$work/measured")"
}

rails_refused() {
    rails_up 1
    refused eth0,eth9 'TUTTI_IFACE=eth0,eth9: no interface with the name "eth9".* are: lo 127\.0\.0\.1, .*eth1 10\.78\.0\.1'
    refused '^lo,eth,aside' 'TUTTI_IFACE=\^lo,eth,aside: every interface is excluded; .* are: lo '
}
refused() { # VALUE MESSAGE
    TUTTI_SHM=0 TUTTI_IFACE=$1 job 0 -n 2 "$examples/hello"
    await_job 0
    [[ $status != 0 ]] || fail "TUTTI_IFACE=$1 is taken"
    said 0.err "$2"
    jobs_clear
}

# Datagram endpoints use the first interface.
rails_datagrams() {
    rails_up 2
    TUTTI_FABRIC_PROVIDER='tcp;ofi_rxm' operations eth0,eth1
    carried eth0 eth1
    said '*.err' "provider tcp;ofi_rxm uses one interface, so this rank uses eth0 alone"
}

# A rank leaves right after a large message, of which a part is still on a slow interface.  Its goodbye goes over the
# fast one and must not overtake the message.
rails_leave() {
    rails_up 2
    shape 0 eth1 20mbit 2s
    TUTTI_IFACE=eth0,eth1 nodes 10.77.0.1 "0 1" 1 "$build/tests/test_hosts" leave 8000000
    all_well "a message before the end"
    [[ $(cat "$work"/*.out | grep -c 'right') == 1 ]] || fail "the message is wrong"
    (($(sent 0 eth1) > 500000)) || fail "nothing went over eth1"
}

# Operations that time out amid a large message end in time, although a part of it is under way on both interfaces.
rails_cancelled() {
    local line n=0
    rails_up 2
    for host in 0 1; do for iface in eth0 eth1; do shape "$host" "$iface" 8mbit 500ms; done; done
    TUTTI_IFACE=eth0,eth1 nodes 10.77.0.1 "0 1" 1 "${loop[@]}" 20 1500 33554432 20000
    for job in 0 1; do await_job "$job"; done
    while read -r line; do
        [[ $line =~ ^\[[0-9]\]\ ([0-9.]+)\ (TUTTI_ERR_TIMEOUT|TUTTI_ERR_ABORTED|TUTTI_ERR_PEER_LOST): ]] || fail "$line"
        awk -v took="${BASH_REMATCH[1]}" 'BEGIN { exit !(took <= 4) }' || fail "$line"
        ((n++))
    done < <(grep -h ' TUTTI_ERR_' "$work"/*.out)
    ((n == 2)) || fail "$n ranks end, not 2"
}

. "$(dirname "$0")/hosts.sh"
run_cases "$@"
