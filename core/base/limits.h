/* The limit of descriptors (RLIMIT_NOFILE): raised while groups may need more than the program was started with. */
#ifndef LIMITS_H
#define LIMITS_H

/* A group of so many ranks is opened.  Raises the soft limit as far as the hard one where all groups together may need
 * it, and warns where that is not enough.  A forked child gets the limit back that the program had. */
void limits_raise(int ranks);

/* The group is gone.  With the last one the limit is what it was, unless the program has changed it. */
void limits_restore(int ranks);

#endif
