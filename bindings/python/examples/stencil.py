"""Halo exchange: the heat equation on a plate whose rows are split over the ranks.

A rank updates the inside of its block while its neighbours' edges are on their way.  The result equals that of one rank
bit for bit.

tutti-run -n 4 python stencil.py"""

from typing import List

import numpy as np
import numpy.typing as npt
import tutti

ROWS, COLUMNS, STEPS = 120, 150, 100
Plate = npt.NDArray[np.float32]


def plate(rows: int, first: int) -> Plate:
    """Makes a cold block with a frame of neighbours' cells.  The plate's upper edge is hot."""
    block = np.zeros((rows + 2, COLUMNS + 2), np.float32)
    if first == 0:
        block[0] = 1
    return block


def update(now: Plate, out: Plate, begin: int, end: int) -> None:
    """Computes the next values of rows [begin, end), counted from 1."""
    rows = slice(begin, end)
    up, down = now[begin - 1 : end - 1, 1:-1], now[begin + 1 : end + 1, 1:-1]
    around = up + down + now[rows, :-2] + now[rows, 2:]
    out[rows, 1:-1] = now[rows, 1:-1] + np.float32(0.9) * (np.float32(0.25) * around - now[rows, 1:-1])


def exchange(block: Plate, rank: int, size: int) -> List[tutti.Work]:
    """Starts to send both edges and to receive the neighbours'.  Rows are contiguous."""
    ops = []
    if rank > 0:
        ops += [tutti.P2P(tutti.isend, block[1], rank - 1), tutti.P2P(tutti.irecv, block[0], rank - 1)]
    if rank < size - 1:
        ops += [tutti.P2P(tutti.isend, block[-2], rank + 1), tutti.P2P(tutti.irecv, block[-1], rank + 1)]
    return tutti.batch_isend_irecv(ops)


def main() -> None:
    rank, size = tutti.get_rank(), tutti.get_world_size()
    first, last = ROWS * rank // size, ROWS * (rank + 1) // size
    now, rows = plate(last - first, first), last - first
    after = now.copy()
    for step in range(1, STEPS + 1):
        works = exchange(now, rank, size)
        update(now, after, 2, rows)
        for work in works:
            work.wait()
        update(now, after, 1, 2)
        update(now, after, rows, rows + 1)
        change = np.abs(after[1:-1] - now[1:-1]).max(keepdims=True)
        now, after = after, now
        if step % 50 == 0:
            tutti.all_reduce(change, tutti.MAX)
            if rank == 0:
                print(f"step {step}: the largest change is {change[0, 0]:.6f}")

    whole = plate(ROWS, 0)  # alone
    other = whole.copy()
    for _ in range(STEPS):
        update(whole, other, 1, ROWS + 1)
        whole, other = other, whole
    differ = np.array([(whole[1 + first : 1 + last, 1:-1] != now[1:-1, 1:-1]).sum()])
    tutti.all_reduce(differ)
    if rank == 0:
        print(f"{differ[0]} of {ROWS * COLUMNS} cells differ from one rank's")


if __name__ == "__main__":
    with tutti.init_process_group("tcp"):
        main()
