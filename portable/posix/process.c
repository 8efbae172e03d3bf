/* POSIX tells of a process only whether kill finds it. */
#include "portable/process.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

void process_scope(char *text, size_t size)
{
    if (size > 0) text[0] = '\0';
}

uint64_t process_start(pid_t pid)
{
    (void)pid;
    return 0;
}

bool process_has_ended(pid_t pid)
{
    return kill(pid, 0) != 0 && errno == ESRCH;
}

int process_watch(pid_t pid)
{
    (void)pid;
    errno = ENOSYS;
    return -1;
}

void process_end_with_parent(void)
{
}

pid_t process_parent(pid_t pid)
{
    (void)pid;
    return -1;
}

uint32_t process_thread(void)
{
    static atomic_uint threads;
    static _Thread_local uint32_t own;
    if (own == 0) own = atomic_fetch_add(&threads, 1) + 1;
    return own;
}

uint64_t process_host(void)
{
    return 0;
}
