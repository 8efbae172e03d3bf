/* Descriptors by which one thread wakes another that sleeps in poll. */
#ifndef PORTABLE_WAKE_H
#define PORTABLE_WAKE_H

#include <stdbool.h>

/* Returns a descriptor that becomes readable once it is sent to, and is at once if `sent`.  Returns -1 with errno. */
int wake_open(bool sent);
/* Makes the descriptor readable.  Does nothing if it is. */
void wake_send(int fd);
/* Makes the descriptor unreadable, if it was sent to once since it was last taken. */
void wake_take(int fd);

#endif
