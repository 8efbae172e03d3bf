"""DistributedDataParallel, FSDP2, ZeroRedundancyOptimizer and DTensor train as they do on Gloo."""

import datetime
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import tutti_torch  # noqa: F401  (registers the backend)
from ranks import run

STEPS = 5


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def train(model, optimizer, rank):
    """Trains on the rank's own data.  Returns the mean losses over all ranks."""
    torch.manual_seed(100 + rank)
    losses = []
    for _ in range(STEPS):
        x, y = torch.randn(16, 32), torch.randint(0, 8, (16,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def data_parallel(rank, hook=None, state=None, bucket_mb=0.01):
    model = DistributedDataParallel(make_model(), bucket_cap_mb=bucket_mb)
    if hook is not None:
        model.register_comm_hook(state() if state else None, hook)
    return train(model, sgd(model), rank)


def fp16_hook(rank):
    return data_parallel(rank, default_hooks.fp16_compress_hook)


def bf16_hook(rank):
    return data_parallel(rank, default_hooks.bf16_compress_hook)


def power_sgd(rank):
    """With one bucket: the hook waits in callbacks, whose order differs between ranks if there are several."""
    return data_parallel(
        rank,
        powerSGD_hook.powerSGD_hook,
        lambda: powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
        bucket_mb=25,
    )


def fully_sharded(rank):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = make_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return train(model, sgd(model), rank)


def zero(rank):
    model = DistributedDataParallel(make_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    return train(model, optimizer, rank)


def tensor_parallel(rank):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(make_model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(model, sgd(model), 0)  # all ranks see the same data


def distributed_tensors(rank):
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("a", "b"))
    torch.manual_seed(7)
    whole = torch.randn(16, 12)
    a = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    product = (a @ a.t()).redistribute(mesh, [Replicate(), Replicate()]).to_local()
    torch.testing.assert_close(product, whole @ whole.t())
    return [product.sum().item()]


def unused_parameters(rank):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.a, self.b = nn.Linear(32, 8), nn.Linear(32, 8)

        def forward(self, x):
            return self.a(x) if x.sum() > 0 else self.b(x)

    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    return train(model, sgd(model), rank)


def joined(rank):
    """Ranks with different numbers of batches."""
    model = DistributedDataParallel(make_model())
    torch.manual_seed(rank)
    with model.join():
        for _ in range(3 + rank):
            model(torch.randn(4, 32)).sum().backward()
    return [sum(p.grad.abs().sum().item() for p in model.parameters())]


def compare(rank, size, way):
    losses = {}
    for backend in ("gloo", "tutti"):
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
        losses[backend] = way(rank)
        dist.destroy_process_group()
    torch.testing.assert_close(losses["tutti"], losses["gloo"], rtol=1e-4, atol=1e-6)


class TrainingTest(unittest.TestCase):
    pass


WAYS = (
    data_parallel,
    fp16_hook,
    bf16_hook,
    power_sgd,
    fully_sharded,
    zero,
    tensor_parallel,
    distributed_tensors,
    unused_parameters,
    joined,
)
for _way in WAYS:
    setattr(TrainingTest, "test_" + _way.__name__, lambda self, way=_way: run(4, compare, way))

if __name__ == "__main__":
    unittest.main()
