#!/bin/bash
# Tests the Rust crates on a build of Tutti: the declarations against the headers, jobs of 2 to 4 ranks, the examples
# in the documentation, formatting and lints where the tools are.
#
#   bindings/rust/test.sh BUILD
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")"
export TUTTI_LIB_DIR=$build/lib TUTTI_RUN=$build/bin/tutti-run CARGO_TARGET_DIR=$build/rust
export LD_LIBRARY_PATH=$build/lib RUSTFLAGS=-Dwarnings RUSTDOCFLAGS=-Dwarnings CARGO_TERM_COLOR=never

cargo test --offline --quiet
cargo doc --offline --quiet --no-deps
if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; fi
if cargo clippy --version >/dev/null 2>&1; then cargo clippy --offline --quiet --all-targets -- -Dwarnings; fi

# Runs a program on ranks and checks that it prints a line: LINE ARGUMENT..
expect() {
    local want=$1 output
    shift
    output=$("$TUTTI_RUN" --no-prefix --timeout 60 "$@") && grep -qxF "$want" <<<"$output" && return
    echo "$*: did not print: $want"
    echo "$output"
    exit 1
}
examples=$CARGO_TARGET_DIR/debug/examples
expect 'Hello from rank 2 out of 3 processes!' -n 3 "$examples/hello"
expect 'the edge of the largest magnitude is -3' -n 4 "$examples/ring"
expect 'y = 3.000 x + -2.000' -n 4 "$examples/train"
echo "all tests of the Rust crates passed"
