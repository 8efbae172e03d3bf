"""Every operation of the backend, against Gloo or against its definition, and what it refuses."""

import datetime
import gc
import os
import signal
import threading
import time
import unittest

import torch
import torch.distributed as dist

import tutti_torch
from ranks import run
from tutti_torch import torch_range

DTYPES = [
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX
SIZES = [0, 1, 7, 1000, 100_000]


def start(seconds=60):
    dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=seconds))


def values(rank, n, dtype):
    """Small integers, whose sums and products are exact in every dtype."""
    return ((torch.arange(n) * 7 + rank * 3) % 5).to(dtype)


def expect_error(kind, words, call):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), f"{error!r} lacks one of {words}"
        return
    raise AssertionError(f"no {kind.__name__} with {words}")


# ---- operations -----------------------------------------------------------------------------------------------------


def check_like_gloo(rank, size):
    """Runs each operation on both backends.  The results must be equal."""
    start()
    gloo = dist.new_group(backend="gloo")
    tutti = dist.group.WORLD

    def both(call):
        ours, theirs = call(tutti), call(gloo)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            assert a.dtype == b.dtype and torch.equal(a, b), f"{a} is not {b}"

    def in_place(operation):
        def call(group):
            x = values(rank, n, dtype)
            operation(x, group)
            return [x]

        return call

    def gather(group, root):
        outs = [torch.zeros(n, dtype=dtype) for _ in range(size)]
        dist.gather(values(rank, n, dtype), outs if rank == root else None, root, group=group)
        return outs

    def scatter(group, root):
        out = torch.zeros(n, dtype=dtype)
        ins = [values(r, n, dtype) for r in range(size)]
        dist.scatter(out, ins if rank == root else None, root, group=group)
        return [out]

    def all_gather(group):
        outs = [torch.zeros(n, dtype=dtype) for _ in range(size)]
        dist.all_gather(outs, values(rank, n, dtype), group=group)
        return outs

    def all_gather_single(group):
        out = torch.zeros(n * size, dtype=dtype)
        dist.all_gather_into_tensor(out, values(rank, n, dtype), group=group)
        return [out]

    def all_to_all_single(group):
        out = torch.zeros(n * size, dtype=dtype)
        dist.all_to_all_single(out, values(rank, n * size, dtype), group=group)
        return [out]

    for dtype in DTYPES:
        for n in SIZES:
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
                both(in_place(lambda x, g: dist.all_reduce(x, op, group=g)))
            for root in (0, size - 1):
                both(in_place(lambda x, g: dist.broadcast(x, root, group=g)))
                both(lambda g: gather(g, root))
                both(lambda g: scatter(g, root))
            both(all_gather)
            both(all_gather_single)
            both(all_to_all_single)
    dist.destroy_process_group()


def check_by_definition(rank, size):
    """Operations that Gloo lacks, or that it does otherwise."""
    start()
    everyone = [values(r, 12, torch.float32) for r in range(size)]
    total = torch.stack(everyone).sum(0)

    x = everyone[rank].clone()
    dist.all_reduce(x, dist.ReduceOp.AVG)
    torch.testing.assert_close(x, total / size)
    x = everyone[rank].clone()
    dist.reduce(x, 0)
    assert torch.equal(x, total if rank == 0 else everyone[rank])

    out = torch.zeros(5)
    dist.reduce_scatter(out, [values(rank, 5, torch.float32) + r for r in range(size)])
    assert torch.equal(out, sum(values(r, 5, torch.float32) + rank for r in range(size)))
    out = torch.zeros(4)
    dist.reduce_scatter_tensor(out, torch.arange(4.0 * size))
    assert torch.equal(out, size * torch.arange(4.0 * rank, 4.0 * rank + 4))

    outs = [torch.zeros(r + 1) for r in range(size)]  # uneven
    dist.all_gather(outs, torch.full((rank + 1,), float(rank)))
    assert all(torch.equal(outs[r], torch.full((r + 1,), float(r))) for r in range(size))
    outs = [torch.zeros(2, 3) for _ in range(size)]
    dist.all_to_all(outs, [torch.full((2, 3), float(rank * size + r)) for r in range(size)])
    assert all(torch.equal(outs[r], torch.full((2, 3), float(r * size + rank))) for r in range(size))

    splits = [r + 1 for r in range(size)]  # rows for each rank
    out = torch.zeros(size * (rank + 1), 2)
    dist.all_to_all_single(out, torch.full((sum(splits), 2), float(rank)), [rank + 1] * size, splits)
    assert torch.equal(out, torch.arange(float(size)).repeat_interleave(rank + 1)[:, None].expand(-1, 2))

    flag = torch.tensor([rank == 1])
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    assert flag.item()
    c = torch.tensor([complex(rank, 1)])
    dist.all_reduce(c)
    assert c.item() == complex(size * (size - 1) / 2, size)
    dist.barrier()
    dist.group.WORLD.monitored_barrier()  # with torch 2.13 dist's function is for gloo alone
    if torch_range.found(torch.__version__) > (2, 13):
        dist.monitored_barrier()
    dist.destroy_process_group()


def check_coalesced(rank, size):
    start()
    xs = [torch.full((i + 1,), float(rank)) for i in range(5)]
    dist.all_reduce_coalesced(xs)
    assert all(torch.equal(x, torch.full((i + 1,), size * (size - 1) / 2)) for i, x in enumerate(xs))
    with dist._coalescing_manager(async_ops=True) as manager:
        outs = [torch.zeros(3 * size) for _ in range(4)]
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, torch.full((3,), float(rank + i)))
    manager.wait()
    for i, out in enumerate(outs):
        assert torch.equal(out, torch.arange(float(size)).repeat_interleave(3) + i)
    with dist._coalescing_manager(async_ops=True) as manager:
        outs = [torch.zeros(2) for _ in range(3)]
        for i, out in enumerate(outs):
            dist.reduce_scatter_tensor(out, torch.full((2 * size,), float(i)))
    manager.wait()
    assert all(torch.equal(out, torch.full((2,), float(i * size))) for i, out in enumerate(outs))
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), rank + 0.5)])
    for r, (a, b) in enumerate(lists):
        assert torch.equal(a, torch.full((2,), float(r))) and torch.equal(b, torch.full((3,), r + 0.5))
    dist.destroy_process_group()


def check_sparse(rank, size):
    start()
    indices = torch.tensor([[rank, rank + 1, 0]])
    x = torch.sparse_coo_tensor(indices, torch.ones(3, 2), (size + 1, 2))
    dense = sum(
        torch.sparse_coo_tensor([[r, r + 1, 0]], torch.ones(3, 2), (size + 1, 2)).to_dense() for r in range(size)
    )
    y = x.clone()
    dist.all_reduce(x)
    assert torch.equal(x.to_dense(), dense)
    work = dist.all_reduce(y, async_op=True)
    assert torch.equal(work.get_future().wait()[0].to_dense(), dense)
    work.wait()
    assert work.is_completed() and torch.equal(work.result()[0].to_dense(), dense)
    empty = [torch.sparse_coo_tensor(torch.zeros(1, 0), torch.zeros(0), (3,)) for _ in range(50)]
    works = [dist.all_reduce(e, async_op=True) for e in empty]  # several at once
    for e, work in zip(empty, works):
        work.wait()
        assert e._nnz() == 0
    dist.destroy_process_group()


def check_sparse_async(rank, size):
    """The call returns before other ranks have made theirs, and other collectives may follow."""
    start()
    x = torch.sparse_coo_tensor([[rank]], [1.0], (size,))
    go = torch.zeros(1)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        dist.send(go, 1)
    else:
        dist.recv(go, rank - 1)  # would wait for ever if rank 0 waited in all_reduce
        dist.send(go, rank + 1) if rank + 1 < size else None
        work = dist.all_reduce(x, async_op=True)
    y = torch.ones(1)
    dist.all_reduce(y)
    work.wait()
    assert y.item() == size and torch.equal(x.to_dense(), torch.ones(size))
    x = torch.sparse_coo_tensor([[0]], [1.0], (size + (rank == 1),))
    expect_error(dist.DistBackendError, ["all_reduce of sparse", "rank 1"], lambda: dist.all_reduce(x))
    dist.destroy_process_group()


def check_objects(rank, size):
    start()
    got = [None] * size
    dist.all_gather_object(got, {"rank": rank, "text": "x" * rank * 1000})
    assert [o["rank"] for o in got] == list(range(size)) and len(got[-1]["text"]) == (size - 1) * 1000
    box = [("from", 1)] if rank == 1 else [None]
    dist.broadcast_object_list(box, 1)
    assert box == [("from", 1)]
    out = [None]
    dist.scatter_object_list(out, list(range(size)) if rank == 0 else None, 0)
    assert out == [rank]
    got = [None] * size if rank == 0 else None
    dist.gather_object(rank, got, 0)
    assert rank != 0 or got == list(range(size))
    dist.destroy_process_group()


def check_messages(rank, size):
    start()
    to, source = (rank + 1) % size, (rank - 1) % size
    y = torch.zeros(4)
    ops = [dist.P2POp(dist.isend, torch.full((4,), float(rank)), to), dist.P2POp(dist.irecv, y, source)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(y, torch.full((4,), float(source)))
    for n in (1, 1 << 20):
        sending = dist.isend(torch.full((n,), float(rank)), to, tag=5)
        y = torch.zeros(n)
        dist.recv(y, source, tag=5)
        sending.wait()
        assert torch.equal(y, torch.full((n,), float(source)))
    if rank == 0:  # from any source
        seen = []
        for _ in range(size - 1):
            seen.append(dist.recv(y := torch.zeros(1)))
            assert y.item() == seen[-1]
        assert sorted(seen) == list(range(1, size))
    else:
        dist.send(torch.tensor([float(rank)]), 0)
    dist.destroy_process_group()


def check_groups(rank, size):
    start()
    evens, odds = list(range(0, size, 2)), list(range(1, size, 2))
    a, b = dist.new_group(evens), dist.new_group(odds)
    mine, members = (a, evens) if rank % 2 == 0 else (b, odds)
    x = torch.tensor([float(rank)])
    dist.all_reduce(x, group=mine)
    assert x.item() == sum(members)
    x = torch.tensor([float(rank)])
    dist.broadcast(x, members[-1], group=mine)  # a global rank
    assert x.item() == members[-1]
    for _ in range(20):
        group = dist.new_group(use_local_synchronization=True, ranks=members)
        dist.barrier(group)
        dist.destroy_process_group(group)
    before = dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    dist.barrier()
    assert dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group() == before + 1
    assert "rank %d" % rank in tutti_torch.describe()
    dist.destroy_process_group()
    start()  # again, in the same process
    dist.barrier()
    dist.destroy_process_group()


def check_works(rank, size):
    """Futures, dropped Works, profiler events, and calls from several threads."""
    start()
    total = size * (size - 1) / 2
    work = dist.all_reduce(torch.tensor([float(rank)]), async_op=True)
    assert work.get_future().then(lambda f: f.value()[0].item() + 1).wait() == total + 1
    assert work.is_completed() and work.is_success() and work.result()[0].item() == total
    for _ in range(100):  # the tensors outlive the Work
        dist.all_reduce(torch.full((10_000,), 1.0), async_op=True)
    gc.collect()
    dist.barrier()
    groups = [dist.new_group() for _ in range(4)]

    def sum_often(group):
        for _ in range(50):
            x = torch.tensor([float(rank)])
            dist.all_reduce(x, group=group)
            assert x.item() == total

    threads = [threading.Thread(target=sum_often, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.zeros(4))
        dist.all_reduce(torch.zeros(4), async_op=True).wait()
    assert sum(event.name == "tutti:all_reduce" for event in profile.events()) == 2
    dist.destroy_process_group()


def check_workers(rank, size):
    """Forked workers of a DataLoader live beside a group."""
    start()
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
        dist.all_reduce(batch)
    dist.destroy_process_group()


# ---- errors ---------------------------------------------------------------------------------------------------------


def check_refusals(rank, size):
    start()
    expect_error(ValueError, ["not contiguous", "contiguous()"], lambda: dist.all_reduce(torch.zeros(4, 4)[:, :2]))
    expect_error(ValueError, ["meta"], lambda: dist.distributed_c10d._get_default_group()._get_backend(
        torch.device("cpu")).allreduce([torch.zeros(4, device="meta")]))
    short = [4 * size]
    expect_error(ValueError, ["1 split sizes", "ranks"], lambda: dist.all_to_all_single(
        torch.zeros(4 * size), torch.zeros(4 * size), short, short))
    expect_error(NotImplementedError, ["BAND", "float32"], lambda: dist.all_reduce(torch.zeros(1), dist.ReduceOp.BAND))
    x = torch.tensor([1.0])
    dist.all_reduce(x)  # the group is usable after all that
    assert x.item() == size
    dist.destroy_process_group()


def check_mismatch(rank, size):
    """Calls that differ on rank 1.  Each ends its group."""
    start()
    odd = rank == 1
    cases = [
        (["5 elements", "4 elements"], lambda g: dist.all_reduce(torch.zeros(4 + odd), group=g)),
        (["int32", "float32"], lambda g: dist.all_reduce(torch.zeros(4).int() if odd else torch.zeros(4), group=g)),
        (["MAX", "SUM"], lambda g: dist.all_reduce(torch.zeros(4), MAX if odd else SUM, group=g)),
        (["root 0", "root 1"], lambda g: dist.reduce(torch.zeros(4), int(odd), group=g) or dist.barrier(g)),
        (["barrier", "all_reduce"], lambda g: dist.barrier(g) if odd else dist.all_reduce(torch.zeros(4), group=g)),
    ]
    for words, call in cases:
        group = dist.new_group()
        expect_error(dist.DistBackendError, ["rank 1", *words], lambda: call(group))
    dist.destroy_process_group()


def check_timeout(rank, size):
    start(2)
    if rank == 0:
        expect_error(dist.DistBackendError, ["all_reduce", "rank"], lambda: dist.all_reduce(torch.zeros(4)))
    else:
        time.sleep(4)
    dist.destroy_process_group()


def check_killed(rank, size):
    start()
    dist.barrier()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200))
    if rank == size - 1:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def train():
        while True:
            model(torch.randn(4, 200)).sum().backward()

    expect_error(dist.DistBackendError, ["rank %d" % (size - 1), "lost"], train)
    dist.destroy_process_group()


def check_killed_in_backward(rank, size):
    """The last rank dies between the gradients of two layers, while buckets of the others are under way."""
    start()
    layers = [torch.nn.Linear(300, 300) for _ in range(4)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.1)
    model(torch.randn(4, 300)).sum().backward()
    if rank == size - 1:
        layers[1].weight.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
    loss = model(torch.randn(4, 300)).sum()
    expect_error(dist.DistBackendError, ["rank %d" % (size - 1), "lost"], loss.backward)
    expect_error(dist.DistBackendError, ["rank %d" % (size - 1)], lambda: dist.all_reduce(torch.zeros(1)))
    dist.destroy_process_group()


def check_abort(rank, size):
    start()
    work = dist.irecv(torch.zeros(1), (rank + 1) % size)
    time.sleep(0.3 * (rank == 0))
    dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    expect_error(dist.DistBackendError, ["abort"], work.wait)
    dist.destroy_process_group()


class BackendTest(unittest.TestCase):
    def test_like_gloo(self):
        run(3, check_like_gloo)

    def test_by_definition(self):
        for size in (2, 3, 4):
            run(size, check_by_definition)

    def test_coalesced(self):
        run(3, check_coalesced)

    def test_sparse(self):
        run(3, check_sparse)
        run(3, check_sparse_async)

    def test_objects(self):
        run(3, check_objects)

    def test_messages(self):
        run(4, check_messages)

    def test_groups(self):
        run(4, check_groups)

    def test_works(self):
        run(2, check_works)

    def test_workers(self):
        run(2, check_workers)

    def test_refusals(self):
        run(2, check_refusals)

    def test_mismatch(self):
        run(3, check_mismatch)

    def test_timeout(self):
        run(2, check_timeout)

    def test_killed(self):
        run(3, check_killed, may_die={2})

    def test_killed_in_backward(self):
        run(3, check_killed_in_backward, may_die={2})

    def test_abort(self):
        run(2, check_abort)


if __name__ == "__main__":
    unittest.main()
