#include "portable/wake.h"

#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

int wake_open(bool sent)
{
    return eventfd(sent, EFD_CLOEXEC | EFD_NONBLOCK);
}

void wake_send(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* EAGAIN: it is readable already */
}

void wake_take(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
}
