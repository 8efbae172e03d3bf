"""libtutti: where it is, its structs, and the signatures of its functions."""

import ctypes
import ctypes.util
import os
import subprocess
from datetime import timedelta
from typing import Any, Dict, Iterator, List, Tuple, Union
from ctypes import POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint16
from ctypes import c_uint64, c_void_p, sizeof

from . import errors

ABI_VERSION = 1  # TUTTI_ABI_VERSION of the headers that this file describes
INFINITE = 2**63 - 1
NOW = -INFINITE
DEFAULT_TIMEOUT = INFINITE - 1

Timeout = Union[float, timedelta, None]  # in seconds; None: the default


class Device(Structure):
    _fields_ = [("type", c_int32), ("index", c_int32)]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("numel", c_int64), ("dtype", c_int), ("device", Device)]


class Bytes(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t)]


class InitOpts(Structure):
    _fields_ = [
        ("init_method", c_char_p),
        ("store", c_void_p),
        ("rank", c_int),
        ("world_size", c_int),
        ("timeout_ms", c_int64),
        ("store_timeout_ms", c_int64),
        ("device", Device),
        ("newcomer", c_bool),
        ("reserved", c_bool * 7),
    ]


class GroupOpts(Structure):
    _fields_ = [
        ("backend", c_char_p),
        ("parent", c_void_p),
        ("timeout_ms", c_int64),
        ("members_only", c_bool),
        ("high_priority", c_bool),
        ("name", c_char_p),
        ("device", Device),
        ("algorithm", c_char_p),
    ]


class Opts(Structure):
    _fields_ = [
        ("group", c_void_p),
        ("async_op", c_void_p),
        ("stream", c_void_p),
        ("timeout_ms", c_int64),
        ("tag", c_int),
        ("group_rank", c_bool),
        ("source", c_void_p),
        ("factor", c_double),
        ("received", c_void_p),
        ("received_tag", c_void_p),
    ]


class P2POp(Structure):
    _fields_ = [("kind", c_int), ("tensor", Tensor), ("peer", c_int), ("tag", c_int), ("source", c_void_p)]


class Message(Structure):
    _fields_ = [("source", c_int), ("tag", c_int), ("bytes", c_int64)]


class StoreOpts(Structure):
    _fields_ = [
        ("timeout_ms", c_int64),
        ("token", c_char_p),
        ("server", c_bool),
        ("insecure", c_bool),
        ("world_size", c_int32),
    ]


_HANDLE = c_void_p
_OPTS: List[Any] = [POINTER(Opts), c_size_t]
_LIST: List[Any] = [POINTER(Tensor), c_int]
_T = Tensor

# name: (result, arguments)
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "tutti_last_error": (c_char_p, []),
    "tutti_version": (c_char_p, []),
    "tutti_init_process_group_sized": (c_int, [c_char_p, POINTER(InitOpts), c_size_t]),
    "tutti_destroy_process_group": (c_int, [_HANDLE]),
    "tutti_is_initialized": (c_bool, []),
    "tutti_is_backend_available": (c_bool, [c_char_p]),
    "tutti_abort": (c_int, [_HANDLE, c_char_p]),
    "tutti_new_group_sized": (c_int, [POINTER(c_int), c_int, POINTER(GroupOpts), c_size_t, POINTER(_HANDLE)]),
    "tutti_split_group_sized": (c_int, [c_int, c_int, POINTER(GroupOpts), c_size_t, POINTER(_HANDLE)]),
    "tutti_create_group_sized": (
        c_int,
        [c_char_p, _HANDLE, c_int, c_int, POINTER(GroupOpts), c_size_t, POINTER(_HANDLE)],
    ),
    "tutti_shrink_group": (c_int, [_HANDLE, POINTER(_HANDLE)]),
    "tutti_get_rank": (c_int, [_HANDLE]),
    "tutti_get_world_size": (c_int, [_HANDLE]),
    "tutti_get_local_rank": (c_int, []),
    "tutti_get_local_world_size": (c_int, []),
    "tutti_get_node_rank": (c_int, []),
    "tutti_get_global_rank": (c_int, [_HANDLE, c_int]),
    "tutti_get_group_rank": (c_int, [_HANDLE, c_int]),
    "tutti_get_name": (c_char_p, [_HANDLE]),
    "tutti_get_backend": (c_char_p, [_HANDLE]),
    "tutti_get_host": (c_int, [_HANDLE, c_int]),
    "tutti_describe_group": (c_int, [_HANDLE, c_char_p, c_size_t]),
    "tutti_broadcast_sized": (c_int, [_T, c_int] + _OPTS),
    "tutti_all_reduce_into_sized": (c_int, [_T, _T, c_int] + _OPTS),
    "tutti_scan_into_sized": (c_int, [_T, _T, c_int] + _OPTS),
    "tutti_exscan_into_sized": (c_int, [_T, _T, c_int] + _OPTS),
    "tutti_reduce_into_sized": (c_int, [_T, _T, c_int, c_int] + _OPTS),
    "tutti_all_gather_sized": (c_int, _LIST + [_T] + _OPTS),
    "tutti_all_gather_into_tensor_sized": (c_int, [_T, _T] + _OPTS),
    "tutti_gather_sized": (c_int, [_T] + _LIST + [c_int] + _OPTS),
    "tutti_gather_into_tensor_sized": (c_int, [_T, _T, c_int] + _OPTS),
    "tutti_scatter_sized": (c_int, [_T] + _LIST + [c_int] + _OPTS),
    "tutti_scatter_tensor_sized": (c_int, [_T, _T, c_int] + _OPTS),
    "tutti_reduce_scatter_sized": (c_int, [_T] + _LIST + [c_int] + _OPTS),
    "tutti_reduce_scatter_tensor_sized": (c_int, [_T, _T, c_int] + _OPTS),
    "tutti_all_to_all_sized": (c_int, [POINTER(Tensor)] + _LIST + _OPTS),
    "tutti_all_to_all_single_sized": (c_int, [_T, _T, POINTER(c_int64), POINTER(c_int64)] + _OPTS),
    "tutti_barrier_sized": (c_int, _OPTS),
    "tutti_monitored_barrier_sized": (c_int, _OPTS),
    "tutti_isend_sized": (c_int, [_T, c_int] + _OPTS + [POINTER(_HANDLE)]),
    "tutti_irecv_sized": (c_int, [_T, c_int] + _OPTS + [POINTER(_HANDLE)]),
    "tutti_batch_isend_irecv_sized": (c_int, [POINTER(P2POp), c_size_t, c_int] + _OPTS + [POINTER(_HANDLE)]),
    "tutti_iprobe_sized": (c_int, [c_int] + _OPTS + [POINTER(c_bool), POINTER(Message)]),
    "tutti_probe_sized": (c_int, [c_int] + _OPTS + [POINTER(Message)]),
    "tutti_coalesce_begin": (c_int, [_HANDLE]),
    "tutti_coalesce_end": (c_int, [_HANDLE, POINTER(_HANDLE)]),
    "tutti_send_bytes_sized": (c_int, [c_char_p, c_size_t, c_int] + _OPTS),
    "tutti_recv_bytes_sized": (c_int, [POINTER(Bytes), c_int] + _OPTS),
    "tutti_all_gather_bytes_sized": (c_int, [POINTER(Bytes), c_int, c_char_p, c_size_t] + _OPTS),
    "tutti_gather_bytes_sized": (c_int, [POINTER(Bytes), c_int, c_char_p, c_size_t, c_int] + _OPTS),
    "tutti_broadcast_bytes_sized": (c_int, [POINTER(Bytes), c_int] + _OPTS),
    "tutti_scatter_bytes_sized": (c_int, [POINTER(Bytes), POINTER(Bytes), c_int, c_int] + _OPTS),
    "tutti_bytes_free": (None, [POINTER(Bytes), c_int]),
    "tutti_work_wait": (c_int, [_HANDLE, c_int64]),
    "tutti_work_is_completed": (c_bool, [_HANDLE]),
    "tutti_work_source": (c_int, [_HANDLE]),
    "tutti_work_tag": (c_int, [_HANDLE]),
    "tutti_work_received": (c_int64, [_HANDLE]),
    "tutti_work_sequence": (c_uint64, [_HANDLE]),
    "tutti_work_free": (None, [_HANDLE]),
    "tutti_get_sequence": (c_uint64, [_HANDLE]),
    "tutti_store_tcp_sized": (c_int, [c_char_p, c_uint16, POINTER(StoreOpts), c_size_t, POINTER(_HANDLE)]),
    "tutti_store_file_sized": (c_int, [c_char_p, POINTER(StoreOpts), c_size_t, POINTER(_HANDLE)]),
    "tutti_store_memory_sized": (c_int, [POINTER(StoreOpts), c_size_t, POINTER(_HANDLE)]),
    "tutti_store_prefix": (c_int, [_HANDLE, c_char_p, POINTER(_HANDLE)]),
    "tutti_store_free": (None, [_HANDLE]),
    "tutti_store_port": (c_uint16, [_HANDLE]),
    "tutti_store_set": (c_int, [_HANDLE, c_char_p, c_char_p, c_size_t]),
    "tutti_store_multi_get": (c_int, [_HANDLE, POINTER(c_char_p), c_int, POINTER(Bytes), c_int64]),
    "tutti_store_add": (c_int, [_HANDLE, c_char_p, c_int64, POINTER(c_int64)]),
    "tutti_store_check": (c_int, [_HANDLE, POINTER(c_char_p), c_int, POINTER(c_bool)]),
    "tutti_store_delete": (c_int, [_HANDLE, c_char_p, POINTER(c_bool)]),
}


def _candidates() -> Iterator[str]:
    """Yields the paths that are tried, in this order."""
    if os.environ.get("TUTTI_LIBRARY"):
        yield os.environ["TUTTI_LIBRARY"]
        return
    try:
        found = subprocess.run(
            ["pkg-config", "--variable=libdir", "tutti"], capture_output=True, text=True, check=True
        ).stdout.strip()
        yield os.path.join(found, f"libtutti.so.{ABI_VERSION}")
    except (OSError, subprocess.CalledProcessError):
        pass
    yield f"libtutti.so.{ABI_VERSION}"


def _load() -> ctypes.CDLL:
    tried = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        library.tutti_abi_version.restype = c_int
        found = library.tutti_abi_version()
        if found != ABI_VERSION:
            raise ImportError(f"{path} has ABI {found}, and this package is for ABI {ABI_VERSION}: install its version")
        return library
    raise ImportError(
        "libtutti was not found; install it and run ldconfig, or set TUTTI_LIBRARY to its path. Tried: "
        + "; ".join(tried)
    )


lib = _load()
for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments


def last_error() -> str:
    text: bytes = lib.tutti_last_error()
    return text.decode(errors="replace")


def check(status: int) -> None:
    """Raises the exception of an error."""
    if status < 0:
        raise errors.of_status(status, last_error())


def sized(options: Structure) -> Tuple[Any, int]:
    """Returns a struct of options as the two arguments of a _sized function."""
    return ctypes.byref(options), sizeof(options)


def milliseconds(timeout: Timeout) -> int:
    """Converts a timeout in seconds, or a timedelta.  None is the default."""
    if timeout is None:
        return 0
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if seconds < 0:
        raise errors.InvalidArgument(f"the timeout is {seconds} s; pass 0 or more, or None for the default")
    if seconds == float("inf"):
        return INFINITE
    return min(int(seconds * 1000), INFINITE) or NOW
