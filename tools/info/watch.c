/* The ranks are found through /proc: they descend from the launcher, and each has a file of counters open
 * (tutti/stats.h) that ends with its process.  So there is nothing to clean up after a killed job. */
#include "info/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <tutti/stats.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { RANKS_MAX = 4096 };

/* The counters of one process. */
struct watched {
    pid_t pid;
    const char *page; /* mapped, or NULL */
    size_t size;
    int rank, world;
    uint64_t operations, collectives, last_operations; /* now, and one interval before */
    uint64_t last_bytes;
    tutti_stats sum;
};

static struct watched *ranks;
static int n_ranks;

/* ---- finding ------------------------------------------------------------------------------------------------- */

static bool is_number(const char *text)
{
    return text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
}

/* Returns the parent of a process, or -1. */
static pid_t parent_of(pid_t pid)
{
    char path[64], line[1024];
    int parent = -1;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return -1;
    char *end = fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL; /* the name may contain anything */
    if (end == NULL || sscanf(end + 1, " %*c %d", &parent) != 1) parent = -1;
    fclose(file);
    return (pid_t)parent;
}

static bool descends(pid_t pid, pid_t job)
{
    for (int depth = 0; pid > 1 && depth < 64; depth++) {
        if (pid == job) return true;
        pid = parent_of(pid);
    }
    return false;
}

/* True if the mapped file is what this program reads. */
static bool is_valid(const struct watched *rank)
{
    const tutti_stats_page *page = (const void *)rank->page;
    /* acquire: pairs with open_file's release in core/stats/stats.c */
    return __atomic_load_n(&page->magic, __ATOMIC_ACQUIRE) == TUTTI_STATS_MAGIC &&
           page->version == TUTTI_STATS_VERSION && page->pid == rank->pid &&
           page->slot_bytes >= sizeof(tutti_stats_slot) && page->slot_bytes % 8 == 0 && page->first % 8 == 0 &&
           page->first <= rank->size && page->n_slots <= (rank->size - page->first) / page->slot_bytes;
}

static bool map_file(struct watched *rank, const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    rank->size = fstat(fd, &info) == 0 ? (size_t)info.st_size : 0;
    void *memory =
        rank->size >= sizeof(tutti_stats_page) ? mmap(NULL, rank->size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (memory == MAP_FAILED) return false;
    rank->page = memory;
    if (is_valid(rank)) return true;
    munmap(memory, rank->size);
    rank->page = NULL;
    return false;
}

/* Looks for the file of counters among the process's descriptors. */
static bool find_file(struct watched *rank)
{
    static const char name[] = "/memfd:" TUTTI_STATS_FILE;
    char folder[64], path[512], target[128];
    bool found = false;
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)rank->pid);
    DIR *all = opendir(folder);
    for (struct dirent *entry; all != NULL && !found && (entry = readdir(all)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < (ssize_t)strlen(name) || strncmp(target, name, strlen(name)) != 0) continue;
        found = map_file(rank, path);
    }
    if (all != NULL) closedir(all);
    return found;
}

static bool is_known(pid_t pid)
{
    for (int i = 0; i < n_ranks; i++)
        if (ranks[i].pid == pid) return true;
    return false;
}

static void find_ranks(pid_t job)
{
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all != NULL && n_ranks < RANKS_MAX && (entry = readdir(all)) != NULL;) {
        pid_t pid = is_number(entry->d_name) ? (pid_t)atoi(entry->d_name) : 0;
        if (pid <= 0 || pid == getpid() || is_known(pid) || !descends(pid, job)) continue;
        struct watched rank = {.pid = pid};
        if (find_file(&rank)) ranks[n_ranks++] = rank;
    }
    if (all != NULL) closedir(all);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static void add_slot(struct watched *rank, const tutti_stats_slot *slot)
{
    for (int kind = 0; kind < TUTTI_STATS_KINDS; kind++) {
        rank->sum.operations[kind] += slot->stats.operations[kind];
        rank->operations += slot->stats.operations[kind];
        if (tutti_kind_is_collective((tutti_kind)kind)) rank->collectives += slot->stats.operations[kind];
    }
    rank->sum.failed += slot->stats.failed;
    if (!slot->is_tree) return;
    rank->sum.waits += slot->stats.waits;
    rank->sum.sleeps += slot->stats.sleeps;
    rank->sum.transport.shared.sent += slot->stats.transport.shared.sent;
    rank->sum.transport.wire.sent += slot->stats.transport.wire.sent + slot->stats.transport.library.sent;
    rank->sum.transport.retries += slot->stats.transport.retries;
    rank->sum.transport.memory += slot->stats.transport.memory;
    if (slot->world < rank->world) return; /* the largest tree names the rank */
    rank->rank = slot->global_rank;
    rank->world = slot->world;
}

/* Reads the counters of a process.  Returns false if it has ended. */
static bool read_rank(struct watched *rank)
{
    const tutti_stats_page *page = (const void *)rank->page;
    if (kill(rank->pid, 0) != 0 && errno == ESRCH) return false;
    if (!is_valid(rank)) return false;
    rank->sum = (tutti_stats){0};
    rank->operations = rank->collectives = 0;
    rank->rank = rank->world = -1;
    for (uint32_t i = 0; i < page->n_slots; i++) {
        const tutti_stats_slot *slot = (const void *)(rank->page + page->first + (size_t)i * page->slot_bytes);
        if (slot->used) add_slot(rank, slot);
    }
    return true;
}

static void forget(int i)
{
    munmap((void *)(uintptr_t)ranks[i].page, ranks[i].size);
    ranks[i] = ranks[--n_ranks];
}

static int by_rank(const void *a, const void *b)
{
    const struct watched *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : (x->pid > y->pid) - (x->pid < y->pid);
}

/* ---- printing ------------------------------------------------------------------------------------------------ */

static void print_rank(struct watched *rank, double seconds)
{
    uint64_t bytes = rank->sum.transport.shared.sent + rank->sum.transport.wire.sent;
    bool first = rank->last_operations == 0;
    double per_s = first ? 0 : (double)(rank->operations - rank->last_operations) / seconds;
    double mb_s = first ? 0 : (double)(bytes - rank->last_bytes) / seconds / 1e6;
    printf("%5d %8d %12" PRIu64 " %10.0f %10" PRIu64 " %12.1f %12.1f %10.1f %10" PRIu64 " %10" PRIu64 " %8" PRIu64
           " %7" PRIu64 " %8.1f\n",
           rank->rank, (int)rank->pid, rank->operations, per_s, rank->collectives,
           (double)rank->sum.transport.shared.sent / 1e6, (double)rank->sum.transport.wire.sent / 1e6, mb_s,
           rank->sum.waits, rank->sum.sleeps, rank->sum.transport.retries, rank->sum.failed,
           (double)rank->sum.transport.memory / 1e6);
    rank->last_operations = rank->operations;
    rank->last_bytes = bytes;
}

static void print_all(double seconds)
{
    printf("%5s %8s %12s %10s %10s %12s %12s %10s %10s %10s %8s %7s %8s\n", "rank", "process", "operations", "per s",
           "collective", "shared MB", "wire MB", "MB/s", "waits", "sleeps", "retries", "failed", "mem MB");
    qsort(ranks, (size_t)n_ranks, sizeof *ranks, by_rank);
    for (int i = 0; i < n_ranks; i++) print_rank(&ranks[i], seconds);
    printf("\n");
    fflush(stdout);
}

int watch_job(const char *job, int interval_ms, int count)
{
    pid_t pid = is_number(job) ? (pid_t)atoi(job) : 0;
    struct timespec interval = {interval_ms / 1000, interval_ms % 1000 * 1000000L};
    bool any = false;
    if (pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH)) {
        fprintf(stderr, "tutti-info: there is no process %s; give the process id of tutti-run, or of a rank\n", job);
        return 1;
    }
    ranks = calloc(RANKS_MAX, sizeof *ranks);
    if (ranks == NULL) return 1;
    for (int round = 0; count == 0 || round < count; round++) {
        if (round > 0) nanosleep(&interval, NULL);
        find_ranks(pid);
        for (int i = n_ranks; i-- > 0;)
            if (!read_rank(&ranks[i])) forget(i);
        if (n_ranks > 0) print_all((double)interval_ms / 1e3);
        any |= n_ranks > 0;
        if (kill(pid, 0) != 0) break; /* the launcher has ended */
    }
    if (!any) fprintf(stderr, "tutti-info: no process of %s has counters (TUTTI_STATS=0, or another user's)\n", job);
    free(ranks);
    return any ? 0 : 1;
}
