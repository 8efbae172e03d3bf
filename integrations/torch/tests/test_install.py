"""What the package says if torch or libtutti is not the one that it needs."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def fails_with(command, words, **options):
    """Runs a command, which must fail.  Its last words must contain `words`, and no signal may end it."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, **options)
    assert done.returncode == 1, f"status {done.returncode}: {done.stdout}"
    last = done.stdout.strip().splitlines()[-1]
    for word in words:
        assert word in last, f"{last!r} lacks {word!r}"


class InstallTest(unittest.TestCase):
    def test_torch_versions(self):
        for version in ("2.12.1", "2.16.0", "3.0.0a0+git1"):
            code = f"import torch; torch.__version__ = {version!r}; import tutti_torch"
            fails_with([sys.executable, "-c", code], ["torch 2.13 to 2.15", f"this is torch {version}"])

    def test_build_with_other_torch(self):
        code = "import torch, runpy; torch.__version__ = '2.12.1'; runpy.run_path('setup.py')"
        fails_with([sys.executable, "-c", code], ["this is torch 2.12.1"], cwd=os.path.dirname(HERE))

    @unittest.skipIf(shutil.which("cc") is None, "cc is missing")
    def test_other_abi(self):
        """A libtutti of another ABI, for which a function stands that says so."""
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "abi.so")
            source = "int tutti_abi_version(void) { return 9999; }"
            subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-o", library, "-"], input=source, text=True, check=True)
            fails_with(
                [sys.executable, "-c", "import tutti_torch"],
                ["was built for ABI", "has ABI 9999", "reinstall"],
                env={**os.environ, "LD_PRELOAD": library},
            )

    def test_library_missing(self):
        """The extension alone, whose libtutti is nowhere."""
        import tutti_torch

        folder = os.path.dirname(tutti_torch.__file__)
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(folder, os.path.join(copy, "tutti_torch"))
            for name in os.listdir(os.path.join(copy, "tutti_torch")):
                if name.endswith(".so"):
                    self.spoil(os.path.join(copy, "tutti_torch", name))
            fails_with(
                [sys.executable, "-c", "import tutti_torch"],
                ["cannot be loaded", "libtutt0.so", "reinstall"],
                env={**os.environ, "PYTHONPATH": copy},
            )

    def spoil(self, path):
        """Makes the extension ask for a library that does not exist."""
        with open(path, "rb") as file:
            content = file.read()
        assert b"libtutti.so" in content
        with open(path, "wb") as file:
            file.write(content.replace(b"libtutti.so", b"libtutt0.so"))


if __name__ == "__main__":
    unittest.main()
