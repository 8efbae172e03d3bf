"""Builds tutti_torch against an installed libtutti, which pkg-config finds (PKG_CONFIG_PATH)."""

import runpy
import shlex
import subprocess
import sys

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension


def pkg_config(*arguments):
    try:
        found = subprocess.run(["pkg-config", *arguments, "tutti"], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("tutti_torch: pkg-config is missing; install it (Debian: pkg-config)")
    except subprocess.CalledProcessError as error:
        sys.exit(
            "tutti_torch: pkg-config does not find tutti; install libtutti, or set PKG_CONFIG_PATH to the folder of "
            f"tutti.pc\n{error.stderr}"
        )
    return shlex.split(found.stdout)


try:
    runpy.run_path("tutti_torch/torch_range.py")["check"](torch.__version__)
except ImportError as error:
    sys.exit(str(error))
libdir = pkg_config("--variable=libdir")[0]
setup(
    ext_modules=[
        CppExtension(
            "tutti_torch._C",
            [f"csrc/{name}.cc" for name in ("backend", "convert", "module", "sparse", "store", "work")],
            extra_compile_args=["-std=c++20", "-O2", "-g0", "-Wall", *pkg_config("--cflags")],
            extra_link_args=[*pkg_config("--libs"), f"-Wl,-rpath,{libdir}"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
