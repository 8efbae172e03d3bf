"""Process groups."""

import ctypes
from ctypes import byref, c_int, c_void_p
from typing import Any, Optional, Sequence

from . import errors
from ._library import GroupOpts, InitOpts, Timeout, check, lib, milliseconds, sized
from .stores import Store


def _text(value: Optional[str]) -> Optional[bytes]:
    return None if value is None else value.encode()


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")


class Group:
    """A process group as this rank sees it.  As a context manager it is destroyed at the end of the block."""

    def __init__(self, handle: c_void_p, keep: Any = None) -> None:
        self._handle: Optional[c_void_p] = handle
        self._keep = keep

    @property
    def rank(self) -> int:
        """This rank's number in the group; -1 if it is not a member."""
        return int(lib.tutti_get_rank(handle_of(self)))

    @property
    def size(self) -> int:
        """The number of ranks; -1 if this rank is not a member."""
        return int(lib.tutti_get_world_size(handle_of(self)))

    @property
    def name(self) -> str:
        return _decoded(lib.tutti_get_name(handle_of(self)))

    @property
    def backend(self) -> str:
        """Its backends as a map, "cpu:tcp"."""
        return _decoded(lib.tutti_get_backend(handle_of(self)))

    def destroy(self) -> None:
        """Destroys the group.  Does nothing the second time."""
        handle, self._handle = self._handle, None
        if handle:
            check(lib.tutti_destroy_process_group(handle))

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


def handle_of(group: Optional[Group]) -> Optional[c_void_p]:
    if group is None:
        return None
    if group._handle is None:
        raise errors.InvalidArgument("the group has been destroyed")
    return group._handle


class World:
    """What init_process_group returns, for `with`: the default group is destroyed at the end of the block."""

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        if is_initialized():
            destroy_process_group()


_store_of_world: Optional[Store] = None


def init_process_group(
    backend: Optional[str] = None,
    init_method: Optional[str] = None,
    *,
    rank: int = 0,
    world_size: int = 0,
    store: Optional[Store] = None,
    timeout: Timeout = None,
) -> World:
    """Makes the default group.  Returns when all ranks have joined.

    backend is "tcp", "mpi", "nccl", a map as "cpu:tcp,cuda:nccl", or None for the best one.  Without the other arguments
    the ranks meet by the launcher's variables (tutti-run, torchrun, mpirun, srun)."""
    global _store_of_world
    opts = InitOpts(_text(init_method), store._handle if store else None, rank, world_size, milliseconds(timeout))
    check(lib.tutti_init_process_group_sized(_text(backend), *sized(opts)))
    _store_of_world = store  # borrowed by the group
    return World()


def destroy_process_group(group: Optional[Group] = None) -> None:
    """Destroys a group, or the default group and all made from it."""
    global _store_of_world
    if group is not None:
        group.destroy()
        return
    check(lib.tutti_destroy_process_group(None))
    _store_of_world = None


def is_initialized() -> bool:
    return bool(lib.tutti_is_initialized())


def is_backend_available(name: str) -> bool:
    return bool(lib.tutti_is_backend_available(name.encode()))


def abort(reason: str = "", group: Optional[Group] = None) -> None:
    """Fails all operations of the group on every rank with Aborted."""
    check(lib.tutti_abort(handle_of(group), reason.encode()))


def get_rank(group: Optional[Group] = None) -> int:
    return int(lib.tutti_get_rank(handle_of(group)))


def get_world_size(group: Optional[Group] = None) -> int:
    return int(lib.tutti_get_world_size(handle_of(group)))


def get_local_rank() -> int:
    return int(lib.tutti_get_local_rank())


def get_local_world_size() -> int:
    return int(lib.tutti_get_local_world_size())


def get_backend(group: Optional[Group] = None) -> str:
    return _decoded(lib.tutti_get_backend(handle_of(group)))


def get_global_rank(group: Group, rank: int) -> int:
    """Returns the global rank of a rank of the group, or -1."""
    return int(lib.tutti_get_global_rank(handle_of(group), rank))


def get_group_rank(group: Group, rank: int) -> int:
    """Returns the rank in the group of a global rank, or -1."""
    return int(lib.tutti_get_group_rank(handle_of(group), rank))


def get_host(rank: int, group: Optional[Group] = None) -> int:
    """Returns the number of the host of a rank of the group, from 0; -1 if the backend does not know it."""
    return int(lib.tutti_get_host(handle_of(group), rank))


def describe(group: Optional[Group] = None) -> str:
    """Describes what the backends of a group use: addresses, providers, how each rank is reached."""
    text = ctypes.create_string_buffer(65536)
    check(lib.tutti_describe_group(handle_of(group), text, len(text)))
    return text.value.decode(errors="replace")


def _group_opts(
    backend: Optional[str], parent: Optional[Group], timeout: Timeout, members_only: bool, name: Optional[str]
) -> GroupOpts:
    return GroupOpts(_text(backend), handle_of(parent), milliseconds(timeout), members_only, False, _text(name))


def new_group(
    ranks: Sequence[int],
    *,
    backend: Optional[str] = None,
    parent: Optional[Group] = None,
    timeout: Timeout = None,
    members_only: bool = False,
    name: Optional[str] = None,
) -> Group:
    """Makes a group of the given global ranks, in their order.  All ranks of the parent call it, unless members_only."""
    opts = _group_opts(backend, parent, timeout, members_only, name)
    handle, numbers = c_void_p(), (c_int * len(ranks))(*ranks)
    check(lib.tutti_new_group_sized(numbers, len(ranks), *sized(opts), byref(handle)))
    return Group(handle)


def split_group(color: int, key: int = 0, *, parent: Optional[Group] = None, timeout: Timeout = None) -> Group:
    """Makes one group for each color, ordered by key and rank.  A negative color joins none: its rank is -1."""
    opts, handle = _group_opts(None, parent, timeout, False, None), c_void_p()
    check(lib.tutti_split_group_sized(color, key, *sized(opts), byref(handle)))
    return Group(handle)


def create_group(backend: Optional[str], store: Store, rank: int, world_size: int, *, timeout: Timeout = None) -> Group:
    """Makes a group of the callers that share a store, apart from the default group."""
    opts, handle = _group_opts(None, None, timeout, False, None), c_void_p()
    check(lib.tutti_create_group_sized(_text(backend), store._handle, rank, world_size, *sized(opts), byref(handle)))
    return Group(handle, keep=store)


def shrink_group(group: Optional[Group] = None) -> Group:
    """Makes a group of the survivors after a failure.  Every survivor calls it."""
    handle = c_void_p()
    check(lib.tutti_shrink_group(handle_of(group), byref(handle)))
    return Group(handle)
