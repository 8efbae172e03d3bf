"""The cases, each run by every rank of a job: ranks.py CASE.  A rank that fails ends with a traceback."""

import array
import gc
import os
import signal
import sys

import numpy as np
import tutti

RANK_ERROR = (tutti.Mismatch, tutti.Aborted)


def collectives(rank, n):
    for dtype in (np.float32, np.float64, np.int32, np.uint8, np.float16, np.complex64):
        x = np.full((3, 5), rank + 1, dtype)
        tutti.all_reduce(x)
        assert (x == n * (n + 1) // 2).all() and x.shape == (3, 5)
    x, out = np.full(4, rank + 1.0), np.empty(4)
    tutti.all_reduce(x, tutti.AVG, out=out)
    assert (out == (n + 1) / 2).all() and (x == rank + 1).all()
    tutti.all_reduce(x, tutti.PREMUL_SUM, factor=0.5)
    assert (x == n * (n + 1) / 4).all()
    x = np.full(4, rank)
    tutti.broadcast(x, 1)
    assert (x == 1).all()
    tutti.scan(x)
    assert (x == rank + 1).all()
    tutti.exscan(x)
    assert rank == 0 or (x == rank * (rank + 1) // 2).all()
    x = np.full(2, rank)
    tutti.reduce(x, n - 1, tutti.MAX)
    assert (x == (n - 1 if rank == n - 1 else rank)).all()

    mine, parts = np.full(rank + 1, rank), [np.empty(r + 1, int) for r in range(n)]
    tutti.all_gather(parts, mine)
    assert all((p == r).all() for r, p in enumerate(parts))
    whole = np.empty(2 * n, int)
    tutti.all_gather_into_tensor(whole, np.full(2, rank))
    assert whole.tolist() == [r for r in range(n) for _ in range(2)]
    parts = [np.empty(r + 1, int) for r in range(n)] if rank == 0 else None
    tutti.gather(mine, parts, 0)
    assert rank != 0 or all((p == r).all() for r, p in enumerate(parts))
    got = np.empty(2, int)
    tutti.scatter(got, [np.full(2, 10 * r) for r in range(n)] if rank == 1 else None, 1)
    assert (got == 10 * rank).all()
    tutti.reduce_scatter(got, [np.full(2, r + rank) for r in range(n)])
    assert (got == n * rank + n * (n - 1) // 2).all()
    tutti.reduce_scatter_tensor(got, np.repeat(np.arange(n), 2))
    assert (got == n * rank).all()
    out = [np.empty(1, int) for _ in range(n)]
    tutti.all_to_all(out, [np.array([100 * rank + r]) for r in range(n)])
    assert [int(o[0]) for o in out] == [100 * r + rank for r in range(n)]
    sizes = [r + 1 for r in range(n)]  # rank r sends r + 1 elements to each
    out = np.empty(sum(sizes), int)
    tutti.all_to_all_single(out, np.full(n * (rank + 1), rank), sizes, [rank + 1] * n)
    assert out.tolist() == [r for r in range(n) for _ in range(r + 1)]
    tutti.barrier()
    tutti.monitored_barrier(timeout=60)


def asynchronous(rank, n):
    works, tensors = [], [np.full(1000, rank + 1.0) for _ in range(20)]
    for x in tensors:
        works.append(tutti.all_reduce(x, async_op=True))
    sequences = [w.sequence for w in works]
    assert sequences == list(range(sequences[0], sequences[0] + 20))
    for work in works:
        work.wait()
    assert works[-1].is_completed() and all((x == n * (n + 1) / 2).all() for x in tensors)
    # a dropped Work keeps the memory of a temporary
    for _ in range(20):
        tutti.all_reduce(np.ones(100_000), async_op=True)
    gc.collect()
    tutti.barrier()
    with tutti.coalescing():
        for x in tensors:
            tutti.broadcast(x, 0)
            tutti.all_reduce(x, tutti.MAX)
    assert (tensors[0] == n * (n + 1) / 2).all()


def messages(rank, n):
    right, left = (rank + 1) % n, (rank - 1) % n
    got = np.empty(70_000)
    send = tutti.isend(np.full(70_000, rank, float), right, tag=3)
    seen = tutti.recv(got, left, tag=3)
    send.wait()
    assert seen == (left, 3, 560_000) and (got == left).all()
    ops = [tutti.P2P(tutti.isend, np.array([rank]), right), tutti.P2P(tutti.irecv, got[:1].view(np.int64), left)]
    works = tutti.batch_isend_irecv(ops)
    assert works[1].wait().source == left and works[0].wait() is None
    assert got[:1].view(np.int64)[0] == left
    with tutti.coalescing():  # keeps temporaries, whose Works are gone
        tutti.isend(np.full(70_000, rank, float), right, tag=4)
        tutti.batch_isend_irecv([tutti.P2P(tutti.isend, np.full(70_000, -rank, float), right, 5)])
        tutti.irecv(got, left, tag=4)
        tutti.irecv(back := np.empty(70_000), left, tag=5)
        gc.collect()
    assert (got == left).all() and (back == -left).all()
    if rank == 0:
        for _ in range(n - 1):
            message = tutti.probe(tag=9)
            box = np.empty(10, np.uint8)
            assert tutti.recv(box, message.source, tag=9, up_to=True).bytes == message.source
        assert tutti.probe(tag=77, wait=False) is None
        assert tutti.recv_bytes(1) == b"of any length"
    else:
        tutti.send(np.zeros(rank, np.uint8), 0, tag=9)
        if rank == 1:
            tutti.send_bytes(b"of any length", 0)
    assert tutti.all_gather_bytes(b"x" * rank) == [b"x" * r for r in range(n)]
    assert tutti.broadcast_bytes(b"hello" if rank == 1 else None, 1) == b"hello"
    found = tutti.gather_bytes(bytes([rank]), 2)
    assert found == ([bytes([r]) for r in range(n)] if rank == 2 else None)
    tutti.barrier()


def groups(rank, n):
    with tutti.new_group([2, 0], name="pair") as pair:
        assert (pair.rank, pair.size) == {0: (1, 2), 2: (0, 2)}.get(rank, (-1, -1))
        if pair.rank >= 0:
            x = np.array([rank])
            tutti.broadcast(x, 2, pair)
            assert x[0] == 2 and tutti.get_global_rank(pair, 0) == 2 and tutti.get_group_rank(pair, 0) == 1
            tutti.broadcast(x, 1, pair, group_rank=True)
            assert tutti.gather_bytes(b"a", 0, pair) == ([b"a", b"a"] if rank == 0 else None)
    odd = tutti.split_group(rank % 2, -rank)
    x = np.array([1])
    tutti.all_reduce(x, group=odd)
    assert x[0] == odd.size == len(range(rank % 2, n, 2))
    odd.destroy()
    odd.destroy()
    for use in (tutti.barrier, lambda group: group.rank, lambda group: group.name):
        try:
            use(odd)
            raise SystemExit("a destroyed group was taken")
        except tutti.InvalidArgument as error:
            assert "destroyed" in str(error)
    assert "tcp" in tutti.get_backend() and tutti.describe() and tutti.get_host(0) == 0


def inputs(rank, n):
    x = array.array("d", [rank, 1])
    tutti.all_reduce(x)
    assert x[1] == n
    raw = bytearray([rank] * 4)
    tutti.broadcast(raw, 1)
    assert raw == bytearray([1] * 4)
    half = np.full(4, 0x3F80, np.uint16)  # 1 in bfloat16
    tutti.all_reduce(tutti.view(half, tutti.BFLOAT16))
    assert (half.astype(np.uint32) << 16).view(np.float32).tolist() == [n] * 4

    class Exporter:  # DLPack alone, as torch's tensors without numpy
        def __init__(self, inner):
            self.inner = inner

        def __dlpack__(self, **options):
            return self.inner.__dlpack__(**options)

    x = np.full(6, 1.0)
    tutti.all_reduce(Exporter(x))
    assert (x == n).all()
    frozen = np.ones(3)
    frozen.flags.writeable = False
    for bad, part in (
        (np.ones((4, 4))[:, 1], "contiguous"),
        (frozen, "writable"),
        (tutti.view(frozen, write=False), "writable"),
        (np.array(["a"]), "dtype"),
        ([1, 2], "no tensor"),
        (Exporter(np.ones((4, 4)).T[:, 1:]), "contiguous"),
        (None, "no tensor"),
    ):
        try:
            tutti.all_reduce(bad)
            raise SystemExit(f"{bad!r} was taken")
        except tutti.InvalidArgument as error:
            assert part in str(error), error
    tutti.all_gather([np.empty(3) for _ in range(n)], frozen)  # an input may be read-only


def torch_tensors(rank, n):
    import torch

    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.complex64, torch.uint8):
        x = torch.full((2, 3), rank + 1).to(dtype)
        tutti.all_reduce(x)
        assert (x == n * (n + 1) // 2).all(), x
    flags = torch.tensor([rank == 0, False])
    tutti.all_reduce(flags, tutti.BOR)
    assert flags.tolist() == [True, False]
    work = tutti.all_reduce(torch.ones(1000), async_op=True)  # the Work keeps the tensor
    gc.collect()
    work.wait()
    parts = list(torch.zeros(n, 4).unbind())
    tutti.all_gather(parts, torch.full((4,), float(rank)))
    assert all((part == r).all() for r, part in enumerate(parts))
    for bad in (torch.ones(4, 4).T[1:], torch.ones(4, requires_grad=True)):
        try:
            tutti.all_reduce(bad)
            raise SystemExit(f"{bad!r} was taken")
        except (tutti.InvalidArgument, BufferError, RuntimeError):
            pass
    tutti.barrier()


def mismatch(rank, n):
    try:
        tutti.all_reduce(np.ones(3 + (rank == 1)))
        raise SystemExit("a mismatch was not seen")
    except RANK_ERROR as error:
        assert "numel" in str(error) or "4" in str(error), error


def killed(rank, n):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which tutti-run sends to the survivors
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        tutti.barrier()
        raise SystemExit("a lost rank was not seen")
    except tutti.PeerLost as error:
        assert isinstance(error, ConnectionError) and "rank 1" in str(error)
        print("survived", flush=True)


def late(rank, n):
    if rank == 0:
        try:
            tutti.recv(np.empty(1), 1, timeout=0.2)
            raise SystemExit("no timeout")
        except tutti.Timeout as error:
            assert isinstance(error, TimeoutError)
        work = tutti.irecv(np.empty(1), 1, tag=5)
        try:
            work.wait(0.05)
            raise SystemExit("no timeout of the wait")
        except tutti.Timeout:
            assert not work.is_completed()
    tutti.barrier()
    if rank == 1:
        tutti.send(np.ones(1), 0, tag=5)
    if rank == 0:
        assert work.wait().source == 1


def interrupted(rank, n):
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            tutti.recv(np.empty(1), 1)
            raise SystemExit("not interrupted")
        except KeyboardInterrupt:
            pass
    tutti.barrier()


if __name__ == "__main__":
    with tutti.init_process_group("tcp"):
        for case in sys.argv[1:]:
            globals()[case](tutti.get_rank(), tutti.get_world_size())
