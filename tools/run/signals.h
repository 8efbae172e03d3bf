/* The signals that the launcher handles, and the original dispositions, which the ranks get back. */
#ifndef RUN_SIGNALS_H
#define RUN_SIGNALS_H

#include <signal.h>

struct signals {
    sigset_t handled; /* blocked, and received through a signalfd */
    sigset_t old_mask;
    struct sigaction old_pipe, old_size, old_child;
};

/* Blocks the signals.  Call it before any thread is started, so that no thread receives one of them. */
void signals_block(struct signals *signals);

#endif
