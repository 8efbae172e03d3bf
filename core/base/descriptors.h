/* Tells whether the program has closed descriptors that the library uses, as daemons and some runtimes do with all
 * descriptors at once.  Their numbers then belong to whatever the program opens next.
 *
 * A witness remembers what a socket's number stood for.  A socket's inode is unique, unlike an eventfd's, so a
 * descriptor that got the same number later is told from it.
 */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include <stdbool.h>
#include <sys/types.h>

struct witness {
    int fd;
    dev_t device;
    ino_t inode;
};

/* Opens a socket that is never used.  False, with errno: there are no descriptors left. */
bool witness_open(struct witness *witness);
/* Remembers a socket. */
bool witness_of(struct witness *witness, int fd);
/* True if the descriptor is still the one that was opened. */
bool witness_holds(const struct witness *witness);
/* Closes the descriptor, unless it has become somebody else's. */
void witness_close(struct witness *witness);

#endif
