/* Directory of collective segments.
 *
 * One rank of a group reserves an entry with its pages and tells the others (tutti_backend.offer), so either all of
 * them have the segment or none.  An entry is reserved by an exchange of its state, without a lock: slow work such as
 * reserving pages is done by the entry's owner alone.  The last rank to leave releases the entry.  It keeps the pages
 * of some segments reserved for later groups, because reserving and clearing them dominates the cost of creating a
 * group.
 *
 * A rank that dies while reserving leaves a state that names it, and the next rank to look takes the entry over.
 */
#include <poll.h>
#include <string.h>

#include "tcp/shm/coll/coll.h"

enum { FREE, TAKEN, TAKING /* plus the local_rank */ };
enum { KEEP_BYTES = 16 << 20 }; /* pages of free segments */

/* True if the rank that is reserving an entry has died. */
static bool owner_has_died(const struct shm *shm, uint32_t state)
{
    uint32_t local_rank = state - TAKING;
    if (local_rank == (uint32_t)shm->local_rank) return true; /* interrupted by this rank's own failure */
    if (local_rank >= (uint32_t)shm->n) return true;
    struct pollfd liveness = {shm->peer[local_rank].liveness_fd, POLLIN, 0};
    return poll(&liveness, 1, 0) > 0;
}

static bool try_reserve(const struct shm *shm, struct shm_directory_entry *entry)
{
    uint32_t mine = TAKING + (uint32_t)shm->local_rank;
    uint32_t found = atomic_load_explicit(&entry->state, memory_order_relaxed); /* only a hint */
    if (found == TAKEN || (found != FREE && !owner_has_died(shm, found))) return false;
    /* acquire: everything the previous group's ranks did in the segment happens before */
    return atomic_compare_exchange_strong_explicit(&entry->state, &found, mine, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Prefers entries with pages. */
static int reserve_any(const struct shm *shm)
{
    struct shm_directory_entry *entry = shm_directory(shm)->entry;
    for (int pages = 1; pages >= 0; pages--)
        for (int i = 0; i < SHM_SEGMENTS; i++)
            if ((entry[i].has_pages != 0) == pages && try_reserve(shm, &entry[i])) return i;
    return COLL_ABSENT;
}

/* Resets a segment: no rank has posted any step. */
static void clear_steps(const struct shm *shm, int index, int n)
{
    struct coll_segment segment = {.slots = (char *)shm_coll_at(shm, index) + SHM_LINE};
    memset(shm_coll_at(shm, index), 0, SHM_LINE);
    for (int rank = 0; rank < n; rank++)
        for (uint64_t i = 0; i < COLL_SLOTS;
             i++) /* relaxed: the group's ranks learn of the segment through a message */
            atomic_store_explicit(&coll_slot_of(&segment, rank, i)->step, 0, memory_order_relaxed);
}

static void publish_entry(struct shm_directory_entry *entry, uint32_t state)
{
    atomic_store_explicit(&entry->state, state,
                          memory_order_release); /* publishes the entry and the segment's contents */
}

int coll_directory_reserve(struct shm *shm, int n)
{
    int index = reserve_any(shm);
    if (index == COLL_ABSENT) return COLL_ABSENT;
    struct shm_directory_entry *entry = &shm_directory(shm)->entry[index];
    if (entry->has_pages)
        clear_steps(shm, index, n);
    else
        entry->has_pages = shm_coll_reserve(shm, index);
    atomic_store_explicit(&entry->left, 0, memory_order_relaxed); /* as the steps */
    bool taken = entry->has_pages;
    publish_entry(entry, taken ? TAKEN : FREE);
    return taken ? index : COLL_ABSENT;
}

bool coll_directory_has(const struct shm *shm, int index)
{
    return atomic_load_explicit(&shm_directory(shm)->entry[index].state, memory_order_acquire) == TAKEN;
}

/* True if this entry's pages may stay reserved for the next group. */
static bool may_keep_pages(const struct shm *shm)
{
    size_t kept = shm->coll_span;
    const struct shm_directory_entry *entry = shm_directory(shm)->entry;
    for (int i = 0; i < SHM_SEGMENTS; i++)
        if (entry[i].has_pages && atomic_load_explicit(&entry[i].state, memory_order_relaxed) == FREE)
            kept += shm->coll_span;
    return kept <= KEEP_BYTES;
}

void coll_directory_leave(struct shm *shm, int index, int n)
{
    struct shm_directory_entry *entry = &shm_directory(shm)->entry[index];
    /* release for this rank's accesses, acquire for those of the others when the last rank hands the segment on */
    if (atomic_fetch_add_explicit(&entry->left, 1, memory_order_acq_rel) + 1 != (uint32_t)n) return;
    if (!may_keep_pages(shm) && shm_coll_release(shm, index)) entry->has_pages = 0;
    publish_entry(entry, FREE);
}
