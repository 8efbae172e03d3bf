"""Every rank says hello.

tutti-run -n 4 python hello.py [tcp|mpi]"""

import sys

import tutti

with tutti.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "tcp"):
    print(f"Hello from rank {tutti.get_rank()} out of {tutti.get_world_size()} processes!")
