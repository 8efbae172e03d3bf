"""A rank that test_launch.py starts by torchrun.  Its argument says what to do; ranks print "sum S of N ranks" at the end.

    sum           all ranks sum their numbers
    dies_once     rank 1 kills itself in the first attempt
    leaves        the rank whose LEAVES is set kills itself and torchrun on its node
"""

import datetime
import os
import signal
import sys

import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401

torch.set_num_threads(1)
dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.full((1000,), rank + 1.0)
dist.all_reduce(x)
first_attempt = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if sys.argv[1] == "leaves" and "LEAVES" in os.environ:
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "dies_once" and first_attempt and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
# One write, as ranks share a pipe: print writes the end of the line apart where Python does not buffer.
os.write(1, f"sum {x[-1].item():g} of {size} ranks\n".encode())
dist.destroy_process_group()
