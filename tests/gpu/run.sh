#!/bin/bash
# The nccl backend on a GPU.
#
#     tests/gpu/run.sh --pack DIR [BUILD]   on the machine that builds: copies the programs, and libraries that the
#                                           other machine may lack, into DIR.  BUILD is a build folder (build)
#     tests/gpu/run.sh DIR [PART..]         on the machine with the GPU; PARTs: cases two staged eager shared refuse
#                                           examples bench overhead
#
# Prints one line a check, and at the end how many failed.  Only a dry run of this script uses the stand-ins of
# tests/fakes: TUTTI_GPU_DRY_RUN=1 and their folder in LD_LIBRARY_PATH.
set -u

# Removes output of an example that differs between runs.
varies='overlap|seconds|took| s$'

pack() {
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
            "$build/bin/tutti-run" -n $ranks "$build/examples/$name" tcp 2>/dev/null | grep -Ev "$varies" | sort >"$dir/expected/$name.$ranks"
        done
    done
    cp "$(dirname "$0")/../../examples/data/digits.csv" "$dir/examples/data"
    # tcp loads libfabric by its name, and only for other hosts, so it is not needed here
    ldd "$dir"/bin/* "$dir"/lib/*.so "$dir"/lib/tutti/*.so | awk '/libuv|libsodium/ {print $3}' | sort -u |
        xargs -r -I{} cp -L {} "$dir/lib"
    cp "$0" "$dir/run.sh"
    strip --strip-debug "$dir"/bin/* "$dir"/examples/* "$dir"/lib/*.so* "$dir"/lib/tutti/*.so 2>/dev/null
    du -sh "$dir"
}

if [ "${1:-}" = --pack ]; then
    shift
    pack "$@"
    exit
fi

dir=$(cd "${1:?a folder made by --pack}" && pwd)
shift
parts=" ${*:-cases two staged eager shared refuse examples bench overhead} "
unset TUTTI_FAKES
# Finds NCCL and the driver outside the loader's folders: in a Python package, in a mounted folder.  Leaves out the
# toolkit's forward-compatibility driver, which fails with another kernel module than its own.
find_library() {
    ldconfig -p | grep -q "$1" && return
    find / \( -path /proc -o -path /sys \) -prune -o -name "$1" -not -path '*/stubs/*' -not -path '*/fakes/*' \
        -not -path '*/compat/*' -print 2>/dev/null | head -1 | xargs -r dirname
}
extra=$( (find_library libcuda.so.1; find_library libnccl.so.2) | sort -u | tr '\n' ':')
export LD_LIBRARY_PATH=$dir/lib:$extra${LD_LIBRARY_PATH:-}
export TUTTI_BACKEND_PATH=$dir/lib/tutti
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
export NCCL_NET=${NCCL_NET:-Socket} # neither InfiniBand nor a cloud's plug-in, because both ranks are on one host
export TUTTI_LOG=${TUTTI_LOG:-warn}
run=$dir/bin/tutti-run
failed=0
# Two ranks share one GPU, and NCCL treats each as a host.
two="exec env LOCAL_RANK=0 NCCL_HOSTID=tutti-\$RANK"

check() { # NAME COMMAND..: prints the output on failure
    local name=$1 out rc begin=$SECONDS
    shift
    out=$("$@" 2>&1)
    rc=$?
    if [ -z "${TUTTI_GPU_DRY_RUN:-}" ] && grep -q FAKE <<<"$out"; then rc="a stand-in was used"; fi
    if [ "$rc" = 0 ]; then
        printf 'ok   %-26s %3d s\n' "$name" $((SECONDS - begin))
    else
        failed=$((failed + 1))
        printf 'FAIL %-26s %3d s, %s\n' "$name" $((SECONDS - begin)) "$rc"
        tail -8 <<<"$out" | cut -c1-400
    fi
}

same() { # EXPECTED COMMAND..: compares the sorted output with that of the example on tcp
    local expected=$1 out
    shift
    out=$(timeout 150 "$@") || return
    diff <(grep -Ev "$varies" <<<"$out" | sort) "$expected"
}

want() { [[ $parts == *" $1 "* ]]; }

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
uname -r
TUTTI_LOG=info "$run" -n 1 "$dir/bin/nccl_cases" bool 2>&1 | grep -m1 -o 'nccl: NCCL.*'

if want refuse; then # refused before NCCL is called
    out=$(timeout 30 "$run" -n 2 bash -c "exec env LOCAL_RANK=0 '$dir/examples/all_reduce' nccl" 2>&1)
    if grep -q 'ranks 0 and 1 both use one GPU' <<<"$out"; then
        echo 'ok   two ranks on one GPU are refused'
    else
        failed=$((failed + 1))
        echo 'FAIL two ranks on one GPU are not refused'
        tail -5 <<<"$out"
    fi
fi
if want cases; then
    for name in moves reductions bool uneven streams coalesced capture capture_legacy groups duration refused; do
        check "case $name, 1 rank" timeout 150 "$run" -n 1 "$dir/bin/nccl_cases" $name
    done
fi
if want two; then
    for name in bool moves reductions uneven messages streams coalesced capture capture_legacy groups duration refused; do
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
if want overhead; then
    timeout 150 "$run" -n 1 --no-prefix "$dir/bin/nccl_overhead" $((1 << 30)) 2>&1 | tail -12
    timeout 150 "$run" -n 2 --no-prefix bash -c "$two '$dir/bin/nccl_overhead' $((16 << 20))" 2>&1 | tail -12
fi
if want bench; then
    sizes=--sizes=4,64K,4M,64M
    timeout 100 "$run" -n 1 --no-prefix "$dir/bin/tutti-bench" --backend nccl ${sizes/=/ } 2>&1 | tail -45
    timeout 150 "$run" -n 2 --no-prefix bash -c "$two '$dir/bin/tutti-bench' --backend nccl ${sizes/=/ }" 2>&1 | tail -45
fi
echo "$failed checks failed"
exit $((failed > 0))
