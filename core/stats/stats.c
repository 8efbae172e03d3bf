#include "stats/stats.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/env.h"
#include "base/file_limit.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/text.h"
#include "portable/files.h"

enum { FILE_BYTES = sizeof(tutti_stats_page) + TUTTI_STATS_SLOTS * sizeof(tutti_stats_slot) };

/* The process's file.  A forked child leaves its parent's alone and makes its own. */
static struct {
    tutti_stats_page *page; /* NULL: none */
    int fd, n_used;
    bool is_parents; /* this process is a fork of the one that made it */
} file;
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;

/* Another thread of the parent may have held the lock.  The file is the parent's, so the child makes its own. */
static void reset_in_child(void)
{
    pthread_mutex_init(&file_lock, NULL);
    file.is_parents = true;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, reset_in_child);
}

static tutti_stats_slot *slots_of(tutti_stats_page *page)
{
    return (tutti_stats_slot *)(void *)((char *)page + page->first);
}

static tutti_stats_slot *slot_of(tutti_stats *stats)
{
    return (tutti_stats_slot *)(void *)((char *)stats - offsetof(tutti_stats_slot, stats));
}

/* Makes the file.  Returns false if there is to be none, or the system refuses it. */
static bool open_file(void)
{
    if (!env_bool("TUTTI_STATS", true) || !file_limit_allows(FILE_BYTES)) return false;
    int fd = files_published(TUTTI_STATS_FILE);
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, FILE_BYTES) == 0)
        memory = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        if (fd >= 0) close(fd);
        log_write(LOG_DEBUG, LOG_OP, "cannot publish counters: tutti-info --watch does not see this process");
        return false;
    }
    forked_gives_up(fd); /* otherwise a reader would find it in the child, too */
    file.page = memory;
    file.fd = fd;
    file.n_used = 0;
    file.is_parents = false;
    *file.page = (tutti_stats_page){.version = TUTTI_STATS_VERSION,
                                    .slot_bytes = sizeof(tutti_stats_slot),
                                    .n_slots = TUTTI_STATS_SLOTS,
                                    .first = sizeof *file.page,
                                    .pid = getpid()};
    /* release: pairs with is_valid's acquire in tools/info/watch.c */
    __atomic_store_n(&file.page->magic, TUTTI_STATS_MAGIC, __ATOMIC_RELEASE);
    return true;
}

static void close_file(void)
{
    forked_forgets(file.fd);
    file.page->magic = 0; /* a reader that has mapped it looks for a new one */
    munmap(file.page, FILE_BYTES);
    close(file.fd);
    file.page = NULL;
}

/* Returns a free slot, or NULL.  Lock held. */
static tutti_stats_slot *take_published(void)
{
    if ((file.page == NULL || file.is_parents) && !open_file()) return NULL;
    for (int i = 0; i < TUTTI_STATS_SLOTS; i++) {
        tutti_stats_slot *slot = &slots_of(file.page)[i];
        if (slot->used) continue;
        memset(slot, 0, sizeof *slot);
        file.n_used++;
        return slot;
    }
    return NULL;
}

static bool is_published(const tutti_stats_slot *slot)
{
    const char *begin = (const char *)file.page, *at = (const char *)slot;
    return begin != NULL && at >= begin && at < begin + FILE_BYTES;
}

tutti_stats *stats_take(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&file_lock);
    tutti_stats_slot *slot = take_published();
    if (slot == NULL) slot = calloc(1, sizeof *slot);
    if (slot != NULL) slot->rank = slot->world = slot->global_rank = -1;
    if (slot != NULL) slot->used = 1;
    pthread_mutex_unlock(&file_lock);
    return slot != NULL ? &slot->stats : NULL;
}

void stats_give(tutti_stats *stats)
{
    if (stats == NULL) return;
    tutti_stats_slot *slot = slot_of(stats);
    pthread_mutex_lock(&file_lock);
    if (is_published(slot)) {
        slot->used = 0;
        if (--file.n_used == 0) close_file();
    } else {
        free(slot);
    }
    pthread_mutex_unlock(&file_lock);
}

void stats_label(tutti_stats *stats, const char *name, int rank, int world, int global_rank, bool is_tree)
{
    tutti_stats_slot *slot = slot_of(stats);
    text_copy(slot->name, sizeof slot->name, name);
    slot->rank = rank;
    slot->world = world;
    slot->global_rank = global_rank;
    slot->is_tree = is_tree;
}
