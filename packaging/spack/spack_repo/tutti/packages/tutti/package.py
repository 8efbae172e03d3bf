# For Spack 1.0 and newer, in an environment:
#   spack repo add packaging/spack/spack_repo/tutti
#   spack add tutti && spack develop --path $PWD tutti@=VERSION && spack install
from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Tutti(CMakePackage):
    """Process groups and collectives of torch.distributed for C. One string chooses the transport: shared memory and
    libfabric, MPI, or NCCL."""

    license("MIT")

    version("0.2.0")

    variant("tcp", default=True, description="The backend for shared memory and libfabric")
    variant("mpi", default=False, description="The backend for MPI")
    variant("nccl", default=False, description="The backend for NCCL, and CUDA tensors on other backends")
    variant("fortran", default=False, description="The Fortran module")
    variant("redis", default=True, description="Stores on a redis server")
    variant("tools", default=True, description="tutti-run --bind and tutti-trace merge")
    variant("static", default=False, description="Static libraries beside the shared ones")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("cmake@3.20:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("uthash", type="build")
    depends_on("libuv")
    depends_on("libsodium")
    # The backend loads it at run time.  The type "link" adds its folder to the backend's search path.
    depends_on("libfabric@1.11: fabrics=tcp", when="+tcp")
    depends_on("hiredis", when="+redis")
    depends_on("hwloc@2.5:", when="+tools")
    depends_on("jansson@2.8:", when="+tools")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+nccl")
    depends_on("nccl@2.19:", when="+nccl")

    def cmake_args(self):
        mpi = "OFF"
        if self.spec.satisfies("+mpi"):
            mpi = "openmpi" if self.spec["mpi"].name == "openmpi" else "mpich"
        return [
            self.define("TUTTI_TESTS", False),
            self.define("TUTTI_EXAMPLES", False),
            self.define_from_variant("TUTTI_FORTRAN", "fortran"),
            self.define("TUTTI_MPI", mpi),
            self.define_from_variant("TUTTI_BACKEND_TCP", "tcp"),
            self.define_from_variant("TUTTI_BACKEND_CUDA", "nccl"),
            self.define_from_variant("TUTTI_BACKEND_NCCL", "nccl"),
            self.define_from_variant("TUTTI_REDIS", "redis"),
            self.define_from_variant("TUTTI_STATIC", "static"),
        ]
