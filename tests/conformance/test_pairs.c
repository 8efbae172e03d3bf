/* Two ranks of a host, and reduces of three: with a shared cache or without, with a core each or not, as a world or a
 * part of one. */
#include "procs.h"
#include "sanitizer.h"

#include <sched.h>
#include <sys/syscall.h>

#include "unit/given_cores.h"

enum { LIMIT_MS = 20000 };

/* Runs all operations that may use fragment buffers, several at a time.  Returns the number of wrong values. */
static int64_t round_of(tutti_group *group, int rank, int64_t n, int64_t seed)
{
    enum { BOTH = 2 };
    int64_t *in = malloc((size_t)n * BOTH * sizeof *in), *out = malloc((size_t)n * BOTH * sizeof *out), wrong = 0;
    tutti_tensor one = tutti_view(in, n), two = tutti_view(in, n * BOTH);
    for (int64_t i = 0; i < n * BOTH; i++) in[i] = seed + i + rank * 1000003;
    if (tutti_all_gather_into_tensor(tutti_view(out, n * BOTH), one, tutti_with(.group = group)) != TUTTI_OK) wrong++;
    for (int64_t i = 0; i < n * BOTH; i++) wrong += out[i] != seed + i % n + i / n * 1000003;
    if (tutti_all_to_all_single(tutti_view(out, n * BOTH), two, NULL, NULL, tutti_with(.group = group)) != TUTTI_OK)
        wrong++;
    for (int64_t i = 0; i < n * BOTH; i++) wrong += out[i] != seed + rank * n + i % n + i / n * 1000003;
    if (tutti_reduce_scatter_tensor(tutti_view(out, n), two, TUTTI_SUM, tutti_with(.group = group)) != TUTTI_OK)
        wrong++;
    for (int64_t i = 0; i < n; i++) wrong += out[i] != 2 * (seed + rank * n + i) + 1000003;
    if (tutti_all_reduce(two, TUTTI_SUM, tutti_with(.group = group)) != TUTTI_OK) wrong++;
    for (int64_t i = 0; i < n * BOTH; i++) wrong += in[i] != 2 * (seed + i) + 1000003;
    if (rank == 1)
        for (int64_t i = 0; i < n * BOTH; i++) in[i] = -1;
    if (tutti_broadcast(two, 0, tutti_with(.group = group, .group_rank = true)) != TUTTI_OK) wrong++;
    for (int64_t i = 0; i < n * BOTH; i++) wrong += in[i] != 2 * (seed + i) + 1000003;
    free(in);
    free(out);
    return wrong;
}

static int many_rounds(tutti_group *group, int rank)
{
    static const int64_t numel[] = {1, 2048, 2049, 4096, 8192, 30000, 100000, 8191};
    for (int i = 0; i < (SANITIZED ? 12 : 80); i++) EXPECT(round_of(group, rank, numel[i % 8], i * 7) == 0);
    return 0;
}

/* One rank is bound to a core, as by a launcher, and the other one is not. */
static int rank_of_uneven(int rank, int size, void *argument)
{
    cpu_set_t one;
    (void)size;
    CPU_ZERO(&one);
    CPU_SET(given_cores_nth(&given_cores, 0), &one);
    if (rank == *(int *)argument) EXPECT(sched_setaffinity(0, sizeof one, &one) == 0);
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(many_rounds(NULL, rank) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_cores_not_alike(void **state)
{
    (void)state;
    given_cores_need_two();
    for (int bound = 0; bound < 2; bound++) procs_run_ranks(2, rank_of_uneven, &bound);
}

/* ---- a part of the world ------------------------------------------------------------------------------------- */

struct part {
    const char *name, *value; /* of the environment */
    bool one_core;
};

/* Overrides the number of cores: every rank of the world claims its own, or all share one. */
static bool claims, single;

__attribute__((visibility("default"))) int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *mask)
{
    int got = (int)syscall(SYS_sched_getaffinity, pid, bytes, mask);
    if (got < 0) return -1;
    memset((char *)mask + got, 0, bytes - (size_t)got);
    for (int cpu = 0; claims && cpu < PROCS_MOST; cpu++) CPU_SET(cpu, mask);
    for (int cpu = CPU_SETSIZE - 1; single && cpu >= 0; cpu--)
        if (CPU_COUNT(mask) > 1) CPU_CLR(cpu, mask);
    return 0;
}

static void apply(const struct part *part)
{
    claims = !part->one_core;
    single = part->one_core;
    if (part->name != NULL) setenv(part->name, part->value, 1);
}

enum { QUEUE = 12 };

/* Runs operations one after another.  Their memory is sometimes shared and sometimes not, and differs between the two
 * ranks. */
static int queued(tutti_group *group, int rank, int64_t n, unsigned random)
{
    tutti_work *work[QUEUE] = {0};
    int64_t *data[QUEUE], *out[QUEUE];
    bool shared[QUEUE];
    for (int i = 0; i < QUEUE; i++) {
        void *memory = NULL;
        int root = i / 3 % 2;
        random = random * 1103515245u + 12345u + (unsigned)rank * 7777u;
        shared[i] = random >> 16 & 1;
        if (shared[i]) EXPECT(tutti_alloc(group, n * 16, &memory) == TUTTI_OK);
        data[i] = shared[i] ? memory : malloc((size_t)n * 16);
        out[i] = malloc((size_t)n * 16);
        const tutti_opts *opts = tutti_with(.group = group, .async_op = &work[i], .group_rank = true);
        for (int64_t k = 0; k < 2 * n; k++) data[i][k] = i * 31 + k + rank * 500009;
        tutti_tensor one = tutti_view(data[i], n), two = tutti_view(data[i], 2 * n), all = tutti_view(out[i], 2 * n);
        int status = i % 6 == 0   ? tutti_broadcast(two, root, opts)
                     : i % 6 == 1 ? tutti_gather_into_tensor(all, one, root, opts)
                     : i % 6 == 2 ? tutti_scatter_tensor(tutti_view(out[i], n), two, root, opts)
                     : i % 6 == 3 ? tutti_reduce_into(all, two, root, TUTTI_SUM, opts)
                     : i % 6 == 4 ? tutti_all_to_all_single(all, two, NULL, NULL, opts)
                                  : tutti_all_to_all_single(two, two, NULL, NULL, opts);
        EXPECT(status == TUTTI_OK);
    }
    for (int i = 0; i < QUEUE; i++) {
        int root = i / 3 % 2;
        int64_t wrong = 0, theirs = i * 31 + root * 500009;
        EXPECT(tutti_wait(&work[i], TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
        for (int64_t k = 0; k < 2 * n; k++) {
            int64_t swapped = i * 31 + rank * n + k % n + k / n * 500009;
            if (i % 6 == 0) wrong += data[i][k] != theirs + k;
            if (i % 6 == 1 && rank == root) wrong += out[i][k] != i * 31 + k % n + k / n * 500009;
            if (i % 6 == 2 && k < n) wrong += out[i][k] != theirs + rank * n + k;
            if (i % 6 == 3 && rank == root) wrong += out[i][k] != 2 * (i * 31 + k) + 500009;
            if (i % 6 == 4) wrong += out[i][k] != swapped;
            if (i % 6 == 5) wrong += data[i][k] != swapped;
        }
        if (wrong > 0)
            fprintf(stderr, "rank %d: %lld values of operation %d, n %lld\n", rank, (long long)wrong, i, (long long)n);
        EXPECT(wrong == 0);
        if (shared[i])
            EXPECT(tutti_free(group, data[i]) == TUTTI_OK);
        else
            free(data[i]);
        free(out[i]);
    }
    return 0;
}

static int rank_of_part(int rank, int size, void *argument)
{
    static const int members[3][2] = {{1, 0}, {0, 2}, {2, 1}};
    static const int64_t numel[] = {1, 2047, 4096, 9000, 33000, 140000, 2049};
    const struct part *part = argument;
    tutti_group *group[3];
    apply(part);
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int g = 0; g < 3; g++) EXPECT(tutti_new_group(members[g], 2, NULL, &group[g]) == TUTTI_OK);
    for (int i = 0; i < 21; i++)
        for (int g = 0; g < 3; g++) {
            int mine = rank == members[g][0] ? 0 : rank == members[g][1] ? 1 : -1;
            if (mine < 0) continue;
            EXPECT(round_of(group[g], mine, numel[(i + g) % 7], i * 7) == 0);
            EXPECT(queued(group[g], mine, numel[(i + 2 * g) % 7], (unsigned)i) == 0);
        }
    (void)size;
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_parts_of_a_world(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_part, &(struct part){0});
}

static void test_parts_of_a_world_with_one_core(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_part, &(struct part){.one_core = true});
}

static void test_parts_of_a_world_that_may_not_read(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_part, &(struct part){"TUTTI_SHM_CMA", "0", false});
}

static void test_parts_of_a_world_by_plans(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_part, &(struct part){"TUTTI_DETERMINISTIC", "1", false});
}

/* ---- reduces of three ranks ---------------------------------------------------------------------------------- */

/* Reduces to each rank at once.  In each third of the turns, the input is shared on all ranks, on the root or nowhere.
 */
static int reduce_to_each(int rank, int size, int64_t n, int turn)
{
    tutti_work *work[3] = {0};
    int64_t *in[3], *out[3];
    bool shared[3], in_place = turn % 2 == 1;
    for (int root = 0; root < size; root++) {
        void *memory = NULL;
        shared[root] = turn % 3 == 0 || (turn % 3 == 1 && rank == root);
        if (shared[root]) EXPECT(tutti_alloc(NULL, n * 8, &memory) == TUTTI_OK);
        in[root] = shared[root] ? memory : malloc((size_t)n * 8);
        out[root] = in_place ? in[root] : malloc((size_t)n * 8);
        for (int64_t i = 0; i < n; i++) in[root][i] = turn + i + rank * 1000003;
        EXPECT(tutti_reduce_into(tutti_view(out[root], n), tutti_view(in[root], n), root, TUTTI_SUM,
                                 tutti_with(.async_op = &work[root])) == TUTTI_OK);
    }
    for (int root = 0; root < size; root++) {
        int64_t wrong = 0;
        EXPECT(tutti_wait(&work[root], TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
        for (int64_t i = 0; i < n && rank == root; i++) wrong += out[root][i] != size * (turn + i + 1000003);
        for (int64_t i = 0; i < n && rank != root; i++) wrong += in[root][i] != turn + i + rank * 1000003;
        EXPECT(wrong == 0);
        if (!in_place) free(out[root]);
        if (!shared[root]) free(in[root]);
        if (shared[root]) EXPECT(tutti_free(NULL, in[root]) == TUTTI_OK);
    }
    return 0;
}

/* The root alone reduces up to 64 KiB of all ranks' data, or 512 KiB of its own if ranks share cores. */
static int rank_of_reduces(int rank, int size, void *argument)
{
    static const int64_t numel[] = {256, 2048, 2730, 2731, 8192, 65536, 65537};
    apply(argument);
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int turn = 0; turn < 6 * 7; turn++) EXPECT(reduce_to_each(rank, size, numel[turn % 7], turn) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_reduces(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_reduces, &(struct part){0});
    procs_run_ranks(3, rank_of_reduces, &(struct part){.one_core = true});
    procs_run_ranks(3, rank_of_reduces, &(struct part){"TUTTI_SHM_CMA", "0", false});
}

/* ---- messages ------------------------------------------------------------------------------------------------ */

enum { FEW = 16 << 10, EAGER = 64 << 10, HELD = 40, CALLS = 300 };

static uint8_t value_of(int call, size_t at)
{
    return (uint8_t)(call * 13 + at * 7 + (at >> 11));
}

static size_t size_of(unsigned *random)
{
    static const size_t sizes[] = {0,     1,         FEW - 1,   FEW,     FEW + 1, 2 * FEW, 2 * FEW + 1,
                                   EAGER, EAGER - 1, EAGER + 1, 1 << 20, 300001,  4 << 20, (4 << 20) + 5};
    *random = *random * 1103515245u + 12345u;
    return sizes[(*random >> 16) % (sizeof sizes / sizeof *sizes)];
}

/* Rank 0 sends and rank 1 receives in various ways, sometimes early and sometimes late.  Both know the sizes. */
static int rank_of_messages(int rank, int size, void *argument)
{
    const struct part *part = argument;
    unsigned sizes = 1, ways = 5u + (unsigned)rank;
    tutti_work *work[HELD] = {0};
    uint8_t *data[HELD];
    bool shared[HELD];
    size_t bytes[HELD];
    apply(part);
    (void)size;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int call = 0; call < CALLS; call += HELD) {
        for (int i = 0; i < HELD; i++) {
            void *memory = NULL;
            bytes[i] = size_of(&sizes);
            ways = ways * 1103515245u + 12345u;
            shared[i] = (ways >> 16 & 3) == 0;
            if (shared[i]) EXPECT(tutti_alloc(NULL, (int64_t)bytes[i] + 1, &memory) == TUTTI_OK);
            data[i] = shared[i] ? memory : malloc(bytes[i] + 1);
            tutti_tensor tensor = tutti_view(data[i], (int64_t)bytes[i]);
            const tutti_opts *opts = tutti_with(.tag = i % 3);
            bool waits = ways >> 20 & 1;
            work[i] = NULL;
            for (size_t k = 0; k < bytes[i]; k++) data[i][k] = rank == 0 ? value_of(call + i, k) : 0;
            if (rank == 1 && (ways >> 21 & 15) == 0) procs_sleep_ms(2);
            /* blocking within a tag, and over all tags: neither end waits for an operation that its peer has not begun
             */
            int status = rank == 0 ? waits ? tutti_send(tensor, 1, opts) : tutti_isend(tensor, 1, opts, &work[i])
                         : waits ? tutti_recv(tensor, 0, opts)
                                   : tutti_irecv(tensor, 0, opts, &work[i]);
            EXPECT(status == TUTTI_OK);
        }
        for (int i = 0; i < HELD; i++) {
            if (work[i] != NULL) EXPECT(tutti_wait(&work[i], TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
            size_t wrong = 0;
            for (size_t k = 0; k < bytes[i]; k++) wrong += data[i][k] != value_of(call + i, k);
            EXPECT(wrong == 0);
            if (shared[i])
                EXPECT(tutti_free(NULL, data[i]) == TUTTI_OK);
            else
                free(data[i]);
        }
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* A message that needs a CTS or whose receiver has asked for it, then one that does not: both arrive before the
 * receiver polls. */
static int rank_of_two(int rank, int size, void *argument)
{
    static uint8_t large[EAGER * 4], small;
    tutti_work *work[2] = {0};
    (void)argument;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int turn = 1; turn <= 10; turn++) {
        if (rank == 0) {
            memset(large, turn, sizeof large);
            small = (uint8_t)(turn + 100);
            EXPECT(tutti_isend(tutti_view(large, sizeof large), 1, NULL, &work[0]) == TUTTI_OK);
            EXPECT(tutti_isend(tutti_view(&small, 1), 1, NULL, &work[1]) == TUTTI_OK);
        }
        proc_barrier(size, turn);
        if (rank == 1) {
            EXPECT(tutti_recv(tutti_view(large, sizeof large), 0, NULL) == TUTTI_OK);
            EXPECT(tutti_recv(tutti_view(&small, 1), 0, NULL) == TUTTI_OK);
            EXPECT(large[0] == turn && large[sizeof large - 1] == turn && small == turn + 100);
        }
        for (int i = 0; i < 2 && rank == 0; i++) EXPECT(tutti_wait(&work[i], TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* Both ranks begin with blocking sends and receive in the other order.  Small messages block no rank. */
static int rank_of_senders(int rank, int size, void *argument)
{
    static const int64_t sizes[] = {1, 8 << 10, (12 << 10) + 1, 16 << 10, 40000, 64 << 10};
    static uint8_t mine[64 << 10], theirs[64 << 10];
    const struct part *part = argument;
    /* Without the variable, a sender of more than 16 KiB may wait for a single-copy read. */
    int n = part->name != NULL ? 6 : 4, other = 1 - rank;
    apply(part);
    (void)size;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int turn = 0; turn < 20 * n; turn++) {
        int64_t bytes = sizes[turn % n];
        for (int tag = 1; tag <= 2; tag++) {
            memset(mine, turn * 4 + rank * 2 + tag, (size_t)bytes);
            EXPECT(tutti_send(tutti_view(mine, bytes), other, tutti_with(.tag = tag)) == TUTTI_OK);
        }
        for (int tag = 2; tag >= 1; tag--) {
            uint8_t value = (uint8_t)(turn * 4 + other * 2 + tag);
            EXPECT(tutti_recv(tutti_view(theirs, bytes), other, tutti_with(.tag = tag)) == TUTTI_OK);
            for (int64_t i = 0; i < bytes; i++) EXPECT(theirs[i] == value);
        }
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_all_send_first(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_senders, &(struct part){0});
    procs_run_ranks(2, rank_of_senders, &(struct part){.one_core = true});
    procs_run_ranks(2, rank_of_senders, &(struct part){"TUTTI_SHM_CMA", "0", false});
}

static void test_none_overtakes_another(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_two, NULL);
}

static void test_messages(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_messages, &(struct part){0});
}

static void test_messages_with_one_core(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_messages, &(struct part){.one_core = true});
}

static void test_messages_that_are_not_read(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_messages, &(struct part){"TUTTI_SHM_CMA", "0", false});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_not_alike),
        cmocka_unit_test(test_parts_of_a_world),
        cmocka_unit_test(test_parts_of_a_world_with_one_core),
        cmocka_unit_test(test_parts_of_a_world_that_may_not_read),
        cmocka_unit_test(test_parts_of_a_world_by_plans),
        cmocka_unit_test(test_reduces),
        cmocka_unit_test(test_none_overtakes_another),
        cmocka_unit_test(test_all_send_first),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_messages_with_one_core),
        cmocka_unit_test(test_messages_that_are_not_read),
    };
    cmocka_set_test_filter(getenv("PAIRS_ONLY"));
    return cmocka_run_group_tests(tests, given_cores_save, NULL);
}
