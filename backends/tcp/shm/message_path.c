/* Selects the path of a large message.
 *
 * A row that the core has passed (tutti_backend.choose) decides if its path is possible.  Otherwise the first row of
 * the table decides whose needs are met.  The sender alone chooses, and the receiver follows.
 */
#include "tcp/shm/shm.h"

/* Conditions that hold for a message. */
enum need {
    CREDIT = 1,   /* it may go eagerly */
    SPACE = 2,    /* the ring has space, or a copy is the only path: see find_needs */
    BLOCKED = 4,  /* the sender waits for this message alone */
    CORES = 8,    /* every rank has a core */
    ARENA = 16,   /* its data were allocated by tutti_alloc */
    READABLE = 32 /* the receiver can read the sender's memory */
};

static const struct row {
    unsigned needs;
    size_t max_bytes;
    enum transport_path path;
    bool timed; /* the cost model chooses between the path and a read, if both are possible and every rank has a core */
} rows[] = {
    {CREDIT | BLOCKED | CORES, SHM_EAGER_MAX, TRANSPORT_WRITE, false},
    {CREDIT, SHM_EAGER_MAX, TRANSPORT_EAGER, false},
    {ARENA, SIZE_MAX, TRANSPORT_READ, false},
    {BLOCKED | CORES, SIZE_MAX, TRANSPORT_WRITE, true},
    {CREDIT | SPACE, SIZE_MAX, TRANSPORT_EAGER, true},
    {BLOCKED, SIZE_MAX, TRANSPORT_WRITE, true},
    {READABLE, SIZE_MAX, TRANSPORT_READ, false},
    {0, SIZE_MAX, TRANSPORT_WRITE, false},
};

static unsigned find_needs(struct shm *shm, int local_rank, const tutti_request *request, bool may_eager, bool blocked)
{
    size_t bytes = request->bytes;
    bool credit = may_eager && bytes <= shm->transport.eager_max, reads = shm->can_read_memory && bytes > 0;
    unsigned needs = 0;
    if (credit) needs |= CREDIT;
    /* Space matters only if there is a choice: a message that waits for space is copied once more. */
    if (credit && (!reads || shm_fits(shm, local_rank, bytes))) needs |= SPACE;
    if (blocked && bytes > SHM_CERTAIN_MAX) needs |= BLOCKED;
    if (!shm->shares_cores) needs |= CORES;
    if (bytes > 0 && shm_is_shared(shm, request->data, bytes)) needs |= ARENA;
    if (reads) needs |= READABLE;
    return needs;
}

static const struct row *find_row(unsigned needs, size_t bytes)
{
    const struct row *row = rows;
    while ((row->needs & ~needs) != 0 || bytes > row->max_bytes) row++;
    return row;
}

static bool is_possible(unsigned needs, int path)
{
    if (path == TRANSPORT_EAGER) return (needs & CREDIT) != 0;
    if (path == TRANSPORT_RMA) return false;
    return path == TRANSPORT_WRITE || (needs & (READABLE | ARENA)) != 0;
}

enum transport_path shm_choose_path(struct shm *shm, int local_rank, const tutti_request *request, bool may_eager,
                                    bool blocked, const tutti_path_row *choice)
{
    size_t bytes = request->bytes;
    unsigned needs = find_needs(shm, local_rank, request, may_eager, blocked);
    if (choice != NULL && is_possible(needs, choice->path)) return (enum transport_path)choice->path;
    const struct row *row = find_row(needs, bytes);
    if (!row->timed || (needs & READABLE) == 0 || (needs & CORES) == 0) return row->path;
    return cost_choose(&shm->peer[local_rank].cost, bytes) == SHM_COST_READ ? TRANSPORT_READ : row->path;
}

const char *shm_explain_message(struct shm *shm, size_t bytes, const tutti_path_row *choice)
{
    unsigned needs = CREDIT | SPACE | (shm->shares_cores ? 0 : CORES) | (shm->can_read_memory ? READABLE : 0);
    if (bytes > shm->transport.eager_max) needs &= ~(unsigned)(CREDIT | SPACE);
    bool named = choice != NULL && bytes > shm->transport.eager_certain && is_possible(needs, choice->path);
    int path = named ? choice->path : (int)find_row(needs, bytes)->path;
    if (path == TRANSPORT_EAGER) return "eager: copied into the receiver's ring at once";
    if (path == TRANSPORT_READ) return "read: read by the receiver, or copied through the FIFO where that is faster";
    return "fifo: copied through the FIFO of the receiver's ring";
}
