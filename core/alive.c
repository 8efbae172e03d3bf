#include "alive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "group.h"

enum { HERE_MAX = 64, PROCESS_MAX = 96 };

/* Where process numbers mean the same: this boot of this machine, and this namespace of processes. */
static void look_around(char here[HERE_MAX])
{
    struct stat pids = {0};
    char boot[37] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, boot, sizeof boot - 1) : -1;
    if (fd >= 0) close(fd);
    here[0] = '\0';
    if (n != sizeof boot - 1 || stat("/proc/self/ns/pid", &pids) != 0) return; /* nobody is known to be here */
    snprintf(here, HERE_MAX, "%s %" PRIuMAX, boot, (uintmax_t)pids.st_ino);
}

int alive_publish(struct tutti_group *group)
{
    char key[32], here[HERE_MAX], process[PROCESS_MAX];
    look_around(here);
    snprintf(key, sizeof key, "process/%d", group->rank);
    int n = snprintf(process, sizeof process, "%d %s", (int)getpid(), here);
    return tutti_store_set(group->store, key, process, (size_t)n);
}

/* A process that has ended and was not waited for has ended, too: its descriptor tells, its number would not. */
static bool has_ended(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) return errno == ESRCH;
    struct pollfd life = {fd, POLLIN, 0};
    bool ended = poll(&life, 1, 0) == 1;
    close(fd);
    return ended;
}

int alive_check(struct tutti_group *group)
{
    char key[32], here[HERE_MAX], process[PROCESS_MAX];
    look_around(here);
    for (int rank = 0; rank < group->size && here[0] != '\0'; rank++) {
        size_t bytes = 0;
        int pid = 0, used = 0;
        snprintf(key, sizeof key, "process/%d", rank);
        int status = tutti_store_get(group->store, key, process, sizeof process - 1, &bytes, 0);
        if (status == TUTTI_ERR_TIMEOUT) continue;
        if (status != TUTTI_OK) return status;
        process[bytes] = '\0';
        if (sscanf(process, "%d %n", &pid, &used) < 1 || pid <= 0 || strcmp(process + used, here) != 0) continue;
        if (has_ended((pid_t)pid))
            return error_set(TUTTI_ERR_PEER_LOST, "rank %d is lost: its process %d has ended",
                             group->global_ranks[rank], pid);
    }
    return TUTTI_OK;
}
