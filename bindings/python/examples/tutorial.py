"""The operations of torch's tutorial "Writing Distributed Applications", one after the other.

tutti-run -n 4 python tutorial.py [tcp|mpi]"""

import sys

import numpy as np
import tutti

with tutti.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "tcp"):
    rank, size = tutti.get_rank(), tutti.get_world_size()
    x = np.zeros(1)

    if rank == 0 and size > 1:  # point to point, blocking
        tutti.send(x + 1, dst=1)
    elif rank == 1:
        tutti.recv(x, src=0)
    if rank == 0 and size > 1:  # and asynchronous
        work = tutti.isend(x + 2, dst=1)
        work.wait()
    elif rank == 1:
        work = tutti.irecv(x, src=0)
        work.wait()
        print(f"rank 1 has {x[0]}")

    x[:] = rank
    tutti.broadcast(x, root=0)
    x[:] = rank
    tutti.all_reduce(x, tutti.SUM)
    print(f"rank {rank}: the sum of ranks is {x[0]}")

    part = np.empty(1)
    tutti.scatter(part, [np.full(1, float(r * r)) for r in range(size)] if rank == 0 else None)
    parts = [np.empty(1) for _ in range(size)]
    tutti.all_gather(parts, part)
    if rank == 0:
        print("gathered", [float(p[0]) for p in parts])
