/* Large messages that a peer offers: this rank reads them, or asks for them to be written through the FIFO.
 *
 * Where ranks share cores, how long a message takes says more about the scheduler than about its path.  What counts is
 * the work: the cores' time for one read of another process's memory, against two copies.  The system looks up each
 * page of a read, which can take as long as both copies.  The receiver times its reads and its copies out of the FIFO
 * (moves.h), for all messages from a peer, and assumes that a copy into the FIFO takes as long as one out of it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tcp/shm/moves.h"
#include "tcp/shm/offers.h"

enum {
    SPAN = 4, /* messages of a short span */
    TIMED = 3 /* of them, the last ones */
};

static const double weight[] = {[SHM_OFFER_FIFO] = 2, [SHM_OFFER_READ] = 1};

bool shm_reads_offer(struct shm *shm, int local_rank, const tutti_request *request)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    if (request->addend != NULL) return false; /* reduced on its way: a read would need one more copy */
    if (peer->offers == NULL) peer->offers = calloc(1, sizeof *peer->offers);
    return peer->offers != NULL && moves_next(peer->offers, SPAN, TIMED) == SHM_OFFER_READ;
}

int64_t shm_offer_begin(const struct shm *shm, int local_rank, const tutti_request *request, enum shm_offer_way way)
{
    const struct shm_moves *offers = shm->peer[local_rank].offers;
    bool is_timed = offers != NULL && offers->is_timed && offers->measured.way == way && request->addend == NULL;
    return is_timed ? shm->config.host->now_ns() : 0;
}

void shm_offer_end(const struct shm *shm, int local_rank, enum shm_offer_way way, int64_t begin_ns, size_t bytes)
{
    if (begin_ns == 0 || bytes == 0) return;
    moves_add(shm->peer[local_rank].offers, shm->config.host->now_ns() - begin_ns, weight[way], bytes);
}

bool shm_prefers_reads(const struct shm *shm, int local_rank)
{
    const struct shm_moves *offers = shm->peer[local_rank].offers;
    return offers != NULL && offers->measured.way == SHM_OFFER_READ;
}

void shm_print_offers(const struct shm *shm, int local_rank, char *text, size_t capacity)
{
    static const char *const names[CHOICE_WAYS] = {[SHM_OFFER_FIFO] = "fifo (both copies)", [SHM_OFFER_READ] = "read"};
    const struct shm_moves *offers = shm->peer[local_rank].offers;
    char what[64];
    snprintf(what, sizeof what, "measured for 64 KiB from rank %d", (int)shm->peer[local_rank].rank);
    if (offers != NULL) choice_print(&offers->measured, what, names, text, capacity);
}
