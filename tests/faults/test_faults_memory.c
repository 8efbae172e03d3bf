/* Out of memory.  The segment, or a group's collective segment, is refused as on a full machine.  The ranks use
 * libfabric, or messages, log that once, and never touch refused memory (SIGBUS).  A rank without memory for the first
 * message to a peer loses the peer, and one without memory for incoming byte strings aborts the group. */
#include "procs.h"
#include "tcp/shm/coll/coll.h"
#include "text.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* ---- a machine without memory -------------------------------------------------------------------------------- */

enum { PLENTY = 1000, RANKS = 3 };

/* How many of the replaced calls of each kind still succeed.  Areas are parts of the segment for messages: see
 * shm_measure. */
static int given_memfds, given_ranges, given_areas = PLENTY;
static int segment = -1; /* the last memfd */
static off_t refused_at;
static off_t refused_bytes;
static bool interrupts, interrupted; /* every second call is interrupted by a signal, as before Linux 6.2 */

__attribute__((visibility("default"))) int memfd_create(const char *name, unsigned flags)
{
    if (strcmp(name, "tutti") != 0) return (int)syscall(SYS_memfd_create, name, flags);
    if (given_memfds-- <= 0) {
        errno = ENOMEM;
        return -1;
    }
    segment = (int)syscall(SYS_memfd_create, name, flags);
    return segment;
}

__attribute__((visibility("default"))) int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    struct shm shm;
    interrupted = interrupts && mode == 0 && !interrupted;
    if (interrupted) {
        errno = EINTR;
        return -1;
    }
    shm_measure(&shm, RANKS, coll_bytes(RANKS));
    int *given = at > 0 && (size_t)at < shm.colls_at ? &given_areas : &given_ranges;
    if (mode != 0 || (*given)-- > 0) return (int)syscall(SYS_fallocate, fd, mode, at, bytes);
    refused_at = at;
    refused_bytes = bytes;
    segment = fd;
    errno = ENOSPC;
    return -1;
}

/* True if refused memory has been written. */
static bool was_touched(void)
{
    if (refused_bytes == 0) return false;
    off_t found = lseek(segment, refused_at, SEEK_DATA);
    return found >= 0 && found < refused_at + refused_bytes;
}

/* ---- ranks --------------------------------------------------------------------------------------------------- */

struct lack {
    int memfds, ranges; /* number of calls that succeed; each rank makes one memfd, then rank 0 makes the segment */
    bool later;         /* enough for the world; the next group's collective segment is refused */
    const char *said;   /* part of the one line that one rank logs */
    rlim_t file;        /* RLIMIT_FSIZE; 0: none */
    bool by_network;    /* messages are not shared either, and each rank logs it */
};

static int sums(tutti_group *group, int size, int64_t n)
{
    int64_t *data = malloc((size_t)n * sizeof *data), *all = malloc((size_t)(n * size) * sizeof *all);
    int rank = tutti_get_rank(group), wrong = 0;
    for (int64_t i = 0; i < n; i++) data[i] = i + rank;
    EXPECT(tutti_all_reduce(tutti_view(data, n), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    for (int64_t i = 0; i < n; i++) wrong += data[i] != i * size + size * (size - 1) / 2;
    for (int64_t i = 0; i < n; i++) data[i] = rank * n + i;
    EXPECT(tutti_all_gather_into_tensor(tutti_view(all, n * size), tutti_view(data, n), tutti_with(.group = group)) ==
           TUTTI_OK);
    for (int64_t i = 0; i < n * size; i++) wrong += all[i] != i;
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    free(data);
    free(all);
    return wrong;
}

static int every_size(tutti_group *group, int size)
{
    static const int64_t sizes[] = {1, 100, 3000, 40000, 500000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) EXPECT(sums(group, size, sizes[i]) == 0);
    return 0;
}

/* True if the group has a collective segment. */
static bool has_segment(tutti_group *group)
{
    char text[4096] = "";
    tutti_explain(TUTTI_BARRIER, 0, tutti_with(.group = group), text, sizeof text);
    return strstr(text, "through shared memory") != NULL;
}

static int rank_in_want(int rank, int size, void *argument)
{
    const struct lack *lack = argument;
    tutti_group *further = NULL;
    char said[8192];
    int saved;
    if (lack->file > 0) setrlimit(RLIMIT_FSIZE, &(struct rlimit){lack->file, lack->file});
    given_memfds = lack->memfds;
    given_ranges = rank == 0 || lack->later ? lack->ranges : 0; /* any rank may reserve a collective segment */
    int fd = proc_capture_stderr(&saved);
    int status = proc_init(20000);
    if (status == TUTTI_OK && lack->later) {
        given_ranges = 0;
        status = tutti_new_group((int[]){0, 1, 2}, size, NULL, &further);
    }
    proc_end_capture(fd, saved, said, sizeof said);
    EXPECT(status == TUTTI_OK);
    EXPECT(every_size(NULL, size) == 0);
    if (further != NULL) EXPECT(every_size(further, size) == 0);
    EXPECT(!was_touched());
    EXPECT(has_segment(NULL) == lack->later);
    if (further != NULL) EXPECT(!has_segment(further));
    int lines = text_count(said, lack->said);
    atomic_store(&proc_shared->value[rank], lines);
    proc_barrier(size, 1);
    int all = 0;
    for (int i = 0; i < size; i++) all += (int)atomic_load(&proc_shared->value[i]);
    if (all != 1)
        fprintf(stderr, "rank %d: %d lines, and %d in all, say \"%s\": %s\n", rank, lines, all, lack->said, said);
    EXPECT(all == 1);
    EXPECT(text_count(said, "uses libfabric only") == lack->by_network);
    if (further != NULL) EXPECT(tutti_destroy_process_group(further) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_no_segment(void **state)
{
    (void)state;
    procs_run_ranks(
        3, rank_in_want,
        &(struct lack){.memfds = 1, .by_network = true, .said = "of shared memory: Cannot allocate memory"});
}

static void test_no_pages_for_a_segment(void **state)
{
    (void)state;
    struct lack lack = {.memfds = PLENTY, .by_network = true, .said = "of shared memory: No space left on device"};
    procs_run_ranks(3, rank_in_want, &lack);
}

static void test_no_file_as_large_as_a_segment(void **state)
{
    (void)state;
    procs_run_ranks(
        3, rank_in_want,
        &(struct lack){
            .memfds = PLENTY, .ranges = PLENTY, .file = 1 << 20, .by_network = true, .said = "(raise ulimit -f)"});
}

#define NO_SEGMENT "collectives (No space left on device); they use messages instead"

static void test_no_pages_for_the_first_segment(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_in_want, &(struct lack){.memfds = PLENTY, .ranges = 1, .said = NO_SEGMENT});
}

static void test_no_pages_for_a_segment_later(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_in_want,
                    &(struct lack){.memfds = PLENTY, .ranges = PLENTY, .later = true, .said = NO_SEGMENT});
}

/* Rank 0 has no memory for its first message to rank 1 that exceeds a slot.  It says so, and rank 1 loses it. */
static int rank_without_area(int rank, int size, void *argument)
{
    char data[1000] = "";
    (void)argument;
    given_memfds = given_ranges = PLENTY;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    proc_barrier(size, 1);
    given_areas = rank == 0 ? 0 : PLENTY;
    tutti_tensor x = tutti_view(data, 10), y = tutti_view(data, (int64_t)sizeof data);
    if (rank == 0) EXPECT(tutti_send(x, 1, NULL) == TUTTI_OK && refused_bytes == 0); /* fits a slot */
    if (rank == 1) EXPECT(tutti_recv(x, 0, NULL) == TUTTI_OK);
    if (rank == 0) EXPECT_ERROR(tutti_send(y, 1, NULL), TUTTI_ERR_NO_MEMORY, "no memory for a message to rank 1");
    if (rank == 1) EXPECT(tutti_recv(y, 0, NULL) == TUTTI_ERR_PEER_LOST);
    EXPECT(!was_touched());
    tutti_destroy_process_group(NULL);
    return 0;
}

static void test_no_pages_for_an_area(void **state)
{
    (void)state;
    procs_run_ranks(RANKS, rank_without_area, NULL);
}

/* Signals arrive while ranks take memory for the segment, for collectives and for their first messages. */
static int rank_with_signals(int rank, int size, void *argument)
{
    static char data[1000];
    tutti_tensor x = tutti_view(data, (int64_t)sizeof data);
    void *memory = NULL;
    (void)argument;
    given_memfds = given_ranges = PLENTY;
    interrupts = true;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(has_segment(NULL));
    for (int from = 0; from < size; from++) {
        EXPECT(tutti_broadcast(x, from, NULL) == TUTTI_OK);
        if (rank == from) EXPECT(tutti_send(x, (rank + 1) % size, NULL) == TUTTI_OK);
        if (rank == (from + 1) % size) EXPECT(tutti_recv(x, from, NULL) == TUTTI_OK);
    }
    EXPECT(tutti_alloc(NULL, 1 << 20, &memory) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_signals(void **state)
{
    (void)state;
    procs_run_ranks(RANKS, rank_with_signals, NULL);
}

/* A rank with too few descriptors for its peers logs that and uses the network. */
static int rank_of_few_descriptors(int rank, int size, void *argument)
{
    enum { FEW = 80 };
    char said[8192];
    int saved;
    int32_t x = rank;
    (void)argument;
    given_memfds = given_ranges = PLENTY;
    if (rank == 1) setrlimit(RLIMIT_NOFILE, &(struct rlimit){FEW, FEW});
    int fd = proc_capture_stderr(&saved);
    int status = proc_init(50000);
    proc_end_capture(fd, saved, said, sizeof said);
    EXPECT(status == TUTTI_OK);
    EXPECT(text_count(said, "uses libfabric only: out of file descriptors") == (rank == 1));
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == size * (size - 1) / 2);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_few_descriptors(void **state)
{
    (void)state;
    procs_run_ranks(30, rank_of_few_descriptors, NULL);
}

/* ---- byte strings for which there is no memory --------------------------------------------------------------- */

enum { GATHERED, BROADCAST, SCATTERED, ALL_GATHERED, CALLS };

enum { MUCH = 256 << 20 }; /* bytes that rank 0 sends */

static uint8_t much[MUCH];

/* Limits this process to MUCH / 2 beyond its present size. */
static int limit_memory(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    EXPECT(file != NULL && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    rlim_t most = pages * (rlim_t)sysconf(_SC_PAGESIZE) + MUCH / 2;
    EXPECT(setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) == 0);
    return 0;
}

static int call_bytes(int call, int rank, tutti_group *group)
{
    tutti_bytes out[3] = {{NULL, 0}}, in[3] = {{much, 1}, {much, MUCH}, {much, 1}};
    const tutti_opts *opts = tutti_with(.group = group);
    size_t bytes = rank == 0 ? MUCH : 1;
    if (call == GATHERED) return tutti_gather_bytes(rank == 1 ? out : NULL, rank == 1 ? 3 : 0, much, bytes, 1, opts);
    if (call == BROADCAST) return tutti_broadcast_bytes(rank == 0 ? &in[1] : out, 0, opts);
    if (call == SCATTERED) return tutti_scatter_bytes(out, rank == 0 ? in : NULL, rank == 0 ? 3 : 0, 0, opts);
    return tutti_all_gather_bytes(out, 3, much, bytes, opts);
}

/* Rank 1 has taken part in the call's first step, and cannot take part in the second one, in which the others wait. */
static int rank_without_memory(int rank, int size, void *argument)
{
    (void)argument;
    given_memfds = given_ranges = PLENTY;
    EXPECT(proc_init(20000) == TUTTI_OK);
    if (rank == 1) EXPECT(limit_memory() == 0);
    for (int call = 0; call < CALLS; call++) {
        tutti_group *group = NULL;
        EXPECT(tutti_new_group((int[]){0, 1, 2}, size, NULL, &group) == TUTTI_OK);
        int status = call_bytes(call, rank, group);
        if (rank == 1) EXPECT_ERROR(status, TUTTI_ERR_NO_MEMORY, "_bytes: out of memory for 268435456 bytes");
        if (rank == 0) EXPECT_ERROR(status, TUTTI_ERR_ABORTED, "_bytes: out of memory for 268435456 bytes");
        EXPECT_ERROR(tutti_barrier(tutti_with(.group = group)), TUTTI_ERR_ABORTED, "aborted by rank 1",
                     "out of memory");
        EXPECT(tutti_barrier(NULL) == TUTTI_OK); /* otherwise another rank's destroy could be noticed first */
        EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    }
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_no_memory_for_bytes(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_without_memory, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_segment),
        cmocka_unit_test(test_no_pages_for_a_segment),
        cmocka_unit_test(test_no_file_as_large_as_a_segment),
        cmocka_unit_test(test_no_pages_for_the_first_segment),
        cmocka_unit_test(test_no_pages_for_a_segment_later),
        cmocka_unit_test(test_no_pages_for_an_area),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_few_descriptors),
        cmocka_unit_test(test_no_memory_for_bytes),
    };
    setenv("TUTTI_LOG", "info", 1);
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
