"""Trains a softmax classifier of handwritten digits on all ranks, with averaged gradients.

tutti-run -n 4 python train.py [DIGITS_CSV]     default: the file of the C examples"""

import os
import sys

import numpy as np
import tutti

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../../../examples/data/digits.csv")
HELD_OUT, BATCH, EPOCHS = 357, 64, 15

rows = np.loadtxt(PATH, delimiter=",", skiprows=0, comments="#")
pixels, labels = rows[:, :-1] / 16, rows[:, -1].astype(int)
order = np.random.default_rng(7).permutation(len(rows))  # the same on every rank
train, held_out = order[:-HELD_OUT], order[-HELD_OUT:]


def scores(weights, x):
    return np.hstack([x, np.ones((len(x), 1))]) @ weights


with tutti.init_process_group("tcp"):
    rank, size = tutti.get_rank(), tutti.get_world_size()
    weights = np.zeros((pixels.shape[1] + 1, 10))
    for epoch in range(EPOCHS):
        for at in range(0, len(train), BATCH):
            mine = train[at : at + BATCH][rank::size]
            z = scores(weights, pixels[mine])
            p = np.exp(z - z.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            p[np.arange(len(mine)), labels[mine]] -= 1
            gradient = np.hstack([pixels[mine], np.ones((len(mine), 1))]).T @ p
            tutti.all_reduce(gradient)
            weights -= 0.5 * gradient / min(BATCH, len(train) - at)
    right = (scores(weights, pixels[held_out]).argmax(1) == labels[held_out]).mean()
    if rank == 0:
        print(f"accuracy {100 * right:.2f} % on {HELD_OUT} held-out rows, {size} ranks")
