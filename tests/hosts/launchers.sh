#!/bin/bash
# Jobs over several hosts that another launcher starts.
#
#   TUTTI_BUILD_DIR=build tests/hosts/launchers.sh [CASE..]      status 77: skipped
set -uo pipefail

all=(mpirun_two_hosts mpiexec_two_hosts ssh_two_hosts)

# As on a cluster, all hosts resolve all names.  mpirun reaches the second host through a stand-in for ssh.
named_hosts() {
    local host
    hosts_up 2
    for host in 0 1; do
        mkdir -p "/etc/netns/$name-$host"
        printf '%s\n' "127.0.0.1 localhost" "10.77.0.1 first" "10.77.0.2 second" >"/etc/netns/$name-$host/hosts"
    done
    cat >"$work/rsh" <<AGENT
#!/bin/bash
[[ \$1 == -x ]] && shift # Hydra's: no X11
[[ \$1 == second ]] || exit 1
shift
exec ip netns exec $name-1 unshare --uts bash -c "hostname second && \$*"
AGENT
    chmod +x "$work/rsh"
}

# on_first COMMAND..: runs a launcher on the first host
on_first() {
    in_host 0 unshare --uts bash -c 'hostname first && exec timeout -k 5 60 "$@"' first "$@" \
        >"$work/0.out" 2>"$work/0.err" </dev/null || fail "$* on two hosts"
}

all_reduced() {
    local rank
    printed all_reduce <<<"$(for rank in 0 1 2 3; do
        echo "Rank $rank has the sum of the ranks [6]"
        echo "Rank $rank has the sum, counted from 1 [10]"
        echo "Rank $rank has the average, counted from 1 [2.5]"
    done)"
}

# The store and all ranks listen where the other host can reach them, although another interface comes first.
on_the_wire() {
    said 0.err 'tcp store: serving 10\.77\.0\.1 port' "the store is not on the wire"
    [[ $(grep -cE "tcp: rank [0-3] listens on 10\.77\.0\." "$work/0.err") == 4 ]] || fail "not all ranks are on the wire"
}

# suite BACKEND LAUNCHER..: runs the suite, which finds rank 0's host as programs do
suite() {
    local backend=$1
    shift
    TUTTI_LOG=error on_first "$@" "$build/bin/tutti-conformance" --join --quick --backend "$backend" --filter all_reduce
    said 0.out '^all +[1-9][0-9]* +[0-9]+ +0 ' "the suite over $backend did not pass"
}

mpirun_two_hosts() {
    command -v mpirun.openmpi >/dev/null || skip "mpirun.openmpi is not there"
    named_hosts
    local start=(mpirun.openmpi --allow-run-as-root --oversubscribe --mca plm_rsh_agent "$work/rsh"
        --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca mpi_yield_when_idle 1
        -x TUTTI_LOG -H "first:2,second:2" -n 4)
    TUTTI_LOG=info on_first "${start[@]}" "$examples/all_reduce" tcp
    all_reduced
    on_the_wire
    suite tcp "${start[@]}"
    [[ -e $build/lib/tutti/libtutti_mpi_openmpi.so ]] || return 0
    start=(env "OMPI_MCA_oob_tcp_if_include=10.77.0.0/24" "OMPI_MCA_btl_tcp_if_include=10.77.0.0/24"
        "$run" --mpi=openmpi --no-prefix --ssh-command "$work/rsh" --hosts "first:2,second:2")
    TUTTI_LOG=info on_first "${start[@]}" "$examples/all_reduce" mpi
    all_reduced
    suite mpi "${start[@]}"
    on_first "${start[@]}" "$build/tests/test_faults_mpi" idle "$work/beside" # sleeping ranks are woken by other hosts
}

mpiexec_two_hosts() {
    command -v mpiexec.mpich >/dev/null || skip "mpiexec.mpich is not there"
    named_hosts
    # tutti-run keeps lines whole, which mpiexec mixes
    local start=("$run" --mpi=mpich --ssh-command "$work/rsh" --hosts "first:2,second:2")
    TUTTI_LOG=info on_first "${start[@]}" "$examples/all_reduce" tcp
    all_reduced
    on_the_wire
    [[ -e $build/lib/tutti/libtutti_mpi_mpich.so ]] || return 0
    TUTTI_LOG=info on_first "${start[@]}" "$examples/all_reduce" mpi
    all_reduced
}

# tutti-run starts both hosts itself, over a stand-in for ssh.
ssh_two_hosts() {
    named_hosts
    cat >"$work/agent" <<AGENT
#!/bin/bash
[[ \$1 == first ]] && exec sh -c "\$2"
exec ip netns exec $name-1 sh -c "\$2"
AGENT
    chmod +x "$work/agent"
    local start=("$run" --no-prefix --ssh-command "$work/agent" --hosts "first:2,second:2")
    TUTTI_LOG=info on_first "${start[@]}" "$examples/all_reduce" tcp
    all_reduced
    said 0.err 'tcp store: serving first port' "the store is not on the first host"
    [[ $(grep -cE "tcp: rank [0-3] listens on 10\.77\.0\." "$work/0.err") == 4 ]] || fail "not all ranks are on the wire"
    suite tcp "${start[@]}"
}

. "$(dirname "$0")/hosts.sh"
run_cases "$@"
