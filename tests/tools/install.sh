#!/bin/bash
# Installs a build into a folder of its own.  Builds the README's program or the plug-in against it, from another
# folder.
#
#   tests/tools/install.sh SOURCE BUILD pkg-config|static|find_package|my_backend
set -euo pipefail
source=$1 build=$2 how=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >"$work/log"
mv "$work/first" "$work/moved" # an installation may be moved
mkdir "$work/program"
awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$source/README.md" >"$work/program/program.c"
cd "$work/program"

with_pkg-config() {
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name tutti.pc)")
    local lib
    lib=$(pkg-config --variable=libdir tutti)
    # shellcheck disable=SC2046
    cc program.c $(pkg-config --cflags --libs tutti) -Wl,-rpath,"$lib" -o program
    [[ -e $(pkg-config --variable=backenddir tutti)/libtutti_tcp.so ]]
    [[ -s $work/moved/share/bash-completion/completions/tutti-run && -s $work/moved/share/zsh/site-functions/_tutti-run ]]
    [[ -s $work/moved/share/fish/vendor_completions.d/tutti-run.fish ]]
}

# Links libtutti.a.  The program loads its backend nevertheless.
with_static() {
    export PKG_CONFIG_PATH TUTTI_BACKEND_PATH
    PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name tutti.pc)")
    TUTTI_BACKEND_PATH=$(pkg-config --variable=backenddir tutti_static)
    # shellcheck disable=SC2046
    cc program.c $(pkg-config --static --cflags --libs tutti_static) -o program
    if readelf -d program | grep libtutti; then return 1; fi
    # no names but the public ones
    nm -g --defined-only "$(pkg-config --variable=libdir tutti_static)"/libtutti*.a |
        awk 'NF == 3 && $3 !~ /^tutti_/ {print; wrong = 1} END {exit wrong}'
}

with_find_package() {
    cat >CMakeLists.txt <<'LISTS'
cmake_minimum_required(VERSION 3.20)
project(program C)
find_package(Tutti 0.2 REQUIRED)
add_executable(program program.c)
target_link_libraries(program Tutti::tutti)
LISTS
    cmake -S . -B . -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" >"$work/log"
    cmake --build . >"$work/log"
}

with_my_backend() {
    cp -r "$source/examples/my_backend" plugin
    cmake -S plugin -B plugin -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" >"$work/log"
    cmake --build plugin >"$work/log"
    "$work/moved/bin/tutti-conformance" --quick --ranks 3 --backend "$PWD/plugin/libtutti_sockets.so" \
        --filter all_gather >"$work/log"
    grep -q '^all  *[1-9][0-9]*  *0  *0 ' "$work/log"
    # Rank 2 has nothing to do and leaves first, which the others must not report as a loss.
    "$work/moved/bin/tutti-run" -n 3 "$build/examples/isend_irecv" "$PWD/plugin/libtutti_sockets.so" >"$work/log" 2>&1 ||
        { cat "$work/log" && exit 1; }
    exit
}

# The manual pages are there if the build made them.
if [[ -e $build/man/made ]]; then
    for page in man1/tutti-run.1 man3/tutti_all_reduce.3 man7/tutti.7; do
        [[ -s $(find "$work/moved" -path "*/man/$page") ]] || { echo "no $page is installed" && exit 1; }
    done
fi

"with_$how" || { cat "$work/log" && exit 1; }
"$work/moved/bin/tutti-run" -n 2 ./program | sort >"$work/out"
diff - "$work/out" <<'EXPECTED'
[0] rank 0 of 2: 0.5 0
[1] rank 1 of 2: 0.5 0
EXPECTED
