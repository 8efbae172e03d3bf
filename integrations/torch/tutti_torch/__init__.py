"""torch.distributed on CPU tensors by Tutti.

    import torch.distributed as dist
    import tutti_torch
    dist.init_process_group("tutti")                # or "cpu:tutti,cuda:nccl"
"""

import datetime

import torch
import torch.distributed as dist

from . import torch_range

torch_range.check(torch.__version__)

try:
    from . import _C  # after the check, whose message is clearer than the linker's
except ImportError as error:
    raise ImportError(
        f"tutti_torch cannot be loaded: {error}; it needs the libtutti and the torch that it was built with, so "
        "reinstall it if one of them has moved or changed"
    ) from error

if _C.abi_version() != _C.BUILT_FOR_ABI:
    raise ImportError(
        f"tutti_torch was built for ABI {_C.BUILT_FOR_ABI} of libtutti, and the loaded libtutti {_C.version()} has ABI "
        f"{_C.abi_version()}; reinstall tutti_torch against it"
    )

Options = _C.Options
version = _C.version


def describe(group=None):
    """Describes how a process group reaches its ranks."""
    group = group or dist.distributed_c10d._get_default_group()
    return _C.describe(group._get_backend(torch.device("cpu")))


def _create(opts, options):
    own = options if isinstance(options, Options) else Options()
    own._timeout = datetime.timedelta(seconds=opts.timeout) if isinstance(opts.timeout, (int, float)) else opts.timeout
    return _C.create(opts.store, opts.group_rank, opts.group_size, own)


dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu"])
