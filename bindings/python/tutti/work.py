"""Operations that have been started."""

import ctypes
import threading

from typing import Any, Callable, List, Optional, Tuple

from . import errors
from ._library import DEFAULT_TIMEOUT, NOW, Timeout, check, lib, milliseconds

_SLICE_MS = 200  # between two looks at Python's signals

_dropped: List[Tuple[ctypes.c_void_p, Any]] = []  # works that nobody waits for, with the memory that they use
# A reference that is never given up: when the interpreter ends, operations may still use the memory.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_dropped))
_lock = threading.RLock()  # the garbage collector may call __del__ in a thread that holds it


def _free_dropped() -> None:
    """Frees the dropped works that have ended."""
    with _lock:
        for entry in [e for e in _dropped if lib.tutti_work_is_completed(e[0])]:
            _dropped.remove(entry)
            lib.tutti_work_free(entry[0])


class Work:
    """An operation.  It keeps the memory of its tensors alive until it has ended."""

    def __init__(self, handle: ctypes.c_void_p, keep: Any, result: Optional[Callable[["Work"], Any]] = None) -> None:
        if _dropped:
            _free_dropped()
        self._handle: Optional[ctypes.c_void_p] = handle
        self._keep, self._result = keep, result

    def wait(self, timeout: Timeout = None) -> Any:
        """Waits until the operation has ended, and returns its result: the received message of a recv, else None.

        Raises Timeout if `timeout` seconds pass; the operation then continues.  None waits until the operation's own
        timeout ends it.  Other exceptions are the operation's.  Ctrl-C interrupts the wait, not the operation.

        Within coalescing() it returns None at once: the end of the block waits."""
        if not self._handle:
            return None
        left = DEFAULT_TIMEOUT if timeout is None else max(milliseconds(timeout), 0)
        endless = left >= DEFAULT_TIMEOUT
        while True:
            now = _SLICE_MS if endless else min(left, _SLICE_MS)
            status = lib.tutti_work_wait(self._handle, now if now > 0 else NOW)
            if status != errors.Timeout.status:
                break
            if lib.tutti_work_is_completed(self._handle):
                status = lib.tutti_work_wait(self._handle, NOW)  # it has ended since, with a status of its own
                break
            if not endless:
                left -= now
                if left <= 0:
                    break
        check(status)
        self._keep = None
        if self._result:
            return self._result(self)
        return None

    def is_completed(self) -> bool:
        """True if the operation has ended, with success or an error.  Never blocks."""
        return bool(lib.tutti_work_is_completed(self._handle))

    @property
    def sequence(self) -> int:
        """Its number among the group's collectives, from 1.  0 for messages."""
        return int(lib.tutti_work_sequence(self._handle))

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if not handle:
            return
        if lib.tutti_work_is_completed(handle):
            lib.tutti_work_free(handle)
            return
        with _lock:
            _dropped.append((handle, self._keep))
