"""PyTorch's own tests of torch.distributed, which its wheel contains, on the backend tutti.

    test_c10d.py [NAME..]      default: all tests that apply to a backend for CPU tensors

Tests that need a GPU, or that are about another backend, skip themselves.  SKIPPED has the others, with the reason.
"""

import collections
import os
import sys
import tempfile
import unittest

os.environ.setdefault("BACKEND", "tutti")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.common_distributed import DistTestCases  # noqa: E402

import tutti_torch  # noqa: E402, F401

for feature in ("ddp", "plugin"):
    DistTestCases.backend_feature[feature].add("tutti")

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

SKIPPED = {
    "test_ddp_logging_data_cpu": 'it expects the backend\'s name where torch says "custom" of all it does not ship',
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
