/* Which groups have boards.
 *
 * The first rank of a group to come takes an entry, with pages for the board or without; the others find it.  Where all
 * entries are taken the directory is marked full for good: a group without an entry then has no board, whoever asks.
 * It is looked at under a lock, held for microseconds; of a rank that dies with it the next one inherits it.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "board.h"

enum {
    LOCK_MS = 10000 /* of a rank that is stopped with it: then this group has no board here, and its calls differ */
};

bool board_directory_make(struct shm *shm)
{
    pthread_mutexattr_t attributes;
    if (pthread_mutexattr_init(&attributes) != 0) return false;
    bool made = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                pthread_mutex_init(&shm_directory(shm)->lock, &attributes) == 0;
    pthread_mutexattr_destroy(&attributes);
    return made;
}

static bool lock(const struct shm *shm)
{
    struct shm_directory *directory = shm_directory(shm);
    int64_t end = shm->config.host->now_ns() + (int64_t)LOCK_MS * 1000000;
    int error;
    while ((error = pthread_mutex_trylock(&directory->lock)) == EBUSY) {
        if (shm->config.host->now_ns() > end) return false;
        sched_yield();
    }
    /* An entry is taken last of all, so what the dead left is a directory without it, or with all of it. */
    if (error == EOWNERDEAD) error = pthread_mutex_consistent(&directory->lock);
    return error == 0;
}

static void unlock(const struct shm *shm)
{
    pthread_mutex_unlock(&shm_directory(shm)->lock);
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
    if (!lock(shm)) return -1;
    const struct shm_entry *entry = find_entry(shm, id);
    int index = entry != NULL && entry->has_pages ? (int)(entry - shm_directory(shm)->entry) : -1;
    unlock(shm);
    return index;
}

void board_directory_leave(struct shm *shm, int index, int n)
{
    if (!lock(shm)) return;
    struct shm_entry *entry = &shm_directory(shm)->entry[index];
    if (++entry->left == n && shm_release_board(shm, index)) entry->taken = false;
    unlock(shm);
}
