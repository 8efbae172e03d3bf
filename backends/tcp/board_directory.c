/* Which groups have boards.
 *
 * The first rank of a group to come takes an entry, with pages for the board or without; the others find it.  Where all
 * entries are taken the directory is marked full for good: a group without an entry then has no board, whoever asks.
 * It is looked at under a lock, held for microseconds.  The lock is a word that says who has it; of a rank that has
 * died with it, or a word that names nobody, the next one takes it over.  A mutex would not do: it keeps pointers in
 * the shared memory, through which a rank that has gone wrong could have another one write anywhere.
 */
#include <poll.h>
#include <sched.h>

#include "board.h"

enum {
    LOCK_MS = 3000, /* of a rank that is stopped with it: then this group has no board here, and its calls differ */
    LEAVE_MS = 500  /* the same, where a group ends: then its board stays taken */
};

/* Whether whom the word names is another rank, and lives. */
static bool may_hold(const struct shm *shm, uint32_t holder)
{
    if (holder == 0 || holder > (uint32_t)shm->n || holder == (uint32_t)shm->seat + 1) return false;
    struct pollfd life = {shm->peer[holder - 1].life, POLLIN, 0};
    return poll(&life, 1, 0) <= 0; /* a signal says nothing of it */
}

static bool lock(const struct shm *shm, int64_t limit_ms)
{
    _Atomic uint32_t *holder = &shm_directory(shm)->holder;
    int64_t end = shm->config.host->now_ns() + limit_ms * 1000000;
    uint32_t found = 0;
    /* acquire: what the one before has written.  An entry is taken last of all, so what the dead left is a directory
     * without it, or with all of it. */
    while (!atomic_compare_exchange_strong_explicit(holder, &found, (uint32_t)shm->seat + 1, memory_order_acquire,
                                                    memory_order_relaxed)) {
        if (shm->config.host->now_ns() > end) return false;
        if (!may_hold(shm, found)) continue; /* it is taken from whom it names */
        sched_yield();
        found = 0;
    }
    return true;
}

static void unlock(const struct shm *shm)
{
    atomic_store_explicit(&shm_directory(shm)->holder, 0, memory_order_release);
}

/* With the lock held. */
static struct shm_entry *find_entry(struct shm *shm, uint64_t id)
{
    struct shm_directory *directory = shm_directory(shm);
    struct shm_entry *spare = NULL;
    for (int i = 0; i < SHM_BOARDS; i++) {
        struct shm_entry *entry = &directory->entry[i];
        if (entry->taken && entry->id == id) return entry;
        if (!entry->taken && spare == NULL) spare = entry;
    }
    if (directory->full || spare == NULL) {
        directory->full = true;
        return NULL;
    }
    spare->id = id;
    spare->left = 0;
    spare->has_pages = shm_reserve_board(shm, (int)(spare - directory->entry));
    spare->taken = true;
    return spare;
}

int board_directory_find(struct shm *shm, uint64_t id)
{
    if (!lock(shm, LOCK_MS)) return -1;
    const struct shm_entry *entry = find_entry(shm, id);
    int index = entry != NULL && entry->has_pages ? (int)(entry - shm_directory(shm)->entry) : -1;
    unlock(shm);
    return index;
}

void board_directory_leave(struct shm *shm, int index, int n)
{
    if (!lock(shm, LEAVE_MS)) return;
    struct shm_entry *entry = &shm_directory(shm)->entry[index];
    if (++entry->left == (uint32_t)n && shm_release_board(shm, index)) entry->taken = false;
    unlock(shm);
}
