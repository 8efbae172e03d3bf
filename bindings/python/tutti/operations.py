"""Collectives and messages.

All functions take `group` (None: the default group), `timeout` in seconds or a timedelta (None: the group's), and those
with async_op return a Work if it is true.  Tensors are what tutti.view takes; their shape does not matter, only the
number of elements.  Ranks (root, src, dst) are global, as in torch, unless group_rank is true."""

import ctypes
import threading
from contextlib import contextmanager
from ctypes import byref, c_bool, c_int64, c_void_p
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import errors
from ._library import Bytes, Message, Opts, P2POp, Tensor, Timeout, check, lib, milliseconds, sized
from ._tensors import TensorLike, view
from .groups import Group, get_world_size, handle_of
from .work import Work

SUM, PRODUCT, MIN, MAX, AVG, PREMUL_SUM, BAND, BOR, BXOR = range(9)
ANY_SOURCE = ANY_TAG = -1
_SEND, _RECV = 10, 11


class Received(NamedTuple):
    """A received message: the sender's rank, the tag, and the size in bytes."""

    source: int
    tag: int
    bytes: int


class _Call:
    """The options of one call, and what must stay in memory until its operation has ended."""

    def __init__(
        self, group: Optional[Group], timeout: Timeout, group_rank: bool = False, tag: int = 0, factor: float = 0.0
    ) -> None:
        self.handle = c_void_p()
        self.opts = Opts(
            group=handle_of(group), timeout_ms=milliseconds(timeout), group_rank=group_rank, tag=tag, factor=factor
        )
        self.opts.async_op = ctypes.addressof(self.handle)
        self.keep: List[Any] = [group]

    def tensor(self, obj: TensorLike, write: bool = False) -> Tensor:
        seen = view(obj, write=write)
        self.keep.append(seen)
        return seen.tensor

    def tensors(self, objects: Optional[Sequence[TensorLike]], write: bool = False) -> Tuple[Any, int]:
        if objects is None:
            return None, 0
        objects = list(objects)
        return (Tensor * len(objects))(*[self.tensor(o, write) for o in objects]), len(objects)

    def keep_queued(self) -> None:
        """Keeps the memory of a call between coalescing() and its end, which starts it."""
        _coalesced.keep.append(self.keep)

    def run(self, function: Any, *arguments: Any, async_op: bool = False) -> Optional[Work]:
        check(function(*arguments, *sized(self.opts)))
        if not self.handle:
            self.keep_queued()
            return None
        work = Work(self.handle, self.keep)
        if async_op:
            return work
        work.wait()
        return None


_coalesced = threading.local()  # .keep: what the calls of this thread's open coalescing() keep


def broadcast(
    tensor: TensorLike,
    root: int = 0,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> Optional[Work]:
    """Copies root's tensor to every rank."""
    call = _Call(group, timeout, group_rank)
    return call.run(lib.tutti_broadcast_sized, call.tensor(tensor, True), root, async_op=async_op)


def _reduction(
    function: Any,
    tensor: TensorLike,
    op: int,
    group: Optional[Group],
    async_op: bool,
    timeout: Timeout,
    factor: float,
    out: Optional[TensorLike],
    *root: int,
    group_rank: bool = False,
) -> Optional[Work]:
    call = _Call(group, timeout, group_rank, factor=factor)
    source = call.tensor(tensor, out is None)
    into = source if out is None else call.tensor(out, True)
    return call.run(function, into, source, *root, op, async_op=async_op)


def all_reduce(
    tensor: TensorLike,
    op: int = SUM,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    out: Optional[TensorLike] = None,
    timeout: Timeout = None,
    factor: float = 0.0,
) -> Optional[Work]:
    """Reduces the tensors of all ranks into every rank's tensor, or into `out`.  `factor` is PREMUL_SUM's."""
    return _reduction(lib.tutti_all_reduce_into_sized, tensor, op, group, async_op, timeout, factor, out)


def scan(
    tensor: TensorLike,
    op: int = SUM,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    out: Optional[TensorLike] = None,
    timeout: Timeout = None,
) -> Optional[Work]:
    """Reduces the tensors of ranks 0 to r into rank r's."""
    return _reduction(lib.tutti_scan_into_sized, tensor, op, group, async_op, timeout, 0.0, out)


def exscan(
    tensor: TensorLike,
    op: int = SUM,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    out: Optional[TensorLike] = None,
    timeout: Timeout = None,
) -> Optional[Work]:
    """Reduces the tensors of ranks 0 to r - 1 into rank r's.  Rank 0's stays as it is."""
    return _reduction(lib.tutti_exscan_into_sized, tensor, op, group, async_op, timeout, 0.0, out)


def reduce(
    tensor: TensorLike,
    root: int = 0,
    op: int = SUM,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    out: Optional[TensorLike] = None,
    timeout: Timeout = None,
    factor: float = 0.0,
    group_rank: bool = False,
) -> Optional[Work]:
    """Reduces the tensors of all ranks into root's."""
    return _reduction(
        lib.tutti_reduce_into_sized, tensor, op, group, async_op, timeout, factor, out, root, group_rank=group_rank
    )


def all_gather(
    out: Sequence[TensorLike],
    tensor: TensorLike,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Optional[Work]:
    """Copies rank r's tensor to out[r] on every rank."""
    call = _Call(group, timeout)
    return call.run(lib.tutti_all_gather_sized, *call.tensors(out, True), call.tensor(tensor), async_op=async_op)


def all_gather_into_tensor(
    out: TensorLike,
    tensor: TensorLike,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Optional[Work]:
    """Copies the tensors of all ranks into consecutive parts of out."""
    call = _Call(group, timeout)
    arguments = call.tensor(out, True), call.tensor(tensor)
    return call.run(lib.tutti_all_gather_into_tensor_sized, *arguments, async_op=async_op)


def gather(
    tensor: TensorLike,
    out: Optional[Sequence[TensorLike]] = None,
    root: int = 0,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> Optional[Work]:
    """Copies rank r's tensor to out[r] on the root.  Other ranks pass no out."""
    call = _Call(group, timeout, group_rank)
    arguments = call.tensor(tensor), *call.tensors(out, True), root
    return call.run(lib.tutti_gather_sized, *arguments, async_op=async_op)


def scatter(
    out: TensorLike,
    tensors: Optional[Sequence[TensorLike]] = None,
    root: int = 0,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> Optional[Work]:
    """Copies root's tensors[r] to rank r's out.  Other ranks pass no tensors."""
    call = _Call(group, timeout, group_rank)
    arguments = call.tensor(out, True), *call.tensors(tensors), root
    return call.run(lib.tutti_scatter_sized, *arguments, async_op=async_op)


def reduce_scatter(
    out: TensorLike,
    tensors: Sequence[TensorLike],
    op: int = SUM,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
    factor: float = 0.0,
) -> Optional[Work]:
    """Reduces tensors[r] of all ranks into rank r's out."""
    call = _Call(group, timeout, factor=factor)
    arguments = call.tensor(out, True), *call.tensors(tensors), op
    return call.run(lib.tutti_reduce_scatter_sized, *arguments, async_op=async_op)


def reduce_scatter_tensor(
    out: TensorLike,
    tensor: TensorLike,
    op: int = SUM,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
    factor: float = 0.0,
) -> Optional[Work]:
    """Reduces consecutive parts of a tensor: rank r gets part r."""
    call = _Call(group, timeout, factor=factor)
    arguments = call.tensor(out, True), call.tensor(tensor), op
    return call.run(lib.tutti_reduce_scatter_tensor_sized, *arguments, async_op=async_op)


def all_to_all(
    out: Sequence[TensorLike],
    tensors: Sequence[TensorLike],
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Optional[Work]:
    """Sends tensors[r] to rank r and receives rank r's part in out[r]."""
    call = _Call(group, timeout)
    outs, n = call.tensors(out, True)
    ins, m = call.tensors(tensors)
    if n != m:
        raise errors.InvalidArgument(f"all_to_all has {n} outputs and {m} inputs; pass one of each for every rank")
    return call.run(lib.tutti_all_to_all_sized, outs, ins, n, async_op=async_op)


def all_to_all_single(
    out: TensorLike,
    tensor: TensorLike,
    out_splits: Optional[Sequence[int]] = None,
    in_splits: Optional[Sequence[int]] = None,
    group: Optional[Group] = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Optional[Work]:
    """Exchanges consecutive parts of one tensor on each side.  Splits are numbers of elements; None: equal parts."""
    call = _Call(group, timeout)
    n = get_world_size(group)
    splits = []
    for name, given in (("out_splits", out_splits), ("in_splits", in_splits)):
        if given is not None and len(given) != n:
            raise errors.InvalidArgument(f"{name} has {len(given)} entries, but the group has {n} ranks")
        splits.append(None if given is None else (c_int64 * n)(*given))
    arguments = call.tensor(out, True), call.tensor(tensor), *splits
    return call.run(lib.tutti_all_to_all_single_sized, *arguments, async_op=async_op)


def barrier(group: Optional[Group] = None, async_op: bool = False, *, timeout: Timeout = None) -> Optional[Work]:
    """Returns once every rank of the group has called it."""
    return _Call(group, timeout).run(lib.tutti_barrier_sized, async_op=async_op)


def monitored_barrier(group: Optional[Group] = None, *, timeout: Timeout = None) -> None:
    """Waits as barrier does.  Its Timeout names the ranks that did not arrive."""
    _Call(group, timeout).run(lib.tutti_monitored_barrier_sized)


# ---- messages ----------------------------------------------------------------------------------------------------


def _message_of(work: Work) -> Received:
    handle = work._handle
    return Received(lib.tutti_work_source(handle), lib.tutti_work_tag(handle), lib.tutti_work_received(handle))


def _start(
    function: Any,
    tensor: TensorLike,
    peer: int,
    tag: int,
    group: Optional[Group],
    timeout: Timeout,
    group_rank: bool,
    up_to: bool = False,
) -> Work:
    call = _Call(group, timeout, group_rank, tag)
    call.opts.async_op = None
    if up_to:
        received = c_int64()
        call.keep.append(received)
        call.opts.received = ctypes.addressof(received)
    receives = function is lib.tutti_irecv_sized
    check(function(call.tensor(tensor, receives), peer, *sized(call.opts), byref(call.handle)))
    if not call.handle:
        call.keep_queued()
    return Work(call.handle, call.keep, _message_of if receives else None)


def isend(
    tensor: TensorLike,
    dst: int,
    group: Optional[Group] = None,
    tag: int = 0,
    *,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> Work:
    """Starts to send.  The tensor must not change until the Work has ended."""
    return _start(lib.tutti_isend_sized, tensor, dst, tag, group, timeout, group_rank)


def irecv(
    tensor: TensorLike,
    src: int = ANY_SOURCE,
    group: Optional[Group] = None,
    tag: int = 0,
    *,
    up_to: bool = False,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> Work:
    """Starts to receive from src, or from any rank.  The Work's wait returns a Received.

    With up_to the tensor's size is a limit: a smaller message is accepted, too."""
    return _start(lib.tutti_irecv_sized, tensor, src, tag, group, timeout, group_rank, up_to)


def send(
    tensor: TensorLike,
    dst: int,
    group: Optional[Group] = None,
    tag: int = 0,
    *,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> None:
    """Sends.  Above 16 KiB it may wait for the receive."""
    isend(tensor, dst, group, tag, timeout=timeout, group_rank=group_rank).wait()


def recv(
    tensor: TensorLike,
    src: int = ANY_SOURCE,
    group: Optional[Group] = None,
    tag: int = 0,
    *,
    up_to: bool = False,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> Received:
    """Receives, and returns a Received."""
    received = irecv(tensor, src, group, tag, up_to=up_to, timeout=timeout, group_rank=group_rank).wait()
    if not isinstance(received, Received):
        raise errors.InvalidArgument("recv within coalescing() is queued and has no result yet; use irecv there")
    return received


class P2P(NamedTuple):
    """One send or receive of a batch: op is isend or irecv."""

    op: Callable[..., Work]
    tensor: TensorLike
    peer: int
    tag: int = 0


def batch_isend_irecv(
    ops: Sequence[P2P], group: Optional[Group] = None, *, timeout: Timeout = None, group_rank: bool = False
) -> List[Work]:
    """Starts sends and receives together.  After an error none was started."""
    call = _Call(group, timeout, group_rank)
    call.opts.async_op = None
    rows, kinds = (P2POp * len(ops))(), []
    for row, op in zip(rows, ops):
        if op.op not in (isend, irecv):
            raise errors.InvalidArgument(f"a batch takes tutti.isend and tutti.irecv, not {op.op!r}")
        kinds.append(_RECV if op.op is irecv else _SEND)
        row.kind, row.tensor, row.peer, row.tag = kinds[-1], call.tensor(op.tensor, op.op is irecv), op.peer, op.tag
    handles = (c_void_p * len(ops))()
    check(lib.tutti_batch_isend_irecv_sized(rows, ctypes.sizeof(P2POp), len(ops), *sized(call.opts), handles))
    if not all(handles):
        call.keep_queued()
    return [Work(c_void_p(h), call.keep, _message_of if k == _RECV else None) for h, k in zip(handles, kinds)]


def probe(
    src: int = ANY_SOURCE,
    group: Optional[Group] = None,
    tag: int = ANY_TAG,
    *,
    wait: bool = True,
    timeout: Timeout = None,
) -> Optional[Received]:
    """Describes the next message from src without receiving it.  Without `wait`: None if there is none."""
    call, message, found = _Call(group, timeout, tag=tag), Message(), c_bool(True)
    call.opts.async_op = None
    if wait:
        check(lib.tutti_probe_sized(src, *sized(call.opts), byref(message)))
    else:
        check(lib.tutti_iprobe_sized(src, *sized(call.opts), byref(found), byref(message)))
    return Received(message.source, message.tag, message.bytes) if found else None


@contextmanager
def coalescing(group: Optional[Group] = None) -> Iterator[None]:
    """Starts the calls of the block together, at its end, and waits for them.  async_op and Works have no effect."""
    check(lib.tutti_coalesce_begin(handle_of(group)))
    keep: List[Any] = []
    _coalesced.keep = keep
    try:
        yield
    finally:
        handle = c_void_p()
        check(lib.tutti_coalesce_end(handle_of(group), byref(handle)))
        if handle:
            Work(handle, keep).wait()


# ---- byte strings ------------------------------------------------------------------------------------------------


def _take(values: Any) -> List[bytes]:
    result = [ctypes.string_at(v.data, v.bytes) if v.bytes else b"" for v in values]
    lib.tutti_bytes_free(values, len(values))
    return result


def _bytes_call(group: Optional[Group], timeout: Timeout, group_rank: bool = False, tag: int = 0) -> _Call:
    call = _Call(group, timeout, group_rank, tag)
    call.opts.async_op = None
    return call


def all_gather_bytes(data: bytes, group: Optional[Group] = None, *, timeout: Timeout = None) -> List[bytes]:
    """Returns the byte strings of all ranks, whose lengths may differ."""
    call, out = _bytes_call(group, timeout), (Bytes * max(get_world_size(group), 0))()
    check(lib.tutti_all_gather_bytes_sized(out, len(out), data, len(data), *sized(call.opts)))
    return _take(out)


def gather_bytes(
    data: bytes, root: int = 0, group: Optional[Group] = None, *, timeout: Timeout = None, group_rank: bool = False
) -> Optional[List[bytes]]:
    """Returns the byte strings of all ranks on the root, None on the others."""
    call, out = _bytes_call(group, timeout, group_rank), (Bytes * max(get_world_size(group), 0))()
    check(lib.tutti_gather_bytes_sized(out, len(out), data, len(data), root, *sized(call.opts)))
    mine = lib.tutti_get_rank(handle_of(group if group_rank else None) if group_rank else None)
    if not group_rank and group is not None:
        mine = lib.tutti_get_global_rank(handle_of(group), group.rank)
    return _take(out) if mine == root else None


def broadcast_bytes(
    data: Optional[bytes],
    root: int = 0,
    group: Optional[Group] = None,
    *,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> bytes:
    """Returns root's byte string on every rank."""
    call = _bytes_call(group, timeout, group_rank)
    mine = ctypes.create_string_buffer(data, len(data)) if data else None
    inout = Bytes(ctypes.cast(mine, c_void_p) if mine else None, len(data) if data else 0)
    check(lib.tutti_broadcast_bytes_sized(byref(inout), root, *sized(call.opts)))
    if data and mine and inout.data == ctypes.addressof(mine):
        return data
    return _take((Bytes * 1)(inout))[0]


def send_bytes(
    data: bytes,
    dst: int,
    group: Optional[Group] = None,
    tag: int = 0,
    *,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> None:
    """Sends a byte string whose length the receiver need not know."""
    call = _bytes_call(group, timeout, group_rank, tag)
    check(lib.tutti_send_bytes_sized(data, len(data), dst, *sized(call.opts)))


def recv_bytes(
    src: int = ANY_SOURCE,
    group: Optional[Group] = None,
    tag: int = 0,
    *,
    timeout: Timeout = None,
    group_rank: bool = False,
) -> bytes:
    """Receives what send_bytes sent."""
    call, out = _bytes_call(group, timeout, group_rank, tag), (Bytes * 1)()
    check(lib.tutti_recv_bytes_sized(out, src, *sized(call.opts)))
    return _take(out)[0]
