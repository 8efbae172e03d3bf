/* Copies of data that a peer will read, with usual or with non-temporal stores (stores.c). */
#ifndef SHM_STORES_H
#define SHM_STORES_H

#include "tcp/shm/shm.h"

enum { SHM_STORES_MIN = 4 << 10 }; /* minimum bytes of a copy whose stores are chosen */

/* Copies data that the peer will read, with the stores that have been the fastest. */
void shm_store_timed(struct shm *shm, int local_rank, void *to, const void *from, size_t bytes);

/* Prints the times of the copies to a peer, if there were any. */
void shm_print_stores(const struct shm *shm, int local_rank, char *text, size_t capacity);

static inline void shm_store(struct shm *shm, int local_rank, void *to, const void *from, size_t bytes)
{
    if (bytes >= SHM_STORES_MIN)
        shm_store_timed(shm, local_rank, to, from, bytes);
    else
        tutti_copy(to, from, bytes);
}

#endif
