#!/bin/bash
# Tests the Python package on a build of Tutti, and its type hints where mypy is.  Needs numpy.
#
#   bindings/python/test.sh BUILD [PYTHON]
set -euo pipefail
build=$(realpath "$1") python=${2:-python3}
cd "$(dirname "$0")"
export TUTTI_LIBRARY=$build/lib/libtutti.so.1 TUTTI_RUN=$build/bin/tutti-run PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1

"$python" -m unittest discover -v tests
if "$python" -m mypy --version >/dev/null 2>&1; then
    "$python" -m mypy --cache-dir=/dev/null --strict tutti examples/hello.py examples/stencil.py examples/pipeline.py
else
    echo "skipped mypy: it is not there"
fi
