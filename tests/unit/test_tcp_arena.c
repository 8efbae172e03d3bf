/* Memory that ranks of a host share (backends/tcp/shm/arena.c): an owner and a peer in one process, each with its own
 * mapping.  Children with resource limits produce the shortages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sanitizer.h"

#include "../../backends/tcp/shm/arena.c"
#include "../../backends/tcp/shm/liveness.c"
#include "../../backends/tcp/shm/segment.c"

#include <stdatomic.h>
#include <sys/wait.h>

enum { MIB = 1 << 20 };
#define PAGE_BYTES ((size_t)sysconf(_SC_PAGESIZE))

static char said[256];

static int error(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    return status;
}

static void fill(void *bytes, size_t n)
{
    memset(bytes, 7, n);
}

static const tutti_host host = {.abi = TUTTI_BACKEND_ABI, .size = sizeof host, .error = error, .random = fill};

/* ---- an owner, local rank 0, and a peer, local rank 1
 * ------------------------------------------------------------------ */

static struct shm_rank local_ranks[2];

struct pair {
    struct shm owner, peer;
    struct shm_peer of_owner[2], of_peer[2];
};

static void one_open(struct shm *shm, struct shm_peer *peers, int local_rank, const int fd[2])
{
    *shm = (struct shm){.config = {.host = &host},
                        .n = 2,
                        .local_rank = local_rank,
                        .peer = peers,
                        .base = (char *)local_ranks,
                        .can_share = shm_arena_is_sound(fd[local_rank]),
                        .arena_bytes = shm_arena_bytes()};
    TAILQ_INIT(&shm->arena.blocks);
    for (int i = 0; i < 2; i++) peers[i] = (struct shm_peer){.local_rank = i, .arena_fd = dup(fd[i])};
}

static void pair_open(struct pair *pair)
{
    int fd[2] = {shm_arena_make(), shm_arena_make()};
    assert_true(shm_arena_is_sound(fd[0]) && shm_arena_is_sound(fd[1]));
    memset(local_ranks, 0, sizeof local_ranks);
    one_open(&pair->owner, pair->of_owner, 0, fd);
    one_open(&pair->peer, pair->of_peer, 1, fd);
    close(fd[0]);
    close(fd[1]);
}

static void pair_close(struct pair *pair)
{
    shm_arena_close(&pair->owner);
    shm_arena_close(&pair->peer);
}

static char *allocate(struct pair *pair, size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(shm_alloc(&pair->owner, bytes, &memory), TUTTI_OK);
    return memory;
}

static const char *reach(struct pair *pair, const char *address, size_t bytes)
{
    return shm_arena_at(&pair->peer, 0, (uint64_t)(uintptr_t)address, bytes);
}

static size_t pages_held(const struct pair *pair)
{
    struct stat status;
    assert_int_equal(fstat(pair->of_peer[0].arena_fd, &status), 0);
    return (size_t)status.st_blocks * 512;
}

/* ---- what a peer sees -------------------------------------------------------------------------------------- */

static void test_a_peer_reads_in_place(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    assert_null(reach(&pair, (const char *)&pair, 1)); /* nothing has been allocated yet */
    char *first = allocate(&pair, 100), *second = allocate(&pair, 3 * PAGE_BYTES), got[8];
    strcpy(first + 92, "is here");
    strcpy(second + 2 * PAGE_BYTES + 5, "and here");
    assert_string_equal(reach(&pair, first + 92, 8), "is here");
    assert_string_equal(reach(&pair, second + 2 * PAGE_BYTES + 5, 9), "and here");
    assert_true(shm_read_memory(&pair.peer, 0, got, (uint64_t)(uintptr_t)(first + 92), 8));
    assert_string_equal(got, "is here");
    first[92] = 'w'; /* one memory, no copy */
    assert_string_equal(reach(&pair, first + 92, 8), "ws here");
    assert_true(shm_is_shared(&pair.owner, first, 100));
    assert_false(shm_is_shared(&pair.owner, got, 1) || shm_is_shared(&pair.peer, first, 1));
    pair_close(&pair);
}

/* Lets the peer read the owner's memory by its pid.  Returns false, and says why, if a sandbox refuses that. */
static bool pair_reads(struct pair *pair)
{
    uint8_t found;
    assert_true(publish_probe(&pair->owner));
    pair->of_peer[0].pid = getpid();
    bool reads = shm_read_memory(&pair->peer, 0, &found, local_ranks[0].probe_at, sizeof found);
    if (!reads) print_message("skipped: process_vm_readv fails here (%s)\n", strerror(errno));
    return reads;
}

/* Large reads whose target begins a little after the source's place in its page go by way of another place. */
static void test_reads_to_any_place(void **state)
{
    enum { MOST = 200 << 10, GUARD = 128 };
    static const size_t places[] = {0, 1, 16, 31, 32, 4080}, sizes[] = {1, 2047, 2048, 2049, 64 << 10, MOST};
    static _Alignas(4096) char from[MOST], to[MOST + 3 * 4096];
    struct pair pair;
    (void)state;
    pair_open(&pair);
    if (!pair_reads(&pair)) skip();
    for (size_t i = 0; i < MOST; i++) from[i] = (char)(i % 251);
    for (int k = 0; k < 6 * 6 * 2; k++) {
        char *at = to + 4096 + places[k / 12];
        size_t bytes = sizes[k / 2 % 6];
        uint64_t address = (uint64_t)(uintptr_t)from;
        memset(at - GUARD, 0x55, bytes + 2 * GUARD);
        assert_true(k % 2 ? shm_read_verified(&pair.peer, 0, at, address, bytes)
                          : shm_read_memory(&pair.peer, 0, at, address, bytes));
        assert_memory_equal(at, from, bytes);
        for (int i = 0; i < GUARD; i++) assert_true(at[-1 - i] == 0x55 && at[bytes + (size_t)i] == 0x55);
    }
    char *hole = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(hole != MAP_FAILED && mprotect(hole, 4096, PROT_NONE) == 0); /* at its beginning */
    uint64_t nowhere = (uint64_t)(uintptr_t)hole;
    assert_false(shm_read_memory(&pair.peer, 0, to + 16, nowhere, 64 << 10));
    assert_false(shm_read_verified(&pair.peer, 0, to + 16, nowhere, 64 << 10));
    munmap(hole, 64 << 10);
    pair_close(&pair);
}

/* A pid may belong to another program by now: one that does not have the rank's probe. */
static void test_another_program_is_not_read(void **state)
{
    struct pair pair;
    char data[] = "is here", got[sizeof data] = "";
    uint64_t from = (uint64_t)(uintptr_t)data;
    (void)state;
    pair_open(&pair);
    if (!pair_reads(&pair)) skip();
    assert_true(shm_read_verified(&pair.peer, 0, got, from, sizeof got));
    assert_string_equal(got, "is here");
    pair.owner.probe[HANDSHAKE_NONCE - 1]++;
    assert_false(shm_read_verified(&pair.peer, 0, got, from, sizeof got));
    local_ranks[0].probe_at = 0;
    assert_false(shm_read_verified(&pair.peer, 0, got, from, sizeof got));
    pair_close(&pair);
}

/* A process that the rank has forked has a copy of its data and may have its pid by now. */
static void test_a_forked_process_is_not_read(void **state)
{
    struct pair pair;
    char data[] = "is here", got[sizeof data] = "";
    uint64_t from = (uint64_t)(uintptr_t)data;
    (void)state;
    pair_open(&pair);
    if (!pair_reads(&pair)) skip();
    pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    pair.of_peer[0].pid = child;
    bool copied = shm_read_memory(&pair.peer, 0, got, from, sizeof got);
    bool verified = shm_read_verified(&pair.peer, 0, got, from, sizeof got);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(copied);
    assert_false(verified);
    pair_close(&pair);
}

/* Whatever address a slot holds, nothing beyond the arena is touched. */
static void test_any_address_is_safe(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    char *memory = allocate(&pair, PAGE_BYTES), *base = pair.owner.arena.base;
    size_t whole = pair.peer.arena_bytes;
    assert_ptr_equal(memory, base);
    assert_null(reach(&pair, (const char *)&pair, 1));
    assert_null(reach(&pair, base - 1, 2));
    assert_null(reach(&pair, base + whole, 1));
    assert_null(reach(&pair, base + whole - 1, 2));
    assert_null(reach(&pair, base, whole + 1));
    assert_null(reach(&pair, base + 1, SIZE_MAX));
    assert_null(reach(&pair, NULL, 1));
    assert_null(reach(&pair, (const char *)UINTPTR_MAX, 1));
    assert_int_equal(*reach(&pair, base + whole - 1, 1), 0);
    pair.peer.can_share = false; /* if one rank cannot share, none does */
    assert_null(reach(&pair, base, 1));
    pair_close(&pair);
}

static void test_a_mapping_grows(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    char *small = allocate(&pair, 1);
    *small = 's';
    assert_int_equal(*reach(&pair, small, 1), 's');
    assert_int_equal(pair.of_peer[0].mapped_bytes, GROW_MIN);
    char *large = allocate(&pair, GROW_MIN);
    large[GROW_MIN - 1] = 'l';
    assert_int_equal(reach(&pair, large, GROW_MIN)[GROW_MIN - 1], 'l');
    assert_true(pair.of_peer[0].mapped_bytes > GROW_MIN);
    assert_int_equal(*reach(&pair, small, 1), 's');
    pair_close(&pair);
}

/* ---- blocks ------------------------------------------------------------------------------------------------ */

static void test_the_same_address_again(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    char *a = allocate(&pair, MIB), *b = allocate(&pair, 2 * MIB), *c = allocate(&pair, MIB);
    assert_true(b == a + MIB && c == b + 2 * MIB);
    memset(b, 'b', 2 * MIB);
    assert_int_equal(reach(&pair, b, 2 * MIB)[MIB], 'b');
    assert_int_equal(pages_held(&pair), 4 * MIB);
    assert_int_equal(shm_free(&pair.owner, b), TUTTI_OK);
    assert_int_equal(pages_held(&pair), 2 * MIB); /* although the peer has them mapped */
    char *d = allocate(&pair, PAGE_BYTES), *e = allocate(&pair, 2 * MIB - PAGE_BYTES + 1), *f = allocate(&pair, MIB);
    assert_ptr_equal(d, b);
    assert_ptr_equal(e, c + MIB); /* too large for the gap */
    assert_ptr_equal(f, d + PAGE_BYTES);
    assert_int_equal(f[MIB - 1], 0);
    memset(f, 'f', MIB);
    assert_int_equal(reach(&pair, f, MIB)[MIB - 1], 'f');
    pair_close(&pair);
}

static void test_freeing_what_is_not_there(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    assert_int_equal(shm_free(&pair.owner, said), TUTTI_ERR_INVALID_ARGUMENT);
    char *memory = allocate(&pair, 2 * PAGE_BYTES);
    assert_int_equal(shm_free(&pair.owner, memory + PAGE_BYTES), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(shm_free(&pair.owner, memory), TUTTI_OK);
    said[0] = '\0';
    assert_int_equal(shm_free(&pair.owner, memory), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(said, "was not allocated by this group"));
    pair_close(&pair);
}

/* Pages that a peer may still read are kept, because nobody has checked for such peers. */
static void test_given_up(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    char *memory = allocate(&pair, MIB);
    pair.owner.arena.is_read = true;
    assert_int_equal(shm_free(&pair.owner, memory), TUTTI_OK);
    assert_int_equal(pages_held(&pair), MIB);
    assert_ptr_equal(allocate(&pair, MIB), memory);
    pair_close(&pair);
}

static void test_more_than_there_is(void **state)
{
    struct pair pair;
    void *memory = NULL;
    char number[32];
    (void)state;
    pair_open(&pair);
    size_t whole = pair.owner.arena_bytes;
    assert_int_equal(shm_alloc(&pair.owner, whole + 1, &memory), TUTTI_ERR_NO_MEMORY);
    snprintf(number, sizeof number, "%zu bytes", whole + 1);
    assert_non_null(strstr(said, number));
    assert_int_equal(shm_alloc(&pair.owner, SIZE_MAX, &memory), TUTTI_ERR_NO_MEMORY);
    assert_int_equal(shm_alloc(&pair.owner, whole, &memory), TUTTI_ERR_NO_MEMORY); /* some of it is always in use */
    assert_non_null(strstr(said, "available"));
    allocate(&pair, 1);
    assert_int_equal(shm_alloc(&pair.owner, whole, &memory), TUTTI_ERR_NO_MEMORY);
    assert_non_null(strstr(said, "no gap"));
    assert_null(memory);
    assert_int_equal(pages_held(&pair), PAGE_BYTES);
    pair_close(&pair);
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

static bool is_mapped(const void *page)
{
    return msync((void *)(uintptr_t)page, PAGE_BYTES, MS_ASYNC) == 0;
}

static void test_what_is_left_stays(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    char *a = allocate(&pair, PAGE_BYTES), *b = allocate(&pair, PAGE_BYTES), *c = allocate(&pair, PAGE_BYTES);
    const char *seen = reach(&pair, b, 1);
    strcpy(b, "mine");
    assert_int_equal(shm_free(&pair.owner, a), TUTTI_OK);
    assert_int_equal(shm_free(&pair.owner, c), TUTTI_OK);
    pair_close(&pair);
    assert_string_equal(b, "mine");
    assert_false(is_mapped(a) || is_mapped(c) || is_mapped(seen));
    munmap(b, PAGE_BYTES);
}

static void test_nothing_is_left(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    char *a = allocate(&pair, PAGE_BYTES);
    assert_true(is_mapped(a));
    pair_close(&pair);
    munmap(a, PAGE_BYTES);
    pair_open(&pair);
    a = allocate(&pair, PAGE_BYTES);
    assert_int_equal(shm_free(&pair.owner, a), TUTTI_OK);
    pair_close(&pair);
    assert_false(is_mapped(a));
}

/* ---- arenas that cannot be --------------------------------------------------------------------------------- */

static void test_unsound_arenas(void **state)
{
    size_t bytes = shm_arena_bytes();
    int fd = shm_segment_make(bytes - PAGE_BYTES, 0);
    (void)state;
    assert_true(fd >= 0);
    assert_false(shm_arena_is_sound(fd)); /* too small */
    close(fd);
    fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_false(shm_arena_is_sound(fd)); /* the file could still be shrunk */
    close(fd);
    assert_false(shm_arena_is_sound(STDERR_FILENO));
}

static int under(int resource, rlim_t most, int (*body)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(resource, &(struct rlimit){most, most});
        _exit(body());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Limits the file size too much: no segment, no arena, and no signal. */
static int small_files(void)
{
    struct pair pair;
    void *memory;
    if (shm_segment_make(2 * MIB, 0) >= 0 || errno != EFBIG) return 3;
    int fd[2] = {shm_arena_make(), shm_arena_make()};
    if (fd[0] < 0 || shm_arena_is_sound(fd[0])) return 1;
    one_open(&pair.owner, pair.of_owner, 0, fd);
    return shm_alloc(&pair.owner, 1, &memory) == TUTTI_ERR_UNSUPPORTED ? 0 : 2;
}

/* A quarter of the address space is available. */
__attribute__((unused)) static int few_addresses(void)
{
    struct pair pair;
    void *memory;
    pair_open(&pair);
    if (shm_alloc(&pair.owner, 1, &memory) != TUTTI_OK) return 1;
    if (pair.owner.arena.bytes != (256 << 20)) return 2;
    if (shm_alloc(&pair.owner, 256 << 20, &memory) != TUTTI_ERR_NO_MEMORY) return 3;
    return *reach(&pair, pair.owner.arena.base, 1) == 0 ? 0 : 4;
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(under(RLIMIT_FSIZE, 1 << 20, small_files), 0);
    /* A sanitizer needs the whole address space. */
    if (!SANITIZED) assert_int_equal(under(RLIMIT_AS, 1 << 30, few_addresses), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_peer_reads_in_place),
        cmocka_unit_test(test_reads_to_any_place),
        cmocka_unit_test(test_another_program_is_not_read),
        cmocka_unit_test(test_a_forked_process_is_not_read),
        cmocka_unit_test(test_any_address_is_safe),
        cmocka_unit_test(test_a_mapping_grows),
        cmocka_unit_test(test_the_same_address_again),
        cmocka_unit_test(test_freeing_what_is_not_there),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_more_than_there_is),
        cmocka_unit_test(test_what_is_left_stays),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_unsound_arenas),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
