#include "diagnose/record_signal.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "base/thread.h"

static sem_t asked;
static void (*write_record)(void);

/* sem_post is one of the few functions that a signal handler may call. */
static void ask(int signal)
{
    int before = errno;
    (void)signal;
    sem_post(&asked);
    errno = before;
}

static void *write_when_asked(void *argument)
{
    (void)argument;
    while (true) {
        if (sem_wait(&asked) != 0) continue;
        while (sem_trywait(&asked) == 0) continue; /* one file serves all signals until now */
        write_record();
    }
    return NULL;
}

void record_signal_start(void (*write)(void))
{
    struct sigaction before, ours = {.sa_handler = ask, .sa_flags = SA_RESTART};
    pthread_t thread;
    if (!env_bool("TUTTI_RECORD_SIGNAL", false) || sigaction(SIGUSR2, NULL, &before) != 0) return;
    if (before.sa_flags & SA_SIGINFO || before.sa_handler != SIG_DFL) {
        log_write(LOG_WARN, LOG_GROUP,
                  "TUTTI_RECORD_SIGNAL has no effect, because the program handles SIGUSR2 itself; "
                  "it may call tutti_record_write");
        return;
    }
    write_record = write;
    /* macOS has semaphores with a name only */
    int error = sem_init(&asked, 0, 0) == 0 ? thread_start(&thread, write_when_asked, NULL) : errno;
    if (error != 0) {
        log_write(LOG_WARN, LOG_GROUP, "TUTTI_RECORD_SIGNAL has no effect: cannot start a thread that waits: %s",
                  strerror(error));
        return;
    }
    pthread_detach(thread);
    sigemptyset(&ours.sa_mask);
    sigaction(SIGUSR2, &ours, NULL);
}
