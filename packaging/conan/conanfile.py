"""Tutti for Conan 2: conan create packaging/conan

The sources are those of the tree that holds this file.  The libraries that Tutti needs come from the system.
"""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir
from conan.tools.system.package_manager import Apk, Apt, Dnf

# What a build needs and installs.
SOURCES = ("CMakeLists.txt", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
FOLDERS = ("backends", "bindings/fortran", "cmake", "core", "docs", "examples", "include", "portable", "tests/fakes",
           "tools", "train")


class Tutti(ConanFile):
    name = "tutti"
    description = "Process groups and collectives of torch.distributed for C"
    license = "MIT"
    topics = ("collectives", "distributed", "hpc")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"mpi": ["OFF", "auto", "openmpi", "mpich"], "cuda": [True, False]}
    default_options = {"mpi": "OFF", "cuda": False}

    @property
    def _tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._tree, "include", "tutti", "tutti.h"))
        self.version = ".".join(re.findall(r"^#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.M))

    def export_sources(self):
        for file in SOURCES:
            copy(self, file, src=self._tree, dst=self.export_sources_folder)
        for folder in FOLDERS:
            copy(self, f"{folder}/*", src=self._tree, dst=self.export_sources_folder)

    def configure(self):
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")

    def layout(self):
        cmake_layout(self)

    def system_requirements(self):
        Apt(self).install(["libuv1-dev", "libsodium-dev", "libfabric-dev", "uthash-dev", "libhwloc-dev",
                           "libhiredis-dev", "libjansson-dev", "pkg-config"])
        Dnf(self).install(["libuv-devel", "libsodium-devel", "libfabric-devel", "uthash-devel", "hwloc-devel",
                           "hiredis-devel", "jansson-devel", "pkgconf-pkg-config"])
        Apk(self).install(["libuv-dev", "libsodium-dev", "libfabric-dev", "uthash-dev", "hwloc-dev", "hiredis-dev",
                           "jansson-dev", "pkgconf"])

    def generate(self):
        toolchain = CMakeToolchain(self)
        cuda = "ON" if self.options.cuda else "OFF"
        toolchain.cache_variables.update({"TUTTI_TESTS": "OFF", "TUTTI_EXAMPLES": "OFF", "TUTTI_FORTRAN": "OFF",
                                          "TUTTI_MPI": str(self.options.mpi),
                                          "TUTTI_BACKEND_CUDA": cuda, "TUTTI_BACKEND_NCCL": cuda})
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "share"))

    def package_info(self):
        # the installed TuttiConfig.cmake and tutti.pc, so that consumers see the names of the documentation
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "Tutti")]
        self.cpp_info.libs = ["tutti_train", "tutti"]
        self.runenv_info.prepend_path("PATH", os.path.join(self.package_folder, "bin"))
        self.runenv_info.prepend_path("LD_LIBRARY_PATH", os.path.join(self.package_folder, "lib"))
