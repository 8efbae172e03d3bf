"""Ranks that torchrun or torch.multiprocessing.spawn starts, and elastic jobs."""

import os
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing

import tutti_torch  # noqa: F401
from ranks import free_port

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 120


def start_torchrun(mode, *options, **variables):
    command = [sys.executable, "-m", "torch.distributed.run", "--monitor-interval", "0.1", *options]
    return subprocess.Popen(
        [*command, os.path.join(HERE, "launched.py"), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )


def spawned(rank, size, port):
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    x = torch.tensor([rank + 1.0])
    dist.all_reduce(x)
    assert x.item() == size * (size + 1) / 2
    dist.destroy_process_group()


class LaunchTest(unittest.TestCase):
    def expect(self, job, line, times):
        """Expects that a job succeeds, and how often its ranks print the line."""
        try:
            out, err = job.communicate(timeout=LIMIT_S)
        finally:
            job.kill()
        self.assertEqual(job.returncode, 0, err)
        self.assertEqual(out.splitlines().count(line), times, out + err)

    def test_torchrun(self):
        self.expect(start_torchrun("sum", "--standalone", "--nproc-per-node", "3"), "sum 6 of 3 ranks", 3)

    def test_restart(self):
        options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
        self.expect(start_torchrun("dies_once", *options), "sum 3 of 2 ranks", 2)

    def test_node_leaves(self):
        """Of two nodes one disappears, and the other goes on alone."""
        options = ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "2", "--rdzv-backend", "c10d"]
        options += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "tutti", "--rdzv-conf"]
        conf = "last_call_timeout=10,keep_alive_interval=1,keep_alive_max_attempt=2,is_host="
        stays = start_torchrun("leaves", *options, conf + "true")
        leaves = start_torchrun("leaves", *options, conf + "false", LEAVES="1")
        self.addCleanup(leaves.communicate)
        self.addCleanup(leaves.kill)
        self.expect(stays, "sum 1 of 1 ranks", 1)
        self.assertEqual(leaves.wait(LIMIT_S), -9)

    def test_spawn(self):
        torch.multiprocessing.spawn(spawned, (2, free_port()), nprocs=2)


if __name__ == "__main__":
    unittest.main()
