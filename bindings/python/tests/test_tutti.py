"""Runs the cases of ranks.py in jobs of tutti-run, and what needs no job.  `python -m unittest` in this folder."""

import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np
import tutti

FOLDER = os.path.dirname(os.path.abspath(__file__))
RUN = os.environ.get("TUTTI_RUN", "tutti-run")


def job(*cases, ranks=4):
    command = [RUN, "-n", str(ranks), "--timeout", "120", sys.executable, os.path.join(FOLDER, "ranks.py"), *cases]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


class Jobs(unittest.TestCase):
    def good(self, *cases, ranks=4):
        done = job(*cases, ranks=ranks)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_values(self):
        self.good("collectives", "asynchronous", "messages", "groups", "inputs")

    def test_waits(self):
        self.good("late", "interrupted", ranks=2)

    def test_mismatch(self):
        self.good("mismatch", ranks=3)

    def test_killed(self):
        done = job("killed", ranks=3)
        self.assertEqual(done.returncode, 128 + 9, done.stdout + done.stderr)
        self.assertIn("survived", done.stdout)

    def test_examples(self):
        for name, part in (
            ("hello.py", "Hello from rank 2 out of 3 processes!"),
            ("tutorial.py", "gathered [0.0, 1.0, 4.0]"),
            ("train.py", "accuracy 9"),
            ("stencil.py", "\n[0] 0 of 18000 cells differ from one rank's"),
            ("pipeline.py", "3 stages: the gradients differ by less than 1e-12"),
        ):
            path = os.path.join(FOLDER, "../examples", name)
            done = subprocess.run([RUN, "-n", "3", sys.executable, path], capture_output=True, text=True, timeout=180)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(part, done.stdout)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not there")
    def test_torch(self):
        self.good("torch_tensors", ranks=2)


class Threads(unittest.TestCase):
    """Ranks as threads of this process, over a store in memory."""

    def test_ranks(self):
        store, sums, kept, barrier = tutti.Store.memory(), {}, {}, threading.Barrier(3)

        def rank_main(rank):
            with tutti.create_group("tcp", store, rank, 3) as group:
                x = np.full(3, rank + 1)
                tutti.all_reduce(x, group=group)
                with tutti.coalescing(group):
                    barrier.wait()  # all threads are inside, and a call keeps its tensors with its own thread's
                    tutti.all_reduce(x, tutti.MAX, group)
                    kept[rank] = len(tutti.operations._coalesced.keep)
                sums[rank] = x.tolist()

        threads = [threading.Thread(target=rank_main, args=(r,)) for r in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sums, {r: [6, 6, 6] for r in range(3)})
        self.assertEqual(kept, {r: 1 for r in range(3)})


class Stores(unittest.TestCase):
    def test_tcp(self):
        token = bytes(range(32))
        with tutti.Store.tcp("127.0.0.1", 0, server=True, token=token) as server:
            with tutti.Store.tcp("127.0.0.1", server.port, token=token) as client:
                client.set("key", b"\0value")
                self.assertEqual(server.get("key"), b"\0value")
                self.assertEqual(client.add("n", 5) + client.add("n", -2), 8)
                self.assertTrue("key" in server and "other" not in server)
                self.assertEqual(client.prefix("p").add("n", 1), 1)
                self.assertTrue(client.delete("key"))
                with self.assertRaises(tutti.Timeout) as caught:
                    client.get("key", timeout=0)
                self.assertIsInstance(caught.exception, TimeoutError)
            with self.assertRaises(tutti.AuthError):
                tutti.Store.tcp("127.0.0.1", server.port, token=bytes(32 * [9]), timeout=5)


class Layout(unittest.TestCase):
    """The structs of _library.py against the compiler's, for the headers that `pkg-config tutti` or INCLUDE name."""

    NAMES = {
        "Device": "tutti_device",
        "Tensor": "tutti_tensor",
        "Bytes": "tutti_bytes",
        "InitOpts": "tutti_init_opts",
        "GroupOpts": "tutti_group_opts",
        "Opts": "tutti_opts",
        "P2POp": "tutti_p2p_op",
        "Message": "tutti_message",
        "StoreOpts": "tutti_store_opts",
    }

    @unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
    def test_structs(self):
        include = os.environ.get("TUTTI_INCLUDE", os.path.join(FOLDER, "../../../include"))
        lines, want = [], []
        for python, name in self.NAMES.items():
            struct = getattr(tutti._library, python)
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            want.append(f"{name} {tutti._library.sizeof(struct)}")
            for field, _ in struct._fields_:
                lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
                want.append(f"{name}.{field} {getattr(struct, field).offset}")
        code = "#include <stddef.h>\n#include <tutti/tutti.h>\nint main(void) {" + "\n".join(lines) + "}"
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "layout")
            subprocess.run(["cc", "-x", "c", "-", "-I", include, "-o", program], input=code, text=True, check=True)
            self.assertEqual(subprocess.check_output([program], text=True).split("\n")[:-1], want)


class Names(unittest.TestCase):
    def test_all(self):
        public = {n for n, v in vars(tutti).items() if not n.startswith("_") and not inspect.ismodule(v)}
        self.assertEqual(set(tutti.__all__), public)


class Calls(unittest.TestCase):
    def test_without_group(self):
        self.assertFalse(tutti.is_initialized())
        self.assertEqual(tutti.get_rank(), -1)
        with self.assertRaises(tutti.InvalidArgument) as caught:
            tutti.barrier()
        self.assertIn("tutti_init_process_group", str(caught.exception))
        with self.assertRaises(tutti.BackendError) as caught:
            tutti.init_process_group("gloo")
        self.assertIn("gloo", str(caught.exception))
        self.assertTrue(tutti.is_backend_available("tcp"))

    def test_timeouts(self):
        found = [tutti._library.milliseconds(s) for s in (None, 0, 0.25, 1e30, float("inf"))]
        self.assertEqual(found, [0, tutti._library.NOW, 250, tutti._library.INFINITE, tutti._library.INFINITE])
        with self.assertRaises(tutti.InvalidArgument):
            tutti._library.milliseconds(-1)

    def test_library(self):
        for value, part in (("/nonexistent.so", "was not found"), (os.environ.get("TUTTI_OTHER_ABI", ""), "has ABI")):
            if not value:
                continue
            done = subprocess.run(
                [sys.executable, "-c", "import tutti"], env={**os.environ, "TUTTI_LIBRARY": value}, capture_output=True
            )
            self.assertIn(part, done.stderr.decode())
            self.assertIn("ImportError", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
