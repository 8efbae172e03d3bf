/* The signals that the launcher handles, and the original dispositions, for the ranks. */
#ifndef RUN_SIGNALS_H
#define RUN_SIGNALS_H

#include <signal.h>

struct signals {
    sigset_t handled; /* blocked, and read from a signalfd */
    sigset_t old_mask;
    struct sigaction old_pipe, old_size, old_child;
};

/* Call it before any thread is started, so that no thread takes one of the signals. */
void signals_block(struct signals *signals);

#endif
