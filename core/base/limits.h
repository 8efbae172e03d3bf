/* The descriptor limit (RLIMIT_NOFILE): raised while groups may need more than the program was started with. */
#ifndef LIMITS_H
#define LIMITS_H

/* Accounts for a new group with this many ranks.  Raises the soft limit, up to the hard one, if all groups together may
 * need it, and warns if that is not enough.  A forked child gets the program's original limit back. */
void limits_raise(int ranks);

/* Undoes limits_raise when the group is closed.  The last group restores the original limit, unless the program has
 * changed it. */
void limits_restore(int ranks);

#endif
