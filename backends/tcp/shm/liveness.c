/* Liveness: a rank's peers on its host notice its exit.
 *
 * Each rank creates a pipe, keeps the write end and passes the read end to its peers.  The read end hangs up when the
 * last copy of the write end is closed.  That happens when the process exits, execs (O_CLOEXEC), or closes all its
 * descriptors.  A pidfd would signal only the exit.  A forked child closes its copy (tutti_host.forked_gives_up).
 *
 * The rank also checks that the write end is still the one it created.  A program that closes all descriptors reuses
 * their numbers for its own files, which must not be polled, written or closed.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tcp/shm/shm.h"

bool shm_liveness_open(const tutti_host *host, int *liveness_fd, struct shm_held *held)
{
    int ends[2];
    struct stat status;
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    *liveness_fd = ends[0];
    *held = (struct shm_held){.fd = ends[1]};
    if (TUTTI_HAS(host, forked_gives_up)) host->forked_gives_up(held->fd);
    if (fstat(held->fd, &status) != 0) return false;
    held->device = status.st_dev;
    held->inode = status.st_ino;
    return true;
}

static bool is_held(const struct shm_held *held)
{
    struct stat status;
    if (held->inode == 0) return true;
    if (fstat(held->fd, &status) != 0) return false;
    return status.st_ino == held->inode && status.st_dev == held->device;
}

void shm_liveness_close(const tutti_host *host, struct shm_held *held)
{
    if (held->fd < 0) return;
    if (TUTTI_HAS(host, forked_forgets)) host->forked_forgets(held->fd);
    if (is_held(held)) close(held->fd);
    held->fd = -1;
    held->inode = 0;
}

bool shm_is_disowned(struct shm *shm)
{
    if (!shm->disowned) shm->disowned = !is_held(&shm->held);
    return shm->disowned;
}
