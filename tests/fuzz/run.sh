#!/bin/bash
# Fuzzes the parsers with clang's libFuzzer, each target for some time, and keeps inputs that reach new code.
#
#   tests/fuzz/run.sh [--seconds N] [--keep] [TARGET ..]
#     --seconds   a target's time (40)
#     --keep      add found inputs to tests/fuzz/corpus, smallest first
#     TUTTI_FUZZ_BUILD   where to build (build-fuzz)
#
# A finding is left as TARGET-crash-HASH in the build folder.  Run the program there with it as its argument.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath -m "${TUTTI_FUZZ_BUILD:-build-fuzz}")
compiler=${CLANG:-$(command -v clang || command -v clang-14)}
seconds=40 keep=0 targets=()
while (($#)); do
    case $1 in
    --seconds) seconds=$2 && shift ;;
    --keep) keep=1 ;;
    *) targets+=("$1") ;;
    esac
    shift
done

CC=$compiler cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS="-Wno-unknown-warning-option" -DCMAKE_C_FLAGS_DEBUG="-g -O1" -DTUTTI_TESTS=OFF \
    -DTUTTI_SANITIZE=fuzzer-no-link,address,undefined >/dev/null
cmake --build "$build" --target tutti_static >/dev/null
read -ra libraries < <(pkg-config --libs libuv libsodium)
"$compiler" -g -O1 -D_GNU_SOURCE -DTUTTI_TEST_DLPACK -std=gnu11 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Iinclude -Icore -Ibackends -Itrain -Itools \
    tests/fuzz/libfuzzer.c tests/fuzz/target*.c train/checkpoint_format.c tools/run/{plan,node_wire,hosts,memory}.c tools/trace/{record,groups}.c backends/tcp/{base/peer_handshake,net/wire,p2p/kinds}.c "$build/core/libtutti_static.a" \
    "${libraries[@]}" -lpthread -ldl -lm -o "$build/fuzz"
((${#targets[@]})) || mapfile -t targets < <(ls tests/fuzz/corpus)

found=0
for target in "${targets[@]}"; do
    work=$build/corpus/$target log=$build/$target.log
    mkdir -p "$work" "tests/fuzz/corpus/$target"
    FUZZ_TARGET=$target "$build/fuzz" -max_total_time="$seconds" -max_len=2048 -rss_limit_mb=1024 -timeout=10 \
        -print_final_stats=1 -artifact_prefix="$build/$target-" "$work" "tests/fuzz/corpus/$target" >"$log" 2>&1 || {
        found=1
        echo "$target: a finding, see $log"
        grep -m 3 -E 'does not hold|ERROR|runtime error' "$log" || true
    }
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions," \
        "$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1) edges"
    if ((keep)); then
        rm -rf "$work.least" && mkdir "$work.least"
        FUZZ_TARGET=$target "$build/fuzz" -merge=1 -max_len=512 "$work.least" "tests/fuzz/corpus/$target" "$work" >>"$log" 2>&1
        # Keeps inputs with names of their own, which were findings once.
        find "tests/fuzz/corpus/$target" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
        # Leaves out the largest: a few KB per target suffice.
        find "$work.least" -type f -printf '%s %p\n' | sort -n | awk '{n += $1} n < 6000 {print $2}' |
            xargs -r cp -t "tests/fuzz/corpus/$target"
    fi
done
exit "$found"
