#include "portable/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BOOT_ID = 36 /* characters of a UUID */ };

/* Reads a small file as text.  Returns false if it cannot. */
static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool read_boot_id(char boot[BOOT_ID + 1])
{
    return read_text("/proc/sys/kernel/random/boot_id", boot, BOOT_ID + 1) && strlen(boot) == BOOT_ID;
}

void process_scope(char *text, size_t size)
{
    struct stat pids;
    char boot[BOOT_ID + 1];
    text[0] = '\0';
    if (read_boot_id(boot) && stat("/proc/self/ns/pid", &pids) == 0)
        snprintf(text, size, "%s %" PRIuMAX, boot, (uintmax_t)pids.st_ino);
}

/* Reads the fields of /proc/PID/stat that follow the name.  Returns the first of them, or NULL. */
static const char *read_stat(pid_t pid, char *text, size_t size)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    return read_text(path, text, size) ? strrchr(text, ')') : NULL; /* the name may hold parentheses and blanks */
}

/* The start time in clock ticks since boot. */
uint64_t process_start(pid_t pid)
{
    enum { FIELDS_BEFORE = 20 }; /* from the state to the start */
    char text[1024];
    const char *at = read_stat(pid, text, sizeof text);
    for (int i = 0; i < FIELDS_BEFORE && at != NULL; i++) at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

pid_t process_parent(pid_t pid)
{
    char text[1024];
    int parent = -1;
    const char *at = read_stat(pid, text, sizeof text);
    if (at == NULL || sscanf(at, ") %*c %d", &parent) != 1) return -1;
    return parent;
}

int process_watch(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Asks its pidfd, because kill() also finds a zombie. */
bool process_has_ended(pid_t pid)
{
    int fd = process_watch(pid);
    if (fd < 0) return kill(pid, 0) != 0 && errno == ESRCH;
    struct pollfd liveness = {fd, POLLIN, 0};
    bool ended = poll(&liveness, 1, 0) == 1;
    close(fd);
    return ended;
}

void process_end_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

uint32_t process_thread(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

uint64_t process_host(void)
{
    char boot[BOOT_ID + 1];
    struct stat network;
    if (!read_boot_id(boot) || stat("/proc/self/ns/net", &network) != 0) return 0;
    uint64_t id = UINT64_C(0xcbf29ce484222325) ^ network.st_ino; /* FNV-1a */
    for (int i = 0; i < BOOT_ID; i++) id = (id ^ (uint8_t)boot[i]) * UINT64_C(0x100000001b3);
    return id != 0 ? id : 1;
}
