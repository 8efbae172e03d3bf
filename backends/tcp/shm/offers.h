/* Large messages that a peer offers where ranks share cores: read, or taken through the FIFO (offers.c). */
#ifndef SHM_OFFERS_H
#define SHM_OFFERS_H

#include "tcp/shm/shm.h"

enum shm_offer_way { SHM_OFFER_FIFO, SHM_OFFER_READ };

/* Implements transport_ops.reads. */
bool shm_reads_offer(struct shm *shm, int local_rank, const tutti_request *request);

/* Returns the time at which a part of a message begins to move this way, or 0 if it is not timed. */
int64_t shm_offer_begin(const struct shm *shm, int local_rank, const tutti_request *request, enum shm_offer_way way);
/* Ends a part of this many bytes. */
void shm_offer_end(const struct shm *shm, int local_rank, enum shm_offer_way way, int64_t begin_ns, size_t bytes);

/* True if messages that the peer offers are read now. */
bool shm_prefers_reads(const struct shm *shm, int local_rank);
/* Prints the times of the messages from a peer, if there were any. */
void shm_print_offers(const struct shm *shm, int local_rank, char *text, size_t capacity);

#endif
