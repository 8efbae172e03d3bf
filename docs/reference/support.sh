#!/bin/bash
# Writes docs/support.md: what tutti-info --support finds for each backend.  test_tutti_info compares them.
#
#   docs/reference/support.sh BUILD
#
# BUILD has all backends, and the stand-ins for CUDA and NCCL.
set -euo pipefail
build=$(realpath "${1:?the folder of the build}")
page=$(dirname "$0")/../support.md

support() { "$build/bin/tutti-run" --no-prefix "$@" "$build/bin/tutti-info" --support "${backend[@]}"; }

{
    cat <<'TEXT'
# What each backend supports

Backend by operation, dtype and reduce op. `tutti-info --support` finds it by trying each call, and
a test compares this page with what it prints:

    tutti-run -n 2 tutti-info --support [--backend B]

A call that is not supported returns TUTTI_ERR_UNSUPPORTED before anything is sent. In a group with
several backends (`"cuda:nccl|tcp"`, `"cpu:tcp|mpi"`) the next one then does the operation.
`docs/reference/support.sh` writes this page. nccl's part was made on stand-ins for CUDA and NCCL
2.28, of compute capability 8: from 9 on nccl also reduces float8. How its rules differ from the
others' is in [nccl.md](nccl.md).
TEXT
    echo
    backend=()
    support -n 2
    echo
    backend=(--backend mpi)
    support --mpi -n 2
    echo
    backend=(--backend nccl)
    LD_LIBRARY_PATH=$build/tests/fakes support -n 2
} >"$page.new"
mv "$page.new" "$page"
