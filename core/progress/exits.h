/* Calls back when the process exits.
 *
 * A process that exits without destroying its groups still notifies its peers, so that they can tell an exit from a
 * crash.  _exit, signals and exec call nothing. */
#ifndef EXITS_H
#define EXITS_H

#include <stdbool.h>
#include <sys/queue.h>

struct lock;

struct exit_watch {
    LIST_ENTRY(exit_watch) link;
    bool is_added;
    void (*at_exit)(struct exit_watch *watch); /* called once, while other threads may be anywhere */
};

/* Adds a watch.  The first one must come after the backends' libraries are loaded, because exit handlers run in reverse
 * order. */
void exits_add(struct exit_watch *watch);

/* Removes a watch, if it was added. */
void exits_remove(struct exit_watch *watch);

/* Takes a lock at exit.  Returns false after a while: another thread may have stopped while holding it. */
bool exits_try_lock(struct lock *lock);

#endif
