"""Pipeline parallelism: a network's layers are split over the ranks, and a batch flows through them in micro-batches.

Activations go to the next rank and gradients to the one before.  The gradients equal those of one rank, to rounding.

tutti-run -n 4 python pipeline.py"""

from typing import List, Tuple

import numpy as np
import numpy.typing as npt
import tutti

WIDTH, LAYERS, MICRO, BATCH = 16, 8, 6, 5
Matrix = npt.NDArray[np.float64]


def layers() -> List[Matrix]:
    random = np.random.default_rng(3)
    return [random.normal(size=(WIDTH, WIDTH)) / 4 for _ in range(LAYERS)]


def forward(weights: List[Matrix], x: Matrix) -> List[Matrix]:
    """Returns the input of the first layer and the output of each."""
    values = [x]
    for w in weights:
        values.append(np.tanh(values[-1] @ w))
    return values


def backward(weights: List[Matrix], values: List[Matrix], d: Matrix) -> Tuple[List[Matrix], Matrix]:
    """Returns the gradients of the layers and of the input, for the gradient of the output."""
    gradients = []
    for w, before, after in zip(weights[::-1], values[-2::-1], values[:0:-1]):
        d = d * (1 - after**2)
        gradients.append(before.T @ d)
        d = d @ w.T
    return gradients[::-1], d


def main() -> None:
    rank, size = tutti.get_rank(), tutti.get_world_size()
    mine = layers()[LAYERS * rank // size : LAYERS * (rank + 1) // size]
    batch = np.random.default_rng(4).normal(size=(MICRO, BATCH, WIDTH))
    sums, kept, sends = [np.zeros_like(w) for w in mine], [], []

    for m in range(MICRO):  # all forward passes; a rank works on one while the next rank works on the one before
        x = batch[m].copy()
        if rank > 0:
            tutti.recv(x, rank - 1, tag=m)
        kept.append(forward(mine, x))
        if rank < size - 1:
            sends.append(tutti.isend(kept[-1][-1], rank + 1, tag=m))
    for m in range(MICRO):  # then the backward passes; the loss is half the sum of squares of the output
        d = kept[m][-1].copy()
        if rank < size - 1:
            tutti.recv(d, rank + 1, tag=MICRO + m)
        gradients, d = backward(mine, kept[m], d)
        for total, gradient in zip(sums, gradients):
            total += gradient
        if rank > 0:
            sends.append(tutti.isend(np.ascontiguousarray(d), rank - 1, tag=MICRO + m))
    for send in sends:
        send.wait()

    alone = [np.zeros_like(w) for w in layers()]
    for m in range(MICRO):
        values = forward(layers(), batch[m])
        for total, gradient in zip(alone, backward(layers(), values, values[-1])[0]):
            total += gradient
    expected = alone[LAYERS * rank // size : LAYERS * (rank + 1) // size]
    worst = np.array([max((np.abs(a - b).max() for a, b in zip(sums, expected)), default=0.0)])
    tutti.all_reduce(worst, tutti.MAX)
    if rank == 0:
        print(f"{size} stages: the gradients differ by less than {'1e-12' if worst[0] < 1e-12 else worst[0]}")


if __name__ == "__main__":
    with tutti.init_process_group("tcp"):
        main()
