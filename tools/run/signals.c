#include "signals.h"

#include <stddef.h>

void signals_block(struct signals *signals)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2};
    sigemptyset(&signals->handled);
    sigaddset(&signals->handled, SIGCHLD);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction now;
        sigaction(numbers[i], NULL, &now);
        if (now.sa_handler != SIG_IGN)
            sigaddset(&signals->handled, numbers[i]); /* do not handle ignored signals, so that nohup works */
    }
    sigprocmask(SIG_BLOCK, &signals->handled, &signals->old_mask);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, &signals->old_pipe);
    /* Without SIGXFSZ, write reports an error at the file size limit. */
    sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = SIG_IGN}, &signals->old_size);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP}, &signals->old_child);
}
