"""The exceptions: one class for each status of libtutti, with the library's message."""


class Error(RuntimeError):
    """A call or an operation failed.  `status` is the library's code."""

    status = 0


class InvalidArgument(Error, ValueError):
    """The call was refused before anything was sent.  The group stays usable."""

    status = -1


class Unsupported(Error):
    """No backend of the group does this operation with this dtype."""

    status = -2


class Timeout(Error, TimeoutError):
    """The timeout of the operation, the wait or the store has passed."""

    status = -3


class PeerLost(Error, ConnectionError):
    """A rank died, left, or can no longer be reached."""

    status = -4


class Mismatch(Error):
    """The ranks' calls differ: operation, count, dtype, reduce op, root or size."""

    status = -5


class Aborted(Error):
    """The group failed earlier or was aborted.  The message has the first cause."""

    status = -6


class StoreError(Error):
    """The key-value store cannot be reached or refused a request."""

    status = -7


class AuthError(Error):
    """The job token is wrong or missing."""

    status = -8


class NoMemory(Error, MemoryError):
    """Memory could not be allocated."""

    status = -9


class SystemFailure(Error, OSError):
    """A system call failed.  The message has the name of errno."""

    status = -10


class BackendError(Error):
    """A plug-in is missing, does not load, or its library failed."""

    status = -11


class NotFound(Error, LookupError):
    """A key is not in the store, or this host has no address."""

    status = -12


_BY_STATUS = {c.status: c for c in Error.__subclasses__()}


def of_status(status: int, message: str) -> Error:
    """Returns the exception of a negative status."""
    error = _BY_STATUS.get(status, Error)(message)
    if type(error) is Error:
        error.status = status
    return error
