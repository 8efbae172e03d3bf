"""Runs a function in several ranks and reports what each one raised."""

import os
import signal
import socket
import sys
import time
import traceback

import torch
import torch.multiprocessing as mp

LIMIT_S = int(os.environ.get("RANKS_LIMIT_S", "120"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _start(rank, size, port, fn, arguments, errors):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size)
    )
    torch.set_num_threads(1)  # as torchrun does by OMP_NUM_THREADS, which was read before the fork
    try:
        fn(rank, size, *arguments)
    except BaseException:
        errors.put((rank, traceback.format_exc()))
        sys.exit(1)


def run(size, fn, *arguments, may_die=()):
    """Runs fn(rank, size, *arguments) in `size` forked processes.  Ranks in may_die may end by a signal."""
    context = mp.get_context("fork")
    errors = context.SimpleQueue()
    port = free_port()
    ranks = [context.Process(target=_start, args=(r, size, port, fn, arguments, errors)) for r in range(size)]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + LIMIT_S
    for process in ranks:
        process.join(max(0, deadline - time.monotonic()))
    hung = [rank for rank, process in enumerate(ranks) if process.is_alive()]
    for rank in hung:
        os.kill(ranks[rank].pid, signal.SIGKILL)
        ranks[rank].join()
    texts = []
    while not errors.empty():
        texts.append("rank %d: %s" % errors.get())
    assert not texts, "\n".join(texts)
    assert not hung, f"ranks {hung} did not end within {LIMIT_S} s"
    codes = {rank: process.exitcode for rank, process in enumerate(ranks) if rank not in may_die}
    assert not any(codes.values()), f"exit codes {codes}"
