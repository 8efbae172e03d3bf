/* Sleeping on a word of memory, within a process. */
#ifndef PORTABLE_FUTEX_H
#define PORTABLE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps until futex_wake_one, or for about ns, if the word holds this value.  May return early. */
void futex_wait(atomic_uint *word, unsigned value, int64_t ns);
/* Wakes one thread that sleeps on the word.  Uses the address only: the memory may have been freed. */
void futex_wake_one(const atomic_uint *word);

#endif
