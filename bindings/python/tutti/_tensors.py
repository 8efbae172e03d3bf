"""Tensors of the library over Python's objects: buffers (numpy, array, bytearray) and DLPack (torch, jax, cupy)."""

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_ssize_t,
    c_uint8,
    c_uint16,
    c_uint64,
    c_void_p,
)

from array import array
from typing import Any, Dict, Protocol, Union

from . import errors
from ._library import Device, Tensor

CPU = 1

INT8, INT16, INT32, INT64 = 0x0008, 0x0010, 0x0020, 0x0040
UINT8, UINT16, UINT32, UINT64 = 0x0108, 0x0110, 0x0120, 0x0140
FLOAT16, FLOAT32, FLOAT64, BFLOAT16 = 0x0210, 0x0220, 0x0240, 0x0410
COMPLEX64, COMPLEX128, BOOL = 0x0540, 0x0580, 0x0608
FLOAT8_E4M3FN, FLOAT8_E5M2 = 0x0A08, 0x0C08

_KNOWN = {v for k, v in list(globals().items()) if k.isupper() and isinstance(v, int) and v > 4}
_CLASS = {"b": 0, "h": 0, "i": 0, "l": 0, "q": 0, "B": 1, "H": 1, "I": 1, "L": 1, "Q": 1, "c": 1}
_CLASS |= {"e": 2, "f": 2, "d": 2, "Zf": 5, "Zd": 5, "?": 6}


class _Buffer(Structure):  # Py_buffer
    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


class _DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_api = ctypes.pythonapi
_api.PyObject_GetBuffer.argtypes = [ctypes.py_object, POINTER(_Buffer), c_int]
_api.PyObject_GetBuffer.restype = c_int
_api.PyBuffer_Release.argtypes = [POINTER(_Buffer)]
_api.PyBuffer_Release.restype = None
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, c_char_p]
_api.PyCapsule_GetPointer.restype = c_void_p
_WRITABLE, _FORMAT, _C_CONTIGUOUS = 0x1, 0x4, 0x38


class View:
    """A tensor of the library over an object, which stays alive and in place as long as this."""

    def __init__(self, owner: Any, tensor: Tensor, write: bool) -> None:
        self._owner, self.tensor, self._write = owner, tensor, write


class HasDLPack(Protocol):
    """A tensor of torch, jax, cupy, .."""

    def __dlpack__(self) -> Any: ...


class HasArrayInterface(Protocol):
    """An array of numpy."""

    @property
    def __array_interface__(self) -> Dict[str, Any]: ...


TensorLike = Union[View, HasDLPack, HasArrayInterface, "array[Any]", "ctypes.Array[Any]", bytes, bytearray, memoryview]


class _HeldBuffer:
    """Py_buffer of an object.  It pins the object's memory until it is released."""

    def __init__(self, obj: Any, write: bool) -> None:
        self.buffer = _Buffer()
        flags = _FORMAT | _C_CONTIGUOUS | (_WRITABLE if write else 0)
        self.held = False
        _api.PyObject_GetBuffer(obj, ctypes.byref(self.buffer), flags)  # raises BufferError
        self.held = True

    def __del__(self) -> None:
        if self.held:
            _api.PyBuffer_Release(ctypes.byref(self.buffer))


def _of_buffer(obj: Any, write: bool) -> View:
    try:
        held = _HeldBuffer(obj, write)
    except (BufferError, ValueError) as error:
        what = "an output must be writable and contiguous" if write else "a tensor must be contiguous"
        raise errors.InvalidArgument(f"{type(obj).__name__}: {error}; {what}") from None
    text = (held.buffer.format or b"B").decode()
    code = _CLASS.get(text.lstrip("@=<") if text[:1] != ">" else text)
    dtype = -1 if code is None else code << 8 | held.buffer.itemsize * 8
    if dtype not in _KNOWN:
        raise errors.InvalidArgument(
            f"{type(obj).__name__} has elements of format {text!r}, for which there is no dtype"
        )
    numel = held.buffer.len // held.buffer.itemsize
    return View((obj, held), Tensor(held.buffer.buf, numel, dtype, Device(CPU, 0)), write)


def _is_contiguous(t: _DLTensor) -> bool:
    expected = 1
    if not t.strides or any(t.shape[i] == 0 for i in range(t.ndim)):
        return True
    for i in reversed(range(t.ndim)):
        if t.shape[i] != 1 and t.strides[i] != expected:
            return False
        expected *= t.shape[i]
    return True


def _of_dlpack(obj: Any) -> View:
    capsule = obj.__dlpack__()
    t = _DLTensor.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor"))
    name = type(obj).__name__
    if not _is_contiguous(t):
        raise errors.InvalidArgument(f"{name} is not contiguous; pass a contiguous copy")
    dtype = t.code << 8 | t.bits
    if t.lanes != 1 or dtype not in _KNOWN:
        raise errors.InvalidArgument(
            f"{name} has DLPack's type code {t.code} of {t.bits} bits, for which there is no dtype"
        )
    numel = 1
    for i in range(t.ndim):
        numel *= t.shape[i]
    device = Device(CPU, 0) if t.device_type == 3 else Device(t.device_type, t.device_id)  # 3: pinned host memory
    data = (t.data or 0) + t.byte_offset
    # the capsule keeps the memory; its destructor calls the deleter, since nobody consumes it
    return View((obj, capsule), Tensor(data or None, numel, dtype, device), True)


def view(obj: TensorLike, dtype: int = 0, write: bool = True) -> View:
    """Describes an object's memory as a flat tensor, without a copy.

    dtype reads the memory as elements of another type, for example UINT16 of numpy as BFLOAT16.  Raises InvalidArgument
    if the object has no contiguous memory, is read-only although the operation writes it, or has no such elements."""
    if isinstance(obj, View):
        if write and not obj._write:
            raise errors.InvalidArgument("an output must be writable; make its view without write=False")
        return obj
    if hasattr(obj, "__array_interface__") or not hasattr(obj, "__dlpack__"):
        try:
            memoryview(obj).release()  # type: ignore[arg-type]  # it may have a buffer or not
        except TypeError:
            raise errors.InvalidArgument(
                f"{type(obj).__name__} is no tensor: pass a numpy array, or what has a buffer or __dlpack__"
            ) from None
        found = _of_buffer(obj, write)
    else:
        found = _of_dlpack(obj)
    if dtype:
        if dtype not in _KNOWN or found.tensor.numel * (found.tensor.dtype & 0xFF) % (dtype & 0xFF):
            raise errors.InvalidArgument(f"the memory of {type(obj).__name__} is not a whole number of such elements")
        numel = found.tensor.numel * (found.tensor.dtype & 0xFF) // (dtype & 0xFF)
        found.tensor = Tensor(found.tensor.data, numel, dtype, found.tensor.device)
    return found
