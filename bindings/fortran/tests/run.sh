#!/bin/bash
# Tests the Fortran module on a build: the constants against the C headers, the calls on 2 to 4 ranks, the examples,
# and a program that is compiled against an installation.
#
#   bindings/fortran/tests/run.sh BUILD
set -euo pipefail
build=$(realpath "$1") source=$(realpath "$(dirname "$0")/../../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run=("$build/bin/tutti-run" --no-prefix --timeout 60)

fail() {
    echo "FAILED: $1"
    cat "$work/out"
    exit 1
}

"$build/fortran/headers" >"$work/headers"
"$build/fortran/constants" >"$work/module"
diff "$work/headers" "$work/module" >"$work/out" || fail "the module's constants (>) differ from the headers' (<)"

for ranks in 2 3 4; do
    "${run[@]}" -n $ranks "$build/fortran/values" >"$work/out" 2>&1 || fail "values on $ranks ranks"
done
"${run[@]}" -n 2 "$build/fortran/errors" >"$work/out" 2>&1 || fail errors
[[ $(grep -c '^all errors seen$' "$work/out") == 2 ]] || fail "errors: the output"
"$build/fortran/errors" spawn >"$work/out" 2>&1 || fail spawn
"${run[@]}" -n 2 "$build/fortran/errors" stop >"$work/out" 2>&1 && fail "an error without stat did not end the program"
grep -q 'tutti_broadcast: TUTTI_ERR_INVALID_ARGUMENT: .*99' "$work/out" || fail "an error without stat: the message"

"${run[@]}" -n 3 "$build/fortran/hello" >"$work/out" 2>&1 || fail hello
grep -qx 'Hello from rank 2 out of 3 processes!' "$work/out" || fail "hello: the output"
"${run[@]}" -n 4 "$build/fortran/minloc" >"$work/out" 2>&1 || fail minloc
grep -qx 'rank 2 has the smallest loss, 0.25' "$work/out" || fail "minloc: the output"
for ranks in 1 4; do
    "${run[@]}" -n $ranks "$build/fortran/heat" >"$work/heat$ranks" 2>&1 || fail "heat on $ranks ranks"
done
diff "$work/heat1" "$work/heat4" >"$work/out" || fail "heat on 1 and 4 ranks"

# As a user does, from docs/fortran.md.
cmake --install "$build" --prefix "$work/installed" >"$work/out"
PKG_CONFIG_PATH=$(dirname "$(find "$work/installed" -name tutti_fortran.pc)")
export PKG_CONFIG_PATH
lib=$(pkg-config --variable=libdir tutti_fortran)
awk '/^```fortran$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$source/docs/fortran.md" >"$work/program.f90"
cd "$work"
# shellcheck disable=SC2046
gfortran program.f90 $(pkg-config --cflags --libs tutti_fortran) "-Wl,-rpath,$lib" -o program >"$work/out" 2>&1 ||
    fail "the program of docs/fortran.md does not compile"
"$work/installed/bin/tutti-run" --no-prefix -n 4 ./program >"$work/out" 2>&1 || fail "the program of docs/fortran.md"
grep -q '^pi is 3.14159265' "$work/out" || fail "the program of docs/fortran.md: the output"
echo "all tests of the Fortran module passed"
