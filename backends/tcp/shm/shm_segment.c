/* The segment: size, creation, layout, and reading another rank's memory. */
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
    FEW = 8, /* ranks up to which rings have full size; the number of rings grows with the square, so more ranks get
                smaller ones */
    CELLS = 64,
    CELLS_LEAST = 16,
    RING_BYTES = 256 << 10,
    RING_BYTES_LEAST = 4 << 10,
    WINDOW_BYTES = 256 << 10,
    WINDOW_BYTES_LEAST = 1 << 10,
    PAGE = 4096 /* boards are released by pages; larger pages only waste some */
};

void shm_measure(struct shm *shm, int n, size_t group_bytes)
{
    shm->n = n;
    shm->cells = CELLS;
    shm->ring_bytes = RING_BYTES;
    shm->window_bytes = WINDOW_BYTES;
    for (int many = FEW; many < n; many *= 2) {
        if (shm->cells > CELLS_LEAST) shm->cells /= 2;
        if (shm->ring_bytes > RING_BYTES_LEAST) shm->ring_bytes /= 4;
        if (shm->window_bytes > WINDOW_BYTES_LEAST) shm->window_bytes /= 4;
    }
    size_t bytes = shm->ring_bytes + shm->window_bytes;
    shm->ring_span = sizeof(struct shm_ring) + shm->cells * sizeof(struct shm_cell) + bytes;
    shm->ring_span = (shm->ring_span + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
    shm->rings_at = (size_t)n * sizeof(struct shm_seat) + sizeof(struct shm_directory);
    shm->boards_at = shm->rings_at + (size_t)n * (size_t)n * shm->ring_span;
    shm->boards_at = (shm->boards_at + PAGE - 1) / PAGE * PAGE;
    shm->board_span = (group_bytes + PAGE - 1) / PAGE * PAGE;
    shm->bytes = shm->boards_at + SHM_BOARDS * shm->board_span;
}

size_t shm_allowed(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)limit.rlim_cur;
}

int shm_segment_make(size_t bytes, size_t reserved)
{
    if (bytes > shm_allowed(RLIMIT_FSIZE)) { /* ftruncate would raise SIGXFSZ */
        errno = EFBIG;
        return -1;
    }
    int fd = memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    /* fallocate reserves the pages now: a lack of memory is an error here, and no later access fails. */
    if (ftruncate(fd, (off_t)bytes) == 0 && (reserved == 0 || fallocate(fd, 0, 0, (off_t)reserved) == 0) &&
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
    return (struct shm_directory *)(void *)shm_seat_at(shm, shm->n);
}

static struct shm_ring *ring_at(const struct shm *shm, int from, int to)
{
    char *rings = shm->base + shm->rings_at;
    return (struct shm_ring *)(void *)(rings + (size_t)(from * shm->n + to) * shm->ring_span);
}

/* ---- boards ------------------------------------------------------------------------------------------------ */

void *shm_board_at(const struct shm *shm, int board)
{
    return shm->base + shm->boards_at + (size_t)board * shm->board_span;
}

static bool change_board(struct shm *shm, int board, int how)
{
    if (shm_is_disowned(shm)) {
        errno = EBADF;
        return false;
    }
    off_t at = (off_t)(shm->boards_at + (size_t)board * shm->board_span);
    return fallocate(shm->memfd, how, at, (off_t)shm->board_span) == 0;
}

bool shm_reserve_board(struct shm *shm, int board)
{
    if (change_board(shm, board, 0)) return true;
    shm->board_refused = errno;
    return false;
}

bool shm_release_board(struct shm *shm, int board)
{
    return change_board(shm, board, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
}

bool shm_map(struct shm *shm)
{
    void *base = mmap(NULL, shm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm->memfd, 0);
    if (base == MAP_FAILED) return false;
    shm->base = base;
    shm->home = -1;
    struct shm_seat *seat = shm_seat_at(shm, shm->seat);
    seat->pid = getpid();
    if (sched_getaffinity(0, sizeof seat->cores, &seat->cores) != 0)
        CPU_ZERO(&seat->cores); /* the mask exceeds cpu_set_t */
    seat->probe_at = (uint64_t)(uintptr_t)shm->probe;
    shm->config.host->random(shm->probe, sizeof shm->probe);
    memcpy(seat->probe, shm->probe, sizeof shm->probe);
    for (int i = 0; i < shm->n; i++) {
        shm->peer[i].out = ring_at(shm, shm->seat, i);
        shm->peer[i].in = ring_at(shm, i, shm->seat);
    }
    return true;
}

/* ---- single-copy read ---------------------------------------------------------------------------------------- */

bool shm_pull(struct shm *shm, int seat, void *to, uint64_t from, size_t bytes)
{
    char *at = to;
    const void *mapped = shm_reach(shm, seat, from, bytes);
    if (mapped != NULL) {
        memcpy(to, mapped, bytes);
        return true;
    }
    while (bytes > 0) {
        struct iovec mine = {at, bytes}, theirs = {(void *)(uintptr_t)from, bytes};
        ssize_t got = process_vm_readv(shm->peer[seat].pid, &mine, 1, &theirs, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        from += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return true;
}

bool shm_probe(struct shm *shm, const bool *present)
{
    if (!tutti_env_bool(shm->config.host, "TUTTI_SHM_CMA", true)) return false;
    for (int i = 0; i < shm->n; i++) {
        struct shm_seat *seat = shm_seat_at(shm, i);
        uint8_t found[WIRE_NONCE];
        if (i == shm->seat || !present[i]) continue;
        shm->peer[i].pid = seat->pid;
        if (!shm_pull(shm, i, found, seat->probe_at, sizeof found)) return false;
        if (memcmp(found, seat->probe, sizeof found) != 0) return false;
    }
    return true;
}
