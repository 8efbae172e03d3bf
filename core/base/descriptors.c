#include "base/descriptors.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

bool witness_of(struct witness *witness, int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) return false;
    *witness = (struct witness){fd, status.st_dev, status.st_ino};
    return true;
}

bool witness_open(struct witness *witness)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    witness->fd = -1;
    if (fd >= 0 && witness_of(witness, fd)) return true;
    if (fd >= 0) close(fd);
    return false;
}

bool witness_holds(const struct witness *witness)
{
    struct stat status;
    if (fstat(witness->fd, &status) != 0) return false;
    return status.st_ino == witness->inode && status.st_dev == witness->device;
}

void witness_close(struct witness *witness)
{
    if (witness->fd >= 0 && witness_holds(witness)) close(witness->fd);
    witness->fd = -1;
}
