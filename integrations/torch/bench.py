"""Times the backends tutti and gloo, interleaved, in the same processes.

    bench.py [--ranks 2,4] [--repeats N] [--ops all_reduce,..] [--sizes BYTES,..] [--groups]
             [--ddp [--parameters N,..]]

Prints the median time of each, in microseconds, and gloo / tutti.  After a DDP step follows the time of the same step
with a hook that sends nothing, which no backend can go below.  Starts the ranks itself, unless RANK is set, as by
torchrun: then it is one of them.
"""

import argparse
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tests"))

import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401
from ranks import run

SIZES = [4, 64 << 10, 1 << 20, 32 << 20]
PARAMETERS = [100_000, 1_000_000, 5_000_000, 20_000_000]


def all_reduce(n, size, group):
    x = torch.ones(n)
    return lambda: dist.all_reduce(x, group=group)


def broadcast(n, size, group):
    x = torch.ones(n)
    return lambda: dist.broadcast(x, 0, group=group)


def reduce(n, size, group):
    x = torch.ones(n)
    return lambda: dist.reduce(x, 0, group=group)


def all_gather(n, size, group):
    x, out = torch.ones(n), [torch.ones(n) for _ in range(size)]
    return lambda: dist.all_gather(out, x, group=group)


def all_gather_into_tensor(n, size, group):
    x, out = torch.ones(n), torch.ones(n * size)
    return lambda: dist.all_gather_into_tensor(out, x, group=group)


def reduce_scatter_tensor(n, size, group):
    x, out = torch.ones(n * size), torch.ones(n)
    return lambda: dist.reduce_scatter_tensor(out, x, group=group)


def all_to_all_single(n, size, group):
    x, out = torch.ones(n * size), torch.ones(n * size)
    return lambda: dist.all_to_all_single(out, x, group=group)


def gather(n, size, group):
    x, out = torch.ones(n), [torch.ones(n) for _ in range(size)]
    return lambda: dist.gather(x, out if dist.get_rank() == 0 else None, 0, group=group)


def scatter(n, size, group):
    out, x = torch.ones(n), [torch.ones(n) for _ in range(size)]
    return lambda: dist.scatter(out, x if dist.get_rank() == 0 else None, 0, group=group)


def barrier(n, size, group):
    return lambda: dist.barrier(group=group)


def send_recv(n, size, group):
    x = torch.ones(n)

    def there_and_back():
        if dist.get_rank() == 0:
            dist.send(x, 1, group=group)
            dist.recv(x, 1, group=group)
        elif dist.get_rank() == 1:
            dist.recv(x, 0, group=group)
            dist.send(x, 0, group=group)

    return there_and_back


OPS = [
    all_reduce,
    broadcast,
    reduce,
    all_gather,
    all_gather_into_tensor,
    reduce_scatter_tensor,
    all_to_all_single,
    gather,
    scatter,
    send_recv,
    barrier,
]


def time_call(call, seconds):
    """Returns the median time of a call, in microseconds; the number of calls is rank 0's."""
    call()
    begin = time.perf_counter()
    call()
    calls = torch.tensor([max(3, min(500, int(seconds / (time.perf_counter() - begin + 1e-6))))])
    dist.broadcast(calls, 0)
    times = []
    for _ in range(calls.item()):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def compare(rank, make, repeats, seconds, groups):
    """Returns the slowest rank's median of each backend."""
    times = {name: [] for name in groups}
    calls = {name: make(group) for name, group in groups.items()}
    for _ in range(repeats):
        for name in groups:
            mine = torch.tensor([time_call(calls[name], seconds)])
            dist.all_reduce(mine, dist.ReduceOp.MAX)
            times[name].append(mine.item())
    return {name: statistics.median(all) for name, all in times.items()}


def show(rank, size, what, times):
    if rank == 0:
        ours, theirs = times["tutti"], times["gloo"]
        alone = f"  alone {times['alone']:10.1f}" if "alone" in times else ""
        line = f"{size:2d} ranks  {what:40s} tutti {ours:10.1f}  gloo {theirs:10.1f}  {theirs / ours:6.2f}{alone}"
        print(line, flush=True)


def keep_bucket(state, bucket):
    done = torch.futures.Future()
    done.set_result(bucket.buffer().div_(dist.get_world_size()))
    return done


def ddp_step(parameters, group):
    """Returns a step of training by DDP, which averages nothing where the group is None."""
    width = max(8, int((parameters / 4) ** 0.5))
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(4)])
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    if not group:
        model.register_comm_hook(None, keep_bucket)
    x = torch.randn(8, width)

    def step():
        model.zero_grad()
        model(x).sum().backward()

    return step


def make_groups(backend):
    def make():
        made = [dist.new_group(backend=backend) for _ in range(50)]
        for group in made:
            dist.destroy_process_group(group)

    return make


def measure(rank, size, arguments):
    dist.init_process_group("gloo")
    groups = {"tutti": dist.new_group(backend="tutti"), "gloo": dist.new_group(backend="gloo")}
    for op in OPS:
        if arguments.ops and op.__name__ not in arguments.ops.split(","):
            continue
        for bytes in [4] if op is barrier else arguments.sizes:
            times = compare(rank, lambda g: op(bytes // 4, size, g), arguments.repeats, 0.1, groups)
            show(rank, size, f"{op.__name__} {bytes}", times)
    if arguments.ddp:
        for parameters in arguments.parameters:
            times = compare(rank, lambda g: ddp_step(parameters, g), arguments.repeats, 0.5, {**groups, "alone": None})
            show(rank, size, f"DDP step of {parameters} parameters", times)
    if arguments.groups:
        times = {name: time_call(make_groups(name), 0.1) for name in groups}
        show(rank, size, "50 x new_group", times)
    dist.destroy_process_group()


def to_numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ops", default="")
    parser.add_argument("--sizes", type=to_numbers, default=SIZES)
    parser.add_argument("--parameters", type=to_numbers, default=PARAMETERS)
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--groups", action="store_true")
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        measure(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), arguments)
        return
    for size in arguments.ranks.split(","):
        run(int(size), measure, arguments)


if __name__ == "__main__":
    main()
