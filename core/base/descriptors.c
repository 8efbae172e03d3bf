#include "base/descriptors.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "portable/sockets.h"

bool descriptors_identify(struct descriptor_identity *identity, int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) return false;
    *identity = (struct descriptor_identity){fd, status.st_dev, status.st_ino};
    return true;
}

bool descriptors_is_same(const struct descriptor_identity *identity)
{
    struct stat status;
    if (fstat(identity->fd, &status) != 0) return false;
    return status.st_ino == identity->inode && status.st_dev == identity->device;
}

static struct {
    pthread_mutex_t lock;
    struct descriptor_identity sentinel;
    int users;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .sentinel.fd = -1};

/* Resets the state in a forked child.  The child leaves its parent's socket open, like everything that its parent's
 * groups use.  It has one thread, so it needs no lock, and could not take one that another thread held at the fork. */
static void in_child(void)
{
    pthread_mutex_init(&shared.lock, NULL);
    shared.sentinel.fd = -1;
    shared.users = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static bool open_shared(void)
{
    int fd = sockets_open(AF_UNIX, SOCK_DGRAM, false);
    shared.users = 0;
    if (fd >= 0 && descriptors_identify(&shared.sentinel, fd)) return true;
    if (fd >= 0) close(fd);
    shared.sentinel.fd = -1;
    return false;
}

bool descriptors_join_sentinel(struct descriptor_identity *identity)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&shared.lock);
    bool open = (shared.users > 0 && descriptors_is_same(&shared.sentinel)) || open_shared();
    if (open) shared.users++;
    *identity = shared.sentinel;
    pthread_mutex_unlock(&shared.lock);
    return open;
}

void descriptors_leave_sentinel(struct descriptor_identity *identity)
{
    pthread_mutex_lock(&shared.lock);
    bool current = identity->fd >= 0 && identity->device == shared.sentinel.device &&
                   identity->inode == shared.sentinel.inode && shared.sentinel.fd >= 0;
    if (current && --shared.users == 0) { /* the program may have closed the socket */
        if (descriptors_is_same(&shared.sentinel)) close(shared.sentinel.fd);
        shared.sentinel.fd = -1;
    }
    identity->fd = -1;
    pthread_mutex_unlock(&shared.lock);
}
