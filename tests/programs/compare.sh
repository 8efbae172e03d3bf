#!/bin/bash
# Times the small programs of this folder over Tutti, Open MPI and MPICH, in turn.  Prints for each the medians of
# REPS runs in us (2 ranks: the median iteration; ranks that share cores: the mean one), the spread of Tutti's, and
# the time of the faster peer / Tutti's: above 1, Tutti is ahead.  A peer that is not installed is left out; MPICH,
# whose ranks never yield, runs where each rank has a core.  Wants a quiet machine; takes about REPS * 15 s.
#
#   tests/programs/compare.sh [BUILD_DIR] [--ranks 2,4,8] [--reps N] [--ms N] [--only NAME]     default: build, 5, 15
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build ranks=2,4,8 reps=5 options=()
while [ $# -gt 0 ]; do
    case $1 in
    --ranks) ranks=$2 ;;
    --reps) reps=$2 ;;
    --ms | --only) options+=("$1" "$2") ;;
    --*) echo "compare.sh: unknown option $1" >&2 && exit 2 ;;
    *) build=$1 && shift && continue ;;
    esac
    shift 2
done
build=$(realpath "$build")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for peer in openmpi mpich; do
    command -v mpicc.$peer >/dev/null || continue
    mpicc.$peer -O3 -w -DPROGRAMS_MPI tests/programs/*.c -o "$work/$peer"
done

# run PEER N COMMAND...: adds lines "PEER NAME N BYTES MEDIAN MEAN"
run() {
    local peer=$1 n=$2
    shift 2
    timeout 300 "$@" ${options[@]+"${options[@]}"} </dev/null 2>"$work/errors" | sed -nE "s/^[a-z_]+ [0-9]/$peer &/p" >>"$work/all" || {
        echo "compare.sh: $peer with $n ranks failed:" && tail -5 "$work/errors"
    } >&2
}

for ((rep = 0; rep < reps; rep++)); do
    for n in ${ranks//,/ }; do
        run tutti "$n" "$build/bin/tutti-run" --no-prefix -n "$n" "$build/tests/programs"
        [ ! -x "$work/openmpi" ] ||
            run openmpi "$n" mpirun.openmpi --allow-run-as-root --oversubscribe -n "$n" "$work/openmpi"
        [ ! -x "$work/mpich" ] || [ "$n" -gt "$(nproc)" ] || run mpich "$n" mpiexec.mpich -n "$n" "$work/mpich"
    done
done

python3 - "$work/all" "$(nproc)" <<'EOP'
import collections, math, statistics, sys

times = collections.defaultdict(list)
for line in open(sys.argv[1]):
    peer, name, ranks, size, middle, mean = line.split()
    alone = int(ranks) <= int(sys.argv[2])
    times[name, int(ranks), int(size), peer].append(float(middle if alone else mean))

form = "%-24s %5s %7s %10s %7s %10s %10s %6s"
print(form % ("program", "ranks", "bytes", "tutti us", "spread", "openmpi", "mpich", "ratio"))
ratios = collections.defaultdict(list)
for (name, ranks, size, peer), own in sorted(times.items()):
    if peer != "tutti":
        continue
    us = statistics.median(own)
    peers = {p: statistics.median(times[name, ranks, size, p]) for p in ("openmpi", "mpich")
             if (name, ranks, size, p) in times}
    if not peers:
        continue
    ratio = min(peers.values()) / us
    ratios[ranks].append(ratio)
    cells = ["%.2f" % peers[p] if p in peers else "-" for p in ("openmpi", "mpich")]
    spread = "%.0f%%" % (100 * (max(own) - min(own)) / us)
    behind = "  behind" if ratio < 0.87 else ""
    print(form % (name, ranks, size, "%.2f" % us, spread, *cells, "%.2f" % ratio) + behind)
every = [r for some in ratios.values() for r in some]
if every:
    mean = lambda values: math.exp(statistics.fmean(map(math.log, values)))
    print("geometric mean %.2f (%s), %d of %d cases behind by more than 15 %%" % (
        mean(every), ", ".join("%d ranks %.2f" % (n, mean(r)) for n, r in sorted(ratios.items())),
        sum(r < 0.87 for r in every), len(every)))
EOP
