"""Process groups and collectives for numpy arrays and DLPack tensors, with torch.distributed's names.

    import numpy, tutti
    with tutti.init_process_group("tcp"):
        x = numpy.full(4, float(tutti.get_rank()))
        tutti.all_reduce(x, tutti.AVG)

Run it with `tutti-run -n 4 python program.py`.  Needs libtutti; see docs/python.md."""

from ._library import lib as _lib
from ._tensors import BFLOAT16, BOOL, COMPLEX64, COMPLEX128, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT16, FLOAT32, FLOAT64
from ._tensors import INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, TensorLike, View, view
from .errors import Aborted, AuthError, BackendError, Error, InvalidArgument, Mismatch, NoMemory, NotFound, PeerLost
from .errors import StoreError, SystemFailure, Timeout, Unsupported
from .groups import Group, World, abort, create_group, describe, destroy_process_group, get_backend, get_global_rank
from .groups import get_group_rank, get_host, get_local_rank, get_local_world_size, get_rank, get_world_size
from .groups import init_process_group, is_backend_available, is_initialized, new_group, shrink_group, split_group
from .operations import ANY_SOURCE, ANY_TAG, AVG, BAND, BOR, BXOR, MAX, MIN, P2P, PREMUL_SUM, PRODUCT, SUM, Received
from .operations import all_gather, all_gather_bytes, all_gather_into_tensor, all_reduce, all_to_all
from .operations import all_to_all_single, barrier, batch_isend_irecv, broadcast, broadcast_bytes, coalescing, exscan
from .operations import gather, gather_bytes, irecv, isend, monitored_barrier, probe, recv, recv_bytes, reduce
from .operations import reduce_scatter, reduce_scatter_tensor, scan, scatter, send, send_bytes
from .stores import Store
from .work import Work

__version__ = _lib.tutti_version().decode()
# fmt: off
__all__ = [  # type checkers read a literal only
    "ANY_SOURCE", "ANY_TAG", "AVG", "Aborted", "AuthError", "BAND", "BFLOAT16", "BOOL", "BOR", "BXOR",
    "BackendError", "COMPLEX128", "COMPLEX64", "Error", "FLOAT16", "FLOAT32", "FLOAT64", "FLOAT8_E4M3FN",
    "FLOAT8_E5M2", "Group", "INT16", "INT32", "INT64", "INT8", "InvalidArgument", "MAX", "MIN", "Mismatch",
    "NoMemory", "NotFound", "P2P", "PREMUL_SUM", "PRODUCT", "PeerLost", "Received", "SUM", "Store", "StoreError",
    "SystemFailure", "TensorLike", "Timeout", "UINT16", "UINT32", "UINT64", "UINT8", "Unsupported", "View", "Work",
    "World", "abort", "all_gather", "all_gather_bytes", "all_gather_into_tensor", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_bytes", "coalescing",
    "create_group", "describe", "destroy_process_group", "exscan", "gather", "gather_bytes", "get_backend",
    "get_global_rank", "get_group_rank", "get_host", "get_local_rank", "get_local_world_size", "get_rank",
    "get_world_size", "init_process_group", "irecv", "is_backend_available", "is_initialized", "isend",
    "monitored_barrier", "new_group", "probe", "recv", "recv_bytes", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scan", "scatter", "send", "send_bytes", "shrink_group", "split_group", "view",
]
# fmt: on
