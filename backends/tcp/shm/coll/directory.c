/* Directory of collective segments.
 *
 * One rank of a group reserves an entry, with memory for the group's ranks, and sends its index to the others
 * (tutti_backend.offer), so either all of them have the segment or none.  A rank reserves an entry by an atomic
 * exchange of its state, without a lock.  Only the entry's owner then does slow work such as taking memory.  The last
 * rank to leave releases the entry.  Some segments keep their memory for later groups, because taking and clearing
 * memory dominates the cost of creating a group.
 *
 * Each group counts its steps on from those of the segment's earlier groups, so nothing that these have written is
 * taken for the group's own.
 *
 * A rank that dies while it reserves an entry leaves a state that names it.  The next rank that finds this state takes
 * the entry over.
 */
#include <poll.h>
#include <string.h>

#include "tcp/shm/coll/coll.h"

enum { FREE, RESERVED, RESERVING /* plus the local rank of the owner */ };
enum { KEEP_BYTES = 40 << 20 }; /* maximum bytes of pages kept in free segments */
#define LAST_MOST (UINT64_MAX / 2)

/* True if the rank that is reserving an entry has died. */
static bool owner_has_died(const struct shm *shm, uint32_t state)
{
    uint32_t local_rank = state - RESERVING;
    if (local_rank == (uint32_t)shm->local_rank) return true; /* left over from a failure of this rank itself */
    if (local_rank >= (uint32_t)shm->n) return true;
    struct pollfd liveness = {shm->peer[local_rank].liveness_fd, POLLIN, 0};
    return poll(&liveness, 1, 0) > 0;
}

static bool try_reserve(const struct shm *shm, struct shm_directory_entry *entry)
{
    uint32_t mine = RESERVING + (uint32_t)shm->local_rank;
    uint32_t found = atomic_load_explicit(&entry->state, memory_order_relaxed); /* only a hint */
    if (found == RESERVED || (found != FREE && !owner_has_died(shm, found))) return false;
    /* acquire: pairs with publish_entry; the previous group's accesses to the segment happen before */
    return atomic_compare_exchange_strong_explicit(&entry->state, &found, mine, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Returns the bytes of the memory that a segment has: a hint to those that have not reserved the entry. */
static uint64_t bytes_of(const struct shm_directory_entry *entry)
{
    return atomic_load_explicit(&entry->bytes, memory_order_relaxed);
}

/* Says how well an entry suits a group that needs this much memory.  If the entry has so much, or more, nothing must be
 * taken.  0: it has none. */
static int fit_of(const struct shm_directory_entry *entry, size_t need)
{
    uint64_t has = bytes_of(entry);
    return has == need ? 3 : has > need ? 2 : has > 0;
}

/* Reserves a free entry, the one that suits best.  Returns its index, or COLL_ABSENT. */
static int reserve_any(const struct shm *shm, int n)
{
    struct shm_directory_entry *entry = shm_directory(shm)->entry;
    size_t need = coll_group_bytes(n);
    for (int fit = 3; fit >= 0; fit--)
        for (int i = 0; i < SHM_SEGMENTS; i++)
            if (fit_of(&entry[i], need) == fit && try_reserve(shm, &entry[i])) return i;
    return COLL_ABSENT;
}

static void publish_entry(struct shm_directory_entry *entry, uint32_t state)
{
    /* release: publishes the entry and the segment's contents */
    atomic_store_explicit(&entry->state, state, memory_order_release);
}

/* Takes the memory that a group of n ranks needs, unless the segment has it.  Returns false on failure. */
static bool take_memory(struct shm *shm, int index, int n)
{
    struct shm_directory_entry *entry = &shm_directory(shm)->entry[index];
    size_t need = coll_group_bytes(n);
    if (bytes_of(entry) >= need) return true;
    if (!shm_coll_reserve(shm, index, need)) return false;
    atomic_store_explicit(&entry->bytes, need, memory_order_relaxed); /* relaxed: publish_entry releases it */
    return true;
}

/* Forgets the memory first, so that nobody relies on it if this rank dies meanwhile. */
static void release_memory(struct shm *shm, int index)
{
    atomic_store_explicit(&shm_directory(shm)->entry[index].bytes, 0, memory_order_relaxed); /* relaxed: as above */
    (void)shm_coll_release(shm, index);
}

/* Makes a segment ready for a group of n ranks.  Its steps follow those of the earlier groups.  What the last one left
 * is cleared if that had another layout, or if it left, by a faulty rank, a count that none reaches.  Returns false if
 * there is no memory. */
static bool prepare(struct shm *shm, int index, int n)
{
    struct shm_directory_entry *entry = &shm_directory(shm)->entry[index];
    if (!take_memory(shm, index, n)) return false;
    /* relaxed, all: publish_entry releases the stores; reserve_any has acquired the last group's */
    uint64_t last = atomic_load_explicit(&entry->last, memory_order_relaxed);
    if (entry->ranks != (uint32_t)n || last > LAST_MOST) {
        coll_clear_steps(shm, index, n);
        last = last > LAST_MOST ? 0 : last;
    }
    memset(shm_coll_at(shm, index), 0, COLL_WORDS);
    entry->ranks = (uint32_t)n;
    entry->first = last + 1;
    atomic_store_explicit(&entry->last, last, memory_order_relaxed);
    atomic_store_explicit(&entry->left, 0, memory_order_relaxed);
    return true;
}

int coll_directory_reserve(struct shm *shm, int n)
{
    int index = reserve_any(shm, n);
    if (index == COLL_ABSENT) return COLL_ABSENT;
    bool prepared = prepare(shm, index, n);
    if (!prepared) release_memory(shm, index);
    publish_entry(&shm_directory(shm)->entry[index], prepared ? RESERVED : FREE);
    return prepared ? index : COLL_ABSENT;
}

bool coll_directory_has(const struct shm *shm, int index)
{
    return atomic_load_explicit(&shm_directory(shm)->entry[index].state, memory_order_acquire) == RESERVED;
}

uint64_t coll_directory_first(const struct shm *shm, int index)
{
    return shm_directory(shm)->entry[index].first;
}

/* True if the pages of another free entry may stay reserved. */
static bool may_keep_pages(const struct shm *shm, const struct shm_directory_entry *another)
{
    uint64_t kept = bytes_of(another);
    const struct shm_directory_entry *entry = shm_directory(shm)->entry;
    for (int i = 0; i < SHM_SEGMENTS; i++)
        if (atomic_load_explicit(&entry[i].state, memory_order_relaxed) == FREE) kept += bytes_of(&entry[i]);
    return kept <= KEEP_BYTES;
}

/* Raises a number that several ranks may raise at once. */
static void raise_to(_Atomic uint64_t *number, uint64_t to)
{
    uint64_t found = atomic_load_explicit(number, memory_order_relaxed);
    while (found < to &&
           !atomic_compare_exchange_weak_explicit(number, &found, to, memory_order_relaxed,
                                                  memory_order_relaxed)) /* relaxed: its caller releases it */
        continue;
}

void coll_directory_leave(struct shm *shm, int index, int n, uint64_t last)
{
    struct shm_directory_entry *entry = &shm_directory(shm)->entry[index];
    raise_to(&entry->last, last);
    /* release: this rank's accesses; acquire: those of the others, before the last rank frees the segment */
    if (atomic_fetch_add_explicit(&entry->left, 1, memory_order_acq_rel) + 1 != (uint32_t)n) return;
    if (!may_keep_pages(shm, entry)) release_memory(shm, index);
    publish_entry(entry, FREE);
}
