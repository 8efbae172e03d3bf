/* Descriptors that a forked child gives up, until they are about to be closed: with its copies of them it would hide
 * its parent's end from the peers.  The host services of these names. */
#ifndef BASE_FORKED_H
#define BASE_FORKED_H

void forked_gives_up(int fd);
void forked_forgets(int fd);

#endif
