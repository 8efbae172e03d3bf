#include "alive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "group.h"

enum { HERE_MAX = 64, KEY = 48 };

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

void alive_name(char name[ALIVE_NAME_MAX])
{
    char here[HERE_MAX];
    look_around(here);
    snprintf(name, ALIVE_NAME_MAX, "%d %s", (int)getpid(), here);
}

/* A process that has ended and was not waited for has ended, too: its descriptor tells, its number would not. */
static bool has_ended(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) return kill(pid, 0) != 0 && errno == ESRCH;
    struct pollfd life = {fd, POLLIN, 0};
    bool ended = poll(&life, 1, 0) == 1;
    close(fd);
    return ended;
}

int alive_ended(const char *name)
{
    char here[HERE_MAX];
    int pid = 0, used = 0;
    look_around(here);
    if (here[0] == '\0' || sscanf(name, "%d %n", &pid, &used) < 1 || pid <= 0 || strcmp(name + used, here) != 0)
        return 0;
    return has_ended((pid_t)pid) ? pid : 0;
}

/* In the store of the family's first group, whose ranks are the global ones: later groups have the same processes. */
static void key_of(const struct tutti_group *root, int rank, char key[KEY])
{
    snprintf(key, KEY, "process/%" PRIi64 "/%d", root->turn, rank);
}

int alive_publish(struct tutti_group *group)
{
    char key[KEY], name[ALIVE_NAME_MAX];
    int64_t came = 0;
    int status = tutti_store_add(group->store, "processes", 1, &came);
    if (status != TUTTI_OK) return status;
    group->turn = (came - 1) / group->size;
    alive_name(name);
    key_of(group, group->rank, key);
    return tutti_store_set(group->store, key, name, strlen(name));
}

int alive_check(struct tutti_group *group)
{
    char key[KEY], name[ALIVE_NAME_MAX];
    for (int rank = 0; rank < group->size; rank++) {
        size_t bytes = 0;
        key_of(group->root, group->global_ranks[rank], key);
        int status = tutti_store_get(group->root->store, key, name, sizeof name - 1, &bytes, 0);
        if (status == TUTTI_ERR_TIMEOUT) continue;
        if (status != TUTTI_OK) return status;
        name[bytes] = '\0';
        int pid = alive_ended(name);
        if (pid > 0)
            return error_set(TUTTI_ERR_PEER_LOST, "rank %d is lost: its process %d has ended",
                             group->global_ranks[rank], pid);
    }
    return TUTTI_OK;
}
