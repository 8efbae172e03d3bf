/* Descriptors that a forked child closes, because its copies would hide its parent's end from the peers.  They are
 * registered until they are about to be closed.  These are the host services of the same names. */
#ifndef BASE_FORKED_H
#define BASE_FORKED_H

void forked_gives_up(int fd);
void forked_forgets(int fd);

#endif
