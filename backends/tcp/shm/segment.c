/* The segment: its size, layout and creation, and reads of another rank's memory. */
#include "tcp/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    SLOTS = 64,
    SLOTS_MIN = 16,
    SLOTS_TOTAL = 64 << 20, /* the bytes of all slots */
    AREA = 256 << 10,       /* a ring's byte area, and its FIFO */
    AREA_MIN = 4 << 10,
    AREAS_TOTAL = sizeof(void *) == 4 ? 64 << 20 : 512 << 20, /* all byte areas, and likewise all FIFOs */
    PAGE = 4096, /* unit in which memory is taken and released; larger pages only waste memory */
    /* Areas begin here in a page, far from where programs' large buffers begin (16 bytes into one, with malloc).  Near
     * it, long copies could be slow, and even tutti_copy takes longer: see tutti_copy_is_slow. */
    AREAS_SHIFT = PAGE / 2 + SHM_LINE
};

/* Returns the largest power of two, from least to most, with which n * n of them take `total` at most. */
static size_t divide(size_t total, int n, size_t unit, size_t least, size_t most)
{
    size_t each = total / ((size_t)n * (size_t)n * unit);
    while (most > least && most > each) most /= 2;
    return most;
}

/* The segment has the ranks' entries, the directory, the rings, their areas and the collective segments, in this order.
 * There is a ring for each pair of ranks, but few pairs talk.  So only the slots, which every poll reads, have memory
 * from the start.  A byte area and a FIFO get theirs as messages need it. */
void shm_measure(struct shm *shm, int n, size_t group_bytes)
{
    size_t rings = (size_t)n * (size_t)n;
    shm->n = n;
    shm->slots = divide(SLOTS_TOTAL, n, sizeof(struct shm_slot), SLOTS_MIN, SLOTS);
    shm->ring_bytes = shm->fifo_bytes = divide(AREAS_TOTAL, n, 1, AREA_MIN, AREA);
    shm->ring_span = sizeof(struct shm_ring) + shm->slots * sizeof(struct shm_slot);
    shm->bytes_span = shm->ring_bytes + shm->fifo_bytes;
    shm->rings_at = (size_t)n * sizeof(struct shm_rank) + sizeof(struct shm_directory);
    shm->bytes_at = shm->rings_at + rings * shm->ring_span;
    shm->bytes_at = (shm->bytes_at + PAGE - 1) / PAGE * PAGE + AREAS_SHIFT;
    shm->colls_at = (shm->bytes_at + rings * shm->bytes_span + PAGE - 1) / PAGE * PAGE;
    shm->coll_span = (group_bytes + PAGE - 1) / PAGE * PAGE;
    shm->bytes = shm->colls_at + SHM_SEGMENTS * shm->coll_span;
}

size_t shm_allowed(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)limit.rlim_cur;
}

bool shm_take_pages(int fd, size_t at, size_t bytes)
{
    enum { STEP = 1 << 20 };
    for (size_t step; bytes > 0; at += step, bytes -= step) {
        int result;
        step = bytes < STEP ? bytes : STEP;
        do result = fallocate(fd, 0, (off_t)at, (off_t)step);
        while (result != 0 && errno == EINTR);
        if (result != 0) return false;
    }
    return true;
}

int shm_segment_make(size_t bytes, size_t reserved)
{
    if (bytes > shm_allowed(RLIMIT_FSIZE)) { /* ftruncate would raise SIGXFSZ */
        errno = EFBIG;
        return -1;
    }
    int fd = memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    if (ftruncate(fd, (off_t)bytes) == 0 && shm_take_pages(fd, 0, reserved) &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

bool shm_segment_is_sound(int fd, size_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) return false;
    return fstat(fd, &status) == 0 && (uint64_t)status.st_size == bytes;
}

struct shm_directory *shm_directory(const struct shm *shm)
{
    return (struct shm_directory *)(void *)shm_rank_at(shm, shm->n);
}

/* ---- rings ------------------------------------------------------------------------------------------------- */

static size_t number_of(const struct shm *shm, int from, int to)
{
    return (size_t)from * (size_t)shm->n + (size_t)to;
}

void shm_find_rings(struct shm *shm)
{
    char *rings = shm->base + shm->rings_at, *areas = shm->base + shm->bytes_at;
    for (int i = 0; i < shm->n; i++) {
        struct shm_peer *peer = &shm->peer[i];
        size_t out = number_of(shm, shm->local_rank, i), in = number_of(shm, i, shm->local_rank);
        peer->out = (struct shm_ring *)(void *)(rings + out * shm->ring_span);
        peer->in = (struct shm_ring *)(void *)(rings + in * shm->ring_span);
        peer->out_bytes = areas + out * shm->bytes_span;
        peer->in_bytes = areas + in * shm->bytes_span;
    }
}

static bool take_pages(struct shm *shm, size_t at, size_t bytes)
{
    if (!shm_is_disowned(shm)) return shm_take_pages(shm->memfd, at, bytes);
    errno = EBADF;
    return false;
}

bool shm_reserve(struct shm *shm, int local_rank, size_t at, size_t bytes)
{
    at += shm->bytes_at + number_of(shm, shm->local_rank, local_rank) * shm->bytes_span;
    if (!take_pages(shm, at, bytes)) return false;
    if (shm->config.counters != NULL) shm->config.counters->memory += bytes;
    return true;
}

/* ---- collective segments ------------------------------------------------------------------------------------- */

static size_t coll_at(const struct shm *shm, int index)
{
    return shm->colls_at + (size_t)index * shm->coll_span;
}

void *shm_coll_at(const struct shm *shm, int index)
{
    return shm->base + coll_at(shm, index);
}

bool shm_coll_reserve(struct shm *shm, int index, size_t bytes)
{
    if (take_pages(shm, coll_at(shm, index), bytes)) return true;
    shm->coll_refused = errno;
    return false;
}

bool shm_coll_release(struct shm *shm, int index)
{
    return !shm_is_disowned(shm) && fallocate(shm->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                              (off_t)coll_at(shm, index), (off_t)shm->coll_span) == 0;
}

/* Makes the probe and publishes it.  It has pages of its own, which a forked child sees as zeros: the child has a copy
 * of this rank's data and may get its pid later.  Kernels before 4.14 cannot do that, and the child has the probe. */
static bool publish_probe(struct shm *shm)
{
    struct shm_rank *own = shm_rank_at(shm, shm->local_rank);
    void *probe = mmap(NULL, HANDSHAKE_NONCE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED) return false;
    madvise(probe, HANDSHAKE_NONCE, MADV_WIPEONFORK);
    shm->probe = probe;
    shm->config.host->random(shm->probe, HANDSHAKE_NONCE);
    memcpy(own->probe, shm->probe, HANDSHAKE_NONCE);
    own->probe_at = (uint64_t)(uintptr_t)shm->probe;
    return true;
}

bool shm_map(struct shm *shm)
{
    void *base = mmap(NULL, shm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm->memfd, 0);
    if (base == MAP_FAILED) return false;
    shm->base = base;
    shm->preferred_core = -1;
    struct shm_rank *own = shm_rank_at(shm, shm->local_rank);
    own->pid = getpid();
    if (sched_getaffinity(0, sizeof own->cores, &own->cores) != 0)
        CPU_ZERO(&own->cores); /* the mask exceeds cpu_set_t */
    shm_find_rings(shm);
    return publish_probe(shm);
}

/* ---- single-copy read ---------------------------------------------------------------------------------------- */

/* Copies from the peer's arena.  Returns false if the memory is not in it. */
static bool read_mapped(struct shm *shm, int local_rank, void *to, uint64_t from, size_t bytes)
{
    const void *mapped = shm_arena_at(shm, local_rank, from, bytes);
    if (mapped != NULL) tutti_copy(to, mapped, bytes);
    return mapped != NULL;
}

typedef bool (*read_fn)(struct shm *shm, int local_rank, char *to, uint64_t from, size_t bytes);

/* Reads by way of a place 64 bytes further where the kernel's copy to the place itself would be slow. */
static bool read_around(struct shm *shm, int local_rank, char *to, uint64_t from, size_t bytes, read_fn read)
{
    enum { AWAY = 64, PIECE = 64 << 10 }; /* a piece stays in the cache until it is moved */
    while (tutti_is_slow_distance((size_t)((uintptr_t)to - from), bytes)) {
        size_t now = bytes - AWAY < PIECE ? bytes - AWAY : PIECE;
        if (!read(shm, local_rank, to + AWAY, from, now)) return false;
        memmove(to, to + AWAY, now);
        to += now;
        from += now;
        bytes -= now;
    }
    return read(shm, local_rank, to, from, bytes);
}

static bool read_unverified(struct shm *shm, int local_rank, char *at, uint64_t from, size_t bytes)
{
    while (bytes > 0) {
        struct iovec mine = {at, bytes}, theirs = {(void *)(uintptr_t)from, bytes};
        ssize_t got = process_vm_readv(shm->peer[local_rank].pid, &mine, 1, &theirs, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        from += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return true;
}

bool shm_read_memory(struct shm *shm, int local_rank, void *to, uint64_t from, size_t bytes)
{
    return read_mapped(shm, local_rank, to, from, bytes) ||
           read_around(shm, local_rank, to, from, bytes, read_unverified);
}

/* The kernel looks up the process once in a call, so the probe proves the identity of the data's owner.  That is
 * cheaper than to ask for its liveness.  A call that ends early has met memory that is gone. */
static bool read_verified(struct shm *shm, int local_rank, char *to, uint64_t from, size_t bytes)
{
    const struct shm_rank *rank = shm_rank_at(shm, local_rank);
    uint8_t found[HANDSHAKE_NONCE];
    struct iovec mine[2] = {{to, bytes}, {found, sizeof found}};
    struct iovec theirs[2] = {{(void *)(uintptr_t)from, bytes}, {(void *)(uintptr_t)rank->probe_at, sizeof found}};
    ssize_t got;
    do got = process_vm_readv(shm->peer[local_rank].pid, mine, 2, theirs, 2, 0);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)(bytes + sizeof found) && memcmp(found, rank->probe, sizeof found) == 0;
}

bool shm_read_verified(struct shm *shm, int local_rank, void *to, uint64_t from, size_t bytes)
{
    return read_mapped(shm, local_rank, to, from, bytes) ||
           read_around(shm, local_rank, to, from, bytes, read_verified);
}

bool shm_probe(struct shm *shm, const bool *present)
{
    if (!tutti_env_bool(shm->config.host, "TUTTI_SHM_CMA", true)) return false;
    for (int i = 0; i < shm->n; i++) {
        struct shm_rank *peer = shm_rank_at(shm, i);
        uint8_t found[HANDSHAKE_NONCE];
        if (i == shm->local_rank || !present[i]) continue;
        shm->peer[i].pid = peer->pid;
        if (!shm_read_memory(shm, i, found, peer->probe_at, sizeof found)) return false;
        if (memcmp(found, peer->probe, sizeof found) != 0) return false;
    }
    return true;
}
