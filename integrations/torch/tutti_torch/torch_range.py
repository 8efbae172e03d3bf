"""The versions of torch that this package works with.  setup.py runs this file too."""

OLDEST, NEWEST = (2, 13), (2, 15)


def found(version):
    """Returns the major and minor number of a version of torch."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def check(version):
    """Raises ImportError unless the version of torch is in the range."""
    if not OLDEST <= found(version) <= NEWEST:
        raise ImportError(
            f"tutti_torch works with torch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, and this is torch "
            f"{version}; install a torch of that range, or a newer tutti_torch"
        )
