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

/* Remembers a socket that carries no data.  The process has one for all users; the first user opens it, and so does the
 * next one after the program has closed it.  Returns false and sets errno if no descriptor is left.  Thread-safe. */
bool witness_join(struct witness *witness);
/* Gives witness_join's back.  The last user closes the socket. */
void witness_leave(struct witness *witness);
/* Remembers a socket. */
bool witness_of(struct witness *witness, int fd);
/* True if the descriptor is still the one that was opened. */
bool witness_holds(const struct witness *witness);

#endif
