#!/bin/bash
# The nccl backend on a GPU.
#
#     tests/gpu/run.sh --pack DIR [BUILD]   on the machine that builds: puts the programs, and the libraries that the
#                                           other one may lack, into DIR; BUILD is a build folder (build)
#     tests/gpu/run.sh DIR [PART..]         on the machine with the GPU; PARTs: cases two refuse examples bench overhead
#
# One line a check; at the end how many failed.  The stand-ins of tests/fakes are never used here, but for a
# dry run of this script: TUTTI_GPU_DRY_RUN=1 and their folder in LD_LIBRARY_PATH.
set -u

pack() {
    local dir=$1 build=${2:-build} name ranks
    rm -rf "$dir"
    mkdir -p "$dir/bin" "$dir/lib/tutti" "$dir/examples/data" "$dir/expected"
    cp "$build"/bin/tutti-{run,bench} "$build"/tests/gpu/nccl_{cases,overhead} "$dir/bin"
    cp -P "$build"/lib/libtutti.so* "$dir/lib"
    cp "$build"/lib/tutti/*.so "$dir/lib/tutti"
    for name in hello broadcast gather all_gather scatter reduce_scatter reduce all_reduce all_to_all_single send_recv \
        isend_irecv async_all_reduce; do
        cp "$build/examples/$name" "$dir/examples"
        for ranks in 1 2; do
            [[ $name == send_recv || $name == isend_irecv ]] && [[ $ranks == 1 ]] && continue
            "$build/bin/tutti-run" -n $ranks "$build/examples/$name" tcp 2>/dev/null | grep -v overlap | sort >"$dir/expected/$name.$ranks"
        done
    done
    ldd "$dir"/bin/* "$dir"/lib/*.so "$dir"/lib/tutti/*.so | awk '/libuv|libsodium|libfabric/ {print $3}' | sort -u |
        xargs -r -I{} cp -L {} "$dir/lib"
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
parts=" ${*:-cases two refuse examples bench overhead} "
unset TUTTI_FAKES
# NCCL and the driver where the loader does not look by itself: a Python package's, a mounted folder's.
find_library() {
    ldconfig -p | grep -q "$1" && return
    find / \( -path /proc -o -path /sys \) -prune -o -name "$1" -not -path '*/stubs/*' -not -path '*/fakes/*' -print \
        2>/dev/null | head -1 | xargs -r dirname
}
extra=$( (find_library libcuda.so.1; find_library libnccl.so.2) | sort -u | tr '\n' ':')
export LD_LIBRARY_PATH=$dir/lib:$extra${LD_LIBRARY_PATH:-}
export TUTTI_BACKEND_PATH=$dir/lib/tutti
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
export TUTTI_LOG=${TUTTI_LOG:-warn}
run=$dir/bin/tutti-run
failed=0
# Two ranks on the one GPU, each of which NCCL takes for a host.
two="exec env LOCAL_RANK=0 NCCL_HOSTID=tutti-\$RANK"

check() { # NAME COMMAND..: its output on failure, its last line else
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

same() { # EXPECTED COMMAND..: the sorted output is what the example prints on tcp
    local expected=$1 out
    shift
    out=$(timeout 150 "$@") || return
    diff <(grep -v overlap <<<"$out" | sort) "$expected"
}

want() { [[ $parts == *" $1 "* ]]; }

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
uname -r
TUTTI_LOG=info "$run" -n 1 "$dir/bin/nccl_cases" bool 2>&1 | grep -m1 -o 'nccl: NCCL.*'

if want refuse; then # before anything is set up: NCCL is not reached
    out=$(timeout 30 "$run" -n 2 bash -c "exec env LOCAL_RANK=0 '$dir/examples/all_reduce' nccl" 2>&1)
    if grep -q 'ranks 0 and 1 are both on one GPU' <<<"$out"; then
        echo 'ok   two ranks on one GPU are refused'
    else
        failed=$((failed + 1))
        echo 'FAIL two ranks on one GPU are not refused'
        tail -5 <<<"$out"
    fi
fi
if want cases; then
    for name in moves reductions bool uneven streams coalesced capture groups refused; do
        check "case $name, 1 rank" timeout 150 "$run" -n 1 "$dir/bin/nccl_cases" $name
    done
fi
if want two; then
    for name in bool moves reductions uneven messages streams coalesced capture groups refused; do
        check "case $name, 2 ranks" timeout 150 "$run" -n 2 bash -c "$two '$dir/bin/nccl_cases' $name"
    done
fi
if want examples; then
    for expected in "$dir"/expected/*; do
        name=$(basename "$expected") ranks=${expected##*.}
        program=$dir/examples/${name%.*}
        if [ "$ranks" = 1 ]; then
            check "example ${name%.*}, 1 rank" same "$expected" "$run" -n 1 "$program" nccl
        else
            check "example ${name%.*}, 2 ranks" same "$expected" "$run" -n 2 bash -c "$two '$program' nccl"
        fi
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
