"""PyTorch's own tests of torch.distributed, which its wheel contains, on the backend tutti.

    test_c10d.py [NAME..]      default: all tests that apply to a backend for CPU tensors

With WORLD_SIZE=8 those run, too, that need eight ranks.

Many tests are for the backend called gloo alone.  So in this program groups of that name are Tutti's.  Tests that need
a GPU, or that are about another backend, skip themselves.  SKIPPED has the others, with the reason.
"""

import collections
import os
import sys
import tempfile
import types
import unittest

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", "4")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import tutti_torch  # noqa: E402, F401


class Kind(type):
    """The type of ProcessGroupGloo, of which each backend is an instance: torch before 2.14 checks that."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, torch._C._distributed_c10d.Backend)


class ProcessGroupGloo(metaclass=Kind):
    """Stands for torch's class of that name, which all paths to a group of Gloo's call, and makes a group of Tutti's."""

    def __new__(cls, store, rank, size, timeout=None, **others):
        options = tutti_torch.Options()
        options._timeout = timeout or dist.distributed_c10d.default_pg_timeout
        return tutti_torch._C.create(store, rank, size, options)


dist.distributed_c10d.ProcessGroupGloo = ProcessGroupGloo
if not hasattr(torch._C._distributed_c10d.Backend, "options"):
    # torch before 2.14 writes the names of a group's ranks into the options of Gloo's class.
    torch._C._distributed_c10d.Backend.options = types.SimpleNamespace()

from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

# Without these the tests run, but do not look for profiler events that begin with "gloo:".
for supported in (distributed_test.PROFILING_SUPPORTED_BACKENDS, distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
    supported.remove(dist.Backend.GLOO)

WORDS = "it expects the words of Gloo's errors"
SKIPPED = {
    "test_ddp_logging_data_cpu": "it expects Gloo's own settings, such as its number of threads",
    "test_barrier_timeout_full_group": WORDS,
    "test_barrier_timeout_global": WORDS,
    "test_barrier_timeout_group": WORDS,
    "test_monitored_barrier_gloo": WORDS,
    "test_monitored_barrier_gloo_rank_0_timeout": WORDS,
    "test_monitored_barrier_gloo_subgroup": WORDS,
}


class C10dTest(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        reason = SKIPPED.get(self._testMethodName)
        if reason:
            self.skipTest(reason)
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


del DistributedTest, TestDistBackend

if __name__ == "__main__":
    torch.set_num_threads(1)
    names = sys.argv[1:]
    loader = unittest.TestLoader()
    tests = loader.loadTestsFromNames([f"C10dTest.{name}" for name in names], sys.modules[__name__]) if names else (
        loader.loadTestsFromTestCase(C10dTest)
    )
    result = unittest.TextTestRunner(verbosity=1).run(tests)
    for reason, n in collections.Counter(reason for _, reason in result.skipped).most_common():
        print(f"skipped {n}: {reason}")
    print(f"{result.testsRun - len(result.skipped)} run, {len(result.skipped)} skipped")
    sys.exit(not result.wasSuccessful())
