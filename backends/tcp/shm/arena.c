/* Memory for tensors that all ranks of the host map.  It backs tutti_alloc.
 *
 * Every rank has an arena, a memfd that the ranks exchange when they attach each other.  Its size is large, fixed and
 * sealed, and costs nothing.  Pages are reserved per block with fallocate, so a lack of memory is an error at
 * allocation and never at access.  Freeing punches a hole.  The owner reserves addresses for the whole arena once and
 * publishes the base in its entry.  The base alone tells whether a peer's address is inside its arena, so no table of
 * blocks needs to be kept in sync.  A peer maps, read-only, as much of the arena as it has read from.  Memory that is
 * freed and allocated again at the same address is the same pages of the same file on all ranks.
 *
 * Addresses come from shared memory, so they are trusted only up to the arena's sealed size: any such page exists or
 * reads as zeros.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tcp/shm/shm.h"

#define ARENA_BYTES_MAX ((uint64_t)1 << (sizeof(size_t) < 8 ? 28 : 40)) /* of the address space */
#define GROW_MIN ((size_t)64 << 20) /* minimum growth of the mapping of a peer's arena */

struct shm_block {
    TAILQ_ENTRY(shm_block) link;
    size_t at, bytes;
};

/* ---- creation ------------------------------------------------------------------------------------------------ */

static size_t round_up(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Returns the size of physical memory, at most 1 TiB, or 256 MiB on 32 bits.  It is equal on all ranks of a host, and
 * allocations cannot exceed it. */
size_t shm_arena_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    uint64_t bytes = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    return (size_t)(bytes < ARENA_BYTES_MAX ? bytes : ARENA_BYTES_MAX);
}

int shm_arena_make(void)
{
    size_t bytes = shm_arena_bytes();
    return shm_segment_make(bytes <= shm_allowed(RLIMIT_FSIZE) ? bytes : 0, 0);
}

bool shm_arena_is_sound(int fd)
{
    size_t bytes = shm_arena_bytes();
    return bytes > 0 && shm_segment_is_sound(fd, bytes);
}

/* ---- this rank's arena --------------------------------------------------------------------------------------- */

static int fd_of(const struct shm *shm)
{
    return shm->peer[shm->local_rank].arena_fd;
}

/* Reserves addresses for the whole arena, without memory. */
static bool reserve_addresses(struct shm *shm)
{
    struct shm_arena *arena = &shm->arena;
    /* A quarter leaves most of the address space to the program. */
    size_t bytes = shm_arena_bytes(), quarter = round_up(shm_allowed(RLIMIT_AS) / 4);
    if (arena->base != NULL) return true;
    if (!shm->can_share || shm_is_disowned(shm)) return false;
    if (bytes > quarter) bytes = quarter;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd_of(shm), 0);
    if (base == MAP_FAILED) return false;
    madvise(base, bytes, MADV_DONTDUMP); /* otherwise a core dump would include all holes */
    arena->base = base;
    arena->bytes = bytes;
    /* release: a rank that reads an address inside the arena also sees the base */
    atomic_store_explicit(&shm_rank_at(shm, shm->local_rank)->arena_at, (uint64_t)(uintptr_t)base,
                          memory_order_release);
    return true;
}

/* Finds the first gap that is large enough.  *before is the block after it, or NULL at the end. */
static bool find_gap(const struct shm_arena *arena, size_t bytes, size_t *at, struct shm_block **before)
{
    *at = 0;
    TAILQ_FOREACH(*before, &arena->blocks, link)
    {
        if ((*before)->at - *at >= bytes) return true;
        *at = (*before)->at + (*before)->bytes;
    }
    return arena->bytes - *at >= bytes;
}

/* Returns the memory that the host can provide by its own estimate, or SIZE_MAX if unknown.  Reserving more would
 * trigger the OOM killer long before an error. */
static size_t available_memory(void)
{
    char line[128];
    unsigned long long kilobytes;
    size_t found = SIZE_MAX;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && found == SIZE_MAX && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) found = (size_t)kilobytes << 10;
    if (file != NULL) fclose(file);
    return found;
}

static void release_pages(struct shm *shm, const struct shm_block *block)
{
    mprotect(shm->arena.base + block->at, block->bytes, PROT_NONE);
    /* While a peer may be reading, the pages must stay, and they serve the next block. */
    if (!shm->arena.is_read && !shm_is_disowned(shm))
        fallocate(fd_of(shm), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)block->at, (off_t)block->bytes);
}

static bool reserve_pages(struct shm *shm, const struct shm_block *block)
{
    char *at = shm->arena.base + block->at;
    if (shm_is_disowned(shm)) {
        errno = EBADF;
        return false;
    }
    if (shm_take_pages(fd_of(shm), block->at, block->bytes) &&
        mprotect(at, block->bytes, PROT_READ | PROT_WRITE) == 0) {
        madvise(at, block->bytes, MADV_DODUMP);
        return true;
    }
    int error = errno;
    release_pages(shm, block);
    errno = error;
    return false;
}

int shm_alloc(struct shm *shm, size_t bytes, void **memory)
{
    const tutti_host *host = shm->config.host;
    struct shm_block *before, *block;
    size_t at, left;
    if (!reserve_addresses(shm)) return TUTTI_ERR_UNSUPPORTED;
    if (bytes > shm->arena.bytes)
        return host->error(TUTTI_ERR_NO_MEMORY,
                           "alloc: %zu bytes exceed the %zu that a rank can share on this host; allocate less", bytes,
                           shm->arena.bytes);
    bytes = round_up(bytes > 0 ? bytes : 1);
    if (!find_gap(&shm->arena, bytes, &at, &before))
        return host->error(TUTTI_ERR_NO_MEMORY,
                           "alloc: no gap of %zu bytes in the %zu that a rank can share; free some memory first", bytes,
                           shm->arena.bytes);
    if ((left = available_memory()) < bytes)
        return host->error(
            TUTTI_ERR_NO_MEMORY,
            "alloc: %zu bytes of shared memory requested, but only %zu are available; free memory on this host", bytes,
            left);
    block = malloc(sizeof *block);
    if (block == NULL) return host->error(TUTTI_ERR_NO_MEMORY, "alloc: no memory for a block descriptor");
    block->at = at;
    block->bytes = bytes;
    if (!reserve_pages(shm, block)) {
        free(block);
        return host->error(TUTTI_ERR_NO_MEMORY, "alloc: cannot reserve %zu bytes of shared memory: %s", bytes,
                           strerror(errno));
    }
    if (before != NULL)
        TAILQ_INSERT_BEFORE(before, block, link);
    else
        TAILQ_INSERT_TAIL(&shm->arena.blocks, block, link);
    *memory = shm->arena.base + at;
    return TUTTI_OK;
}

int shm_free(struct shm *shm, void *memory)
{
    struct shm_block *block;
    size_t at = (size_t)((uintptr_t)memory - (uintptr_t)shm->arena.base);
    TAILQ_FOREACH(block, &shm->arena.blocks, link)
    {
        if (block->at != at) continue;
        TAILQ_REMOVE(&shm->arena.blocks, block, link);
        release_pages(shm, block);
        free(block);
        return TUTTI_OK;
    }
    return shm->config.host->error(TUTTI_ERR_INVALID_ARGUMENT, "free: %p was not allocated by this group", memory);
}

bool shm_is_shared(const struct shm *shm, const void *memory, size_t bytes)
{
    size_t at = (size_t)((uintptr_t)memory - (uintptr_t)shm->arena.base);
    return shm->can_share && shm->arena.base != NULL && at < shm->arena.bytes && bytes <= shm->arena.bytes - at;
}

/* ---- peers' arenas ------------------------------------------------------------------------------------------- */

bool shm_arena_map_first(struct shm_peer *peer)
{
    size_t page = round_up(1);
    void *seen = mmap(NULL, page, PROT_READ, MAP_SHARED | MAP_NORESERVE, peer->arena_fd, 0);
    if (seen == MAP_FAILED) return false;
    peer->mapped = seen;
    peer->mapped_bytes = page;
    return true;
}

/* Maps at least the first `bytes` of a peer's arena. */
static bool grow_mapping(struct shm_peer *peer, size_t bytes, size_t whole)
{
    size_t more = peer->mapped_bytes * 2 > GROW_MIN ? peer->mapped_bytes * 2 : GROW_MIN;
    if (more < bytes) more = (bytes + GROW_MIN - 1) / GROW_MIN * GROW_MIN;
    if (more > whole) more = whole;
    void *seen = peer->mapped != NULL ? mremap(peer->mapped, peer->mapped_bytes, more, MREMAP_MAYMOVE)
                                      : mmap(NULL, more, PROT_READ, MAP_SHARED | MAP_NORESERVE, peer->arena_fd, 0);
    if (seen == MAP_FAILED) return false;
    madvise(seen, more, MADV_DONTDUMP);
    peer->mapped = seen;
    peer->mapped_bytes = more;
    return true;
}

const void *shm_arena_at(struct shm *shm, int local_rank, uint64_t from, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    /* acquire: pairs with reserve_addresses; the base is published once and never changes */
    uint64_t base = atomic_load_explicit(&shm_rank_at(shm, local_rank)->arena_at, memory_order_acquire);
    uint64_t at = from - base, whole = shm->arena_bytes;
    if (!shm->can_share || base == 0 || at >= whole || bytes > whole - at) return NULL;
    if (at + bytes > peer->mapped_bytes && shm_is_disowned(shm)) return NULL;
    if (at + bytes > peer->mapped_bytes && !grow_mapping(peer, at + bytes, whole)) return NULL;
    return peer->mapped + at;
}

/* ---- closing ------------------------------------------------------------------------------------------------- */

/* Unmaps a block of a closed arena, which has its own mapping. */
void shm_reclaim(void *memory, size_t bytes)
{
    munmap(memory, round_up(bytes > 0 ? bytes : 1));
}

/* Unmaps the addresses between blocks.  Blocks that the program has not freed stay mapped and belong to it. */
void shm_arena_close(struct shm *shm)
{
    struct shm_arena *arena = &shm->arena;
    struct shm_block *block;
    size_t at = 0;
    while (arena->base != NULL && (block = TAILQ_FIRST(&arena->blocks)) != NULL) {
        if (block->at > at) munmap(arena->base + at, block->at - at);
        at = block->at + block->bytes;
        TAILQ_REMOVE(&arena->blocks, block, link);
        free(block);
    }
    if (arena->base != NULL && arena->bytes > at) munmap(arena->base + at, arena->bytes - at);
    for (int i = 0; shm->peer != NULL && i < shm->n; i++) {
        if (shm->peer[i].mapped != NULL) munmap(shm->peer[i].mapped, shm->peer[i].mapped_bytes);
        if (shm->peer[i].arena_fd >= 0 && !shm->disowned) close(shm->peer[i].arena_fd);
    }
    *arena = (struct shm_arena){0};
}
