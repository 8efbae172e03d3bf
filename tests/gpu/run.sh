#!/bin/bash
# The nccl backend on a GPU.
#
#     tests/gpu/run.sh --pack DIR [BUILD]   on the machine that builds: copies the programs, and libraries that the
#                                           other machine may lack, into DIR.  BUILD is a build folder (build)
#     tests/gpu/run.sh DIR [PART..]         on the machine with the GPU; PARTs: cases two staged eager windows
#                                           shared refuse examples faults bench overhead
#
# Prints one line a check, and at the end how many failed.  TUTTI_GPU_JOBS checks (4) run at a time, and
# TUTTI_GPU_LOGS names a folder for their output.  Only a dry run of this script uses the stand-ins of tests/fakes:
# TUTTI_GPU_DRY_RUN=1 and their folder in LD_LIBRARY_PATH.
set -u
export LC_ALL=C # one order of lines on both machines

# Removes output of an example that differs between runs.
steady() {
    sed -E -e 's/  [0-9.]* s, .* waiting .*//' -e '/overlap|seconds|took| s$/d' | sort
}

pack() {
    set -e -o pipefail # a folder that lacks something would waste the other machine's time
    local dir=$1 build=${2:-build} name ranks
    rm -rf "$dir"
    mkdir -p "$dir/bin" "$dir/lib/tutti" "$dir/examples/data" "$dir/expected"
    cp "$build"/bin/tutti-{run,bench} "$build"/tests/gpu/nccl_{cases,overhead} "$dir/bin"
    cp -P "$build"/lib/libtutti.so* "$dir/lib"
    cp "$build"/lib/tutti/*.so "$dir/lib/tutti"
    for name in hello broadcast gather all_gather scatter reduce_scatter reduce all_reduce all_to_all_single send_recv \
        isend_irecv async_all_reduce timed train; do
        cp "$build/examples/$name" "$dir/examples"
        for ranks in 1 2; do
            [[ $name == send_recv || $name == isend_irecv ]] && [[ $ranks == 1 ]] && continue
            "$build/bin/tutti-run" -n $ranks "$build/examples/$name" tcp 2>/dev/null | steady >"$dir/expected/$name.$ranks"
        done
    done
    cp "$(dirname "$0")/../../examples/data/digits.csv" "$dir/examples/data"
    cp -L "$build"/lib/libtutti_train.so.1 "$dir/lib"
    # all but the C library, which is the other machine's own, and what MPI needs; tcp loads libfabric by its name, and
    # only for other hosts
    rm -f "$dir"/lib/tutti/*mpi*
    ldd "$dir"/bin/* "$dir"/lib/*.so "$dir"/lib/tutti/*.so | awk '$3 ~ /^\// {print $3}' | sort -u |
        grep -vE '/(libc|libm|libtutti[^/]*)\.so' | xargs -r -I{} cp -L {} "$dir/lib"
    cp "$0" "$dir/run.sh"
    strip --strip-debug "$dir"/bin/* "$dir"/examples/* "$dir"/lib/*.so* "$dir"/lib/tutti/*.so 2>/dev/null || true
    du -sh "$dir"
}

if [ "${1:-}" = --pack ]; then
    shift
    pack "$@"
    exit
fi

dir=$(cd "${1:?a folder made by --pack}" && pwd) || exit
shift
all="cases two staged eager windows shared refuse examples faults bench overhead"
for part; do
    [[ " $all " == *" $part "* ]] || { echo "there is no part \"$part\"; use: $all" >&2; exit 2; }
done
parts=" ${*:-$all} "
unset TUTTI_FAKES
# Finds NCCL and the driver outside the loader's folders: in a Python package, in a mounted folder.  Leaves out the
# toolkit's forward-compatibility driver, which fails with another kernel module than its own.
find_library() {
    ldconfig -p | grep -q "$1" && return
    find / \( -path /proc -o -path /sys \) -prune -o -name "$1" -not -path '*/stubs/*' -not -path '*/fakes/*' \
        -not -path '*/compat/*' -print 2>/dev/null | head -1 | xargs -r dirname
}
extra=$( (find_library libcuda.so.1; find_library libnccl.so.2) | sort -u | tr '\n' ':')
export LD_LIBRARY_PATH=$dir/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$extra
export TUTTI_BACKEND_PATH=$dir/lib/tutti
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
export NCCL_NET=${NCCL_NET:-Socket} # neither InfiniBand nor a cloud's plug-in, because both ranks are on one host
export TUTTI_LOG=${TUTTI_LOG:-warn}
run=$dir/bin/tutti-run
logs=${TUTTI_GPU_LOGS:-$(mktemp -d)}
mkdir -p "$logs"
rm -f "$logs/failed"
# Two ranks share one GPU, and NCCL treats each as a host.
two="exec env LOCAL_RANK=0 NCCL_HOSTID=tutti-\$RANK"

report() { # NAME SECONDS RC LOG: prints a check's line, and the end of its output if it failed
    if [ "$3" = 0 ]; then
        printf 'ok   %-26s %3d s\n' "$1" "$2"
    else
        printf 'FAIL %-26s %3d s, %s\n%s\n' "$1" "$2" "$3" "$(tail -8 "$4" | cut -c1-400)"
        echo "$1" >>"$logs/failed"
    fi
}

run_check() { # NAME COMMAND..
    local name=$1 log=$logs/${1//[^a-zA-Z0-9]/_} rc begin=$SECONDS
    shift
    "$@" >"$log" 2>&1
    rc=$?
    if [ -z "${TUTTI_GPU_DRY_RUN:-}" ] && grep -q FAKE "$log"; then rc="a stand-in was used"; fi
    report "$name" $((SECONDS - begin)) "$rc" "$log"
}

check() { # NAME COMMAND..: runs it beside the others
    while [ "$(jobs -rp | wc -l)" -ge "${TUTTI_GPU_JOBS:-4}" ]; do wait -n; done
    run_check "$@" &
}

survives() { # COMMAND..: rank 0 completes its case, although rank 1 dies
    local out
    out=$("$@" 2>&1)
    echo "$out"
    grep -q 'case .* rank 0 of 2: ok' <<<"$out" && ! grep -q 'rank 0 .* died' <<<"$out"
}

same() { # EXPECTED COMMAND..: compares the sorted output with that of the example on tcp
    local expected=$1 out
    shift
    out=$(timeout 150 "$@") || return
    diff <(steady <<<"$out") "$expected"
}

want() { [[ $parts == *" $1 "* ]]; }

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
uname -r
TUTTI_LOG=info "$run" -n 1 "$dir/bin/nccl_cases" bool 2>&1 | grep -m1 -o 'nccl: NCCL.*'

if want refuse; then # refused before NCCL is called
    out=$(timeout 30 "$run" -n 2 bash -c "exec env LOCAL_RANK=0 '$dir/examples/all_reduce' nccl" 2>&1)
    grep -q 'ranks 0 and 1 both use one GPU' <<<"$out"
    report 'two ranks on one GPU are refused' 0 $? <(cat <<<"$out")
fi
if want cases; then
    for name in moves reductions bool uneven streams coalesced capture capture_legacy groups duration refused; do
        check "case $name, 1 rank" timeout 150 "$run" -n 1 "$dir/bin/nccl_cases" $name
    done
fi
if want two; then
    for name in bool moves reductions uneven messages streams crowded coalesced capture capture_legacy groups duration refused; do
        check "case $name, 2 ranks" timeout 150 "$run" -n 2 bash -c "$two '$dir/bin/nccl_cases' $name"
    done
fi
if want staged; then # through host memory: everything, and the operations that NCCL does not have
    for name in moves reductions bool uneven messages coalesced groups bitwise beyond_nccl large in_order message_order \
        staged_streams staged_refused; do
        for n in 1 2; do
            check "cuda:tcp $name, $n" timeout 150 "$run" -n $n bash -c "$two '$dir/bin/nccl_cases' $name cuda:tcp"
        done
    done
    for name in bitwise beyond_nccl mixed staged_refused streams capture; do
        for n in 1 2; do
            check "cuda:nccl|tcp $name, $n" timeout 150 "$run" -n $n bash -c "$two '$dir/bin/nccl_cases' $name 'cuda:nccl|tcp'"
        done
    done
fi
if want eager; then # communicators open with their groups, those of subgroups by ncclCommSplit
    for name in groups coalesced; do
        check "eager $name, 2 ranks" timeout 150 "$run" -n 2 bash -c "export TUTTI_NCCL_EAGER=1; $two '$dir/bin/nccl_cases' $name"
    done
fi
if want windows; then # tutti_alloc's memory is registered as windows
    for name in moves reductions coalesced; do
        for n in 1 2; do
            check "windows $name, $n" timeout 150 "$run" -n $n bash -c "export TUTTI_NCCL_WINDOWS=1; $two '$dir/bin/nccl_cases' $name"
        done
    done
fi
if want shared; then # NCCL 2.30 and newer let ranks share a GPU by themselves
    if "$dir/bin/tutti-run" -n 1 bash -c "TUTTI_LOG=info exec '$dir/bin/nccl_cases' bool" 2>&1 | grep -qE 'NCCL 2\.(3[0-9]|[4-9][0-9])'; then
        for name in moves reductions messages streams groups; do
            check "one GPU shared: $name" timeout 150 "$run" -n 2 bash -c \
                "exec env LOCAL_RANK=0 NCCL_MULTI_RANK_GPU_ENABLE=1 '$dir/bin/nccl_cases' $name"
        done
    else
        echo '-    one GPU shared by NCCL itself: it is older than 2.30'
    fi
fi
if want examples; then
    for expected in "$dir"/expected/*; do
        name=$(basename "$expected") ranks=${expected##*.}
        program=$dir/examples/${name%.*}
        arguments=
        [ "${name%.*}" = train ] && arguments="--data '$dir/examples/data/digits.csv'"
        for backend in nccl cuda:tcp; do
            check "example ${name%.*} $backend, $ranks" same "$expected" "$run" -n "$ranks" bash -c \
                "$two '$program' $backend $arguments"
        done
    done
fi
if want faults; then # prints what was measured, too
    for name in many crowded_reversed full_stream full_stream_late late_in_stream late_async late_coalesced; do
        check "fault $name" timeout 100 "$run" -n 2 bash -c "$two '$dir/bin/nccl_cases' $name"
    done
    for ms in 0 1 3 10 30 100 300; do
        check "fault killed after $ms ms" survives timeout 100 "$run" --on-failure continue -n 2 bash -c \
            "export TUTTI_KILL_MS=$ms; $two '$dir/bin/nccl_cases' killed"
    done
    wait
    for log in "$logs"/fault_*; do
        echo "${log##*/}"
        cut -c1-300 "$log" | sed 's/^/    /'
    done
fi
wait
if want overhead; then
    timeout 150 "$run" -n 1 --no-prefix "$dir/bin/nccl_overhead" $((1 << 30)) 2>&1 | tail -12
    timeout 150 "$run" -n 2 --no-prefix bash -c "$two '$dir/bin/nccl_overhead' $((16 << 20))" 2>&1 | tail -12
fi
if want bench; then
    sizes=--sizes=4,64K,4M,64M
    timeout 100 "$run" -n 1 --no-prefix "$dir/bin/tutti-bench" --backend nccl ${sizes/=/ } 2>&1 | tail -45
    timeout 150 "$run" -n 2 --no-prefix bash -c "$two '$dir/bin/tutti-bench' --backend nccl ${sizes/=/ }" 2>&1 | tail -45
fi
failed=$(wc -l 2>/dev/null <"$logs/failed" || echo 0)
echo "$failed checks failed"
exit $((failed > 0))
