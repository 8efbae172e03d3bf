/* POSIX tells of a process only whether kill finds it. */
#include "portable/process.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { WATCH_US = 100000 };

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

static void *watch_parent(void *argument)
{
    pid_t parent = (pid_t)(intptr_t)argument;
    while (getppid() == parent) usleep(WATCH_US);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* A thread looks, because POSIX reports a parent's death to nobody. */
void process_end_with_parent(void)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, watch_parent, (void *)(intptr_t)getppid()) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
