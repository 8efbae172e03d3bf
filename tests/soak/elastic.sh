#!/bin/sh
# Trains while ranks are killed at random moments and replaced.
#
# usage: tests/soak/elastic.sh BUILD [KILLS [SEED]]
set -eu
build=${1:?usage: $0 BUILD [KILLS [SEED]]}
"$build/tests/test_elastic" "${2:-100}" "${3:-$(date +%s)}"
