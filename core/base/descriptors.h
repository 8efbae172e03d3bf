/* Detects that the program has closed descriptors that the library uses, as daemons and some runtimes do with all
 * descriptors at once.  Their numbers then belong to whatever the program opens next.
 *
 * An identity records the socket behind a descriptor number.  A socket's inode is unique, unlike an eventfd's, so a
 * later descriptor of the same number has another identity. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include <stdbool.h>
#include <sys/types.h>

struct descriptor_identity {
    int fd;
    dev_t device;
    ino_t inode;
};

/* Identifies the sentinel: a socket that carries no data, one for all users in the process.  The first user opens it,
 * and so does the next one after the program has closed it.  Returns false and sets errno if no descriptor is left.
 * Thread-safe. */
bool descriptors_join_sentinel(struct descriptor_identity *identity);
/* Releases the sentinel.  The last user closes the socket. */
void descriptors_leave_sentinel(struct descriptor_identity *identity);
/* Records the identity of the socket fd.  Returns false if fd is not open. */
bool descriptors_identify(struct descriptor_identity *identity, int fd);
/* True if the descriptor is still the socket that was recorded. */
bool descriptors_is_same(const struct descriptor_identity *identity);

#endif
