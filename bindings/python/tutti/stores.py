"""The key-value store through which ranks find each other."""

import ctypes
from ctypes import byref, c_bool, c_char_p, c_int64, c_void_p
from typing import Optional

from ._library import Bytes, DEFAULT_TIMEOUT, StoreOpts, Timeout, check, lib, milliseconds, sized


class Store:
    """A store.  Made by tcp, file, memory or prefix.  As a context manager it is closed at the end of the block."""

    def __init__(self, handle: c_void_p, base: Optional["Store"] = None) -> None:
        self._handle: Optional[c_void_p] = handle
        self._base = base

    @classmethod
    def tcp(
        cls,
        host: str,
        port: int,
        *,
        server: bool = False,
        token: Optional[bytes] = None,
        insecure: bool = False,
        timeout: Timeout = None,
    ) -> "Store":
        """Opens a tcp store.  A server binds host and port; port 0 selects a free one.  token: 32 bytes, or None for the
        launcher's."""
        if token is not None and len(token) != 32:
            raise ValueError(f"a token has 32 bytes, not {len(token)}")
        opts, handle = StoreOpts(milliseconds(timeout), token, server, insecure, 0), c_void_p()
        check(lib.tutti_store_tcp_sized(host.encode(), port, *sized(opts), byref(handle)))
        return cls(handle)

    @classmethod
    def file(cls, path: str, *, timeout: Timeout = None) -> "Store":
        """Opens a store in a file on a path that all processes share."""
        opts, handle = StoreOpts(milliseconds(timeout)), c_void_p()
        check(lib.tutti_store_file_sized(path.encode(), *sized(opts), byref(handle)))
        return cls(handle)

    @classmethod
    def memory(cls, *, timeout: Timeout = None) -> "Store":
        """Makes a store for ranks that are threads of this process."""
        opts, handle = StoreOpts(milliseconds(timeout)), c_void_p()
        check(lib.tutti_store_memory_sized(*sized(opts), byref(handle)))
        return cls(handle)

    def prefix(self, prefix: str) -> "Store":
        """Returns a view of the keys that begin with prefix and '/'."""
        handle = c_void_p()
        check(lib.tutti_store_prefix(self._handle, prefix.encode(), byref(handle)))
        return Store(handle, self)

    @property
    def port(self) -> int:
        return int(lib.tutti_store_port(self._handle))

    def set(self, key: str, value: bytes) -> None:
        check(lib.tutti_store_set(self._handle, key.encode(), value, len(value)))

    def get(self, key: str, timeout: Timeout = None) -> bytes:
        """Waits until the key exists, and returns its value."""
        value, limit = (Bytes * 1)(), DEFAULT_TIMEOUT if timeout is None else max(milliseconds(timeout), 0)
        check(lib.tutti_store_multi_get(self._handle, (c_char_p * 1)(key.encode()), 1, value, limit))
        result = ctypes.string_at(value[0].data, value[0].bytes) if value[0].bytes else b""
        lib.tutti_bytes_free(value, 1)
        return result

    def add(self, key: str, delta: int) -> int:
        """Adds to the decimal integer under the key, and returns the sum."""
        value = c_int64()
        check(lib.tutti_store_add(self._handle, key.encode(), delta, byref(value)))
        return value.value

    def __contains__(self, key: str) -> bool:
        present = c_bool()
        check(lib.tutti_store_check(self._handle, (c_char_p * 1)(key.encode()), 1, byref(present)))
        return present.value

    def delete(self, key: str) -> bool:
        """Removes the key.  True if it existed."""
        existed = c_bool()
        check(lib.tutti_store_delete(self._handle, key.encode(), byref(existed)))
        return existed.value

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle:
            lib.tutti_store_free(handle)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
