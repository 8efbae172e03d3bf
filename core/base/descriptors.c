#include "base/descriptors.h"

#include <pthread.h>
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

bool witness_holds(const struct witness *witness)
{
    struct stat status;
    if (fstat(witness->fd, &status) != 0) return false;
    return status.st_ino == witness->inode && status.st_dev == witness->device;
}

static struct {
    pthread_mutex_t lock;
    struct witness witness;
    int users;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .witness.fd = -1};

/* The child leaves its parent's socket open, like all that its parent's groups have.  It has one thread, so no lock is
 * needed, nor could it be taken. */
static void in_child(void)
{
    pthread_mutex_init(&shared.lock, NULL);
    shared.witness.fd = -1;
    shared.users = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static bool open_shared(void)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    shared.users = 0;
    if (fd >= 0 && witness_of(&shared.witness, fd)) return true;
    if (fd >= 0) close(fd);
    shared.witness.fd = -1;
    return false;
}

bool witness_join(struct witness *witness)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&shared.lock);
    bool open = (shared.users > 0 && witness_holds(&shared.witness)) || open_shared();
    if (open) shared.users++;
    *witness = shared.witness;
    pthread_mutex_unlock(&shared.lock);
    return open;
}

void witness_leave(struct witness *witness)
{
    pthread_mutex_lock(&shared.lock);
    bool current = witness->fd >= 0 && witness->device == shared.witness.device &&
                   witness->inode == shared.witness.inode && shared.witness.fd >= 0;
    if (current && --shared.users == 0) { /* an earlier witness has been closed by the program */
        if (witness_holds(&shared.witness)) close(shared.witness.fd);
        shared.witness.fd = -1;
    }
    witness->fd = -1;
    pthread_mutex_unlock(&shared.lock);
}
