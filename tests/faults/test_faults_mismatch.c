/* Calls that differ: every rank gets an error with both sides, nothing beyond a buffer is written, and no rank hangs.
 */
#include "procs.h"

enum { SMALL = 5, LARGE = 300000, GUARD = 64, CANARY = 0xA5, SOON_S = PROCS_SOON_S };

/* ---- buffers between canaries ------------------------------------------------------------------------------- */

struct guarded {
    uint8_t *whole;
    void *data;
    size_t bytes;
};

static struct guarded guarded_new(size_t bytes)
{
    struct guarded it = {.whole = malloc(bytes + 2 * (size_t)GUARD), .bytes = bytes};
    if (it.whole == NULL) abort();
    memset(it.whole, CANARY, bytes + 2 * (size_t)GUARD);
    it.data = it.whole + GUARD;
    memset(it.data, 1, bytes);
    return it;
}

/* Returns true if the canaries are intact.  Frees the buffer. */
static bool guarded_end(struct guarded *it)
{
    bool whole = true;
    for (size_t i = 0; i < GUARD; i++) whole &= it->whole[i] == CANARY && it->whole[GUARD + it->bytes + i] == CANARY;
    free(it->whole);
    it->whole = NULL;
    return whole;
}

/* ---- calls that differ --------------------------------------------------------------------------------------- */

/* One rank's call at the sequence number at which the ranks differ. */
struct call {
    tutti_kind kind;
    tutti_dtype dtype;
    tutti_reduce_op op;
    int root;
    int64_t more; /* elements beyond the count of the case */
};

struct differing {
    const char *name;
    struct call one, other;
    const char *words[2]; /* texts of both sides, which every error contains */
};

static const struct differing cases[] = {
    {"op",
     {TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {TUTTI_BROADCAST, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {"all_reduce(", "broadcast("}},
    {"count",
     {TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 0, 3},
     {"elements", "elements"}},
    {"many",
     {TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 0, 200000},
     {"elements", "elements"}},
    {"dtype",
     {TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {TUTTI_ALL_REDUCE, TUTTI_INT32, TUTTI_SUM, 0, 0},
     {"float32", "int32"}},
    {"reduce",
     {TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_MAX, 0, 0},
     {"SUM", "MAX"}},
    {"roots",
     {TUTTI_BROADCAST, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {TUTTI_BROADCAST, TUTTI_FLOAT32, TUTTI_SUM, 1, 0},
     {"root 0", "root 1"}},
    {"reduce_roots",
     {TUTTI_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 1, 0},
     {TUTTI_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {"root 1", "root 0"}},
    {"barrier",
     {TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {TUTTI_BARRIER, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {"all_reduce(", "barrier"}},
    {"gathers",
     {TUTTI_ALL_GATHER, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {TUTTI_GATHER, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {"all_gather(", "called gather("}},
    {"scatters",
     {TUTTI_REDUCE_SCATTER, TUTTI_INT64, TUTTI_SUM, 0, 0},
     {TUTTI_SCATTER, TUTTI_INT64, TUTTI_SUM, 0, 0},
     {"reduce_scatter(", "called scatter("}},
    {"all_to_all",
     {TUTTI_ALL_TO_ALL, TUTTI_FLOAT32, TUTTI_SUM, 0, 0},
     {TUTTI_ALL_TO_ALL, TUTTI_FLOAT32, TUTTI_SUM, 0, 2},
     {"elements", "elements"}},
    {"scan_ops",
     {TUTTI_SCAN, TUTTI_INT64, TUTTI_SUM, 0, 0},
     {TUTTI_SCAN, TUTTI_INT64, TUTTI_MAX, 0, 0},
     {"SUM", "MAX"}},
    {"scans",
     {TUTTI_SCAN, TUTTI_INT64, TUTTI_SUM, 0, 0},
     {TUTTI_EXSCAN, TUTTI_INT64, TUTTI_SUM, 0, 0},
     {"scan(", "exscan("}},
};

static int make_call(tutti_group *group, int size, const struct call *call, int64_t count, bool *whole)
{
    size_t bytes = (size_t)(count + call->more) * (size_t)tutti_dtype_bytes(call->dtype);
    struct guarded part = guarded_new(bytes), all = guarded_new(bytes * (size_t)size);
    tutti_tensor one = tutti_tensor_of(part.data, count + call->more, call->dtype);
    tutti_tensor every = tutti_tensor_of(all.data, (count + call->more) * size, call->dtype), spare = every;
    struct guarded other = guarded_new(bytes * (size_t)size);
    tutti_opts *opts = tutti_with(.group = group);
    int status = TUTTI_OK;
    spare.data = other.data;
    switch (call->kind) {
    case TUTTI_BROADCAST:
        status = tutti_broadcast(one, call->root, opts);
        break;
    case TUTTI_ALL_REDUCE:
        status = tutti_all_reduce(one, call->op, opts);
        break;
    case TUTTI_REDUCE:
        status = tutti_reduce(one, call->root, call->op, opts);
        break;
    case TUTTI_ALL_GATHER:
        status = tutti_all_gather_into_tensor(every, one, opts);
        break;
    case TUTTI_GATHER:
        status = tutti_gather_into_tensor(every, one, call->root, opts);
        break;
    case TUTTI_SCATTER:
        status = tutti_scatter_tensor(one, every, call->root, opts);
        break;
    case TUTTI_REDUCE_SCATTER:
        status = tutti_reduce_scatter_tensor(one, every, call->op, opts);
        break;
    case TUTTI_ALL_TO_ALL:
        status = tutti_all_to_all_single(spare, every, NULL, NULL, opts);
        break;
    case TUTTI_SCAN:
        status = tutti_scan(one, call->op, opts);
        break;
    case TUTTI_EXSCAN:
        status = tutti_exscan(one, call->op, opts);
        break;
    default:
        status = tutti_barrier(opts);
        break;
    }
    *whole = guarded_end(&part);
    *whole &= guarded_end(&all);
    *whole &= guarded_end(&other);
    return status;
}

/* A successful operation comes first, so the sequence number is not 1.  The last rank is the one that differs. */
static int differ(tutti_store *store, int rank, int size, const struct differing *differing, int64_t count, int step)
{
    char name[64], guilty[16];
    tutti_store *part = NULL;
    tutti_group *group = NULL;
    bool whole = false;
    int odd = size - 1;
    const struct call *mine = rank == odd ? &differing->other : &differing->one;
    snprintf(guilty, sizeof guilty, "rank %d", odd);
    snprintf(name, sizeof name, "%s-%lld", differing->name, (long long)count);
    EXPECT(proc_group(store, name, size, 20000, &part, &group) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    proc_barrier(size, 2 * step - 1); /* an early failure would also end a barrier */
    int64_t begin = monotonic_ns();
    int status = make_call(group, size, mine, count, &whole);
    EXPECT_WITHIN(begin, 0, SOON_S);
    if (status == TUTTI_OK) { /* the call needed no data of the others, so the next call fails */
        EXPECT(mine->kind == TUTTI_BROADCAST || mine->kind == TUTTI_REDUCE || mine->kind == TUTTI_GATHER ||
               mine->kind == TUTTI_SCAN || mine->kind == TUTTI_EXSCAN);
        status = tutti_barrier(tutti_with(.group = group));
        EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, name, "called");
    } else if (strstr(tutti_last_error(), "earlier calls differ") != NULL) { /* the others were one call ahead */
        EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, name, "barrier #3");
    } else {
        EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, name, "#2", differing->words[0], differing->words[1], guilty);
        if (tutti_get_sequence(group) == 2) /* the call had begun when the failure became known */
            EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "under way for ");
    }
    EXPECT(whole);
    EXPECT_ERROR(tutti_barrier(tutti_with(.group = group)), TUTTI_ERR_ABORTED, name);
    proc_barrier(size, 2 * step); /* keeps the end of a rank out of the test */
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    tutti_store_free(part);
    return 0;
}

static int rank_of_differing(int rank, int size, void *argument)
{
    const int64_t *count = argument;
    tutti_store *store = proc_store();
    EXPECT(store != NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int result = differ(store, rank, size, &cases[i], *count, (int)i + 1);
        if (result != 0) {
            fprintf(stderr, "rank %d of %d: in case %s, %lld elements\n", rank, size, cases[i].name, (long long)*count);
            return result;
        }
    }
    tutti_store_free(store);
    return 0;
}

static void test_small_calls_that_differ(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) procs_run_ranks(size, rank_of_differing, &(int64_t){SMALL});
}

static void test_large_calls_that_differ(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) procs_run_ranks(size, rank_of_differing, &(int64_t){LARGE});
}

/* The others' calls differ and fail before the last rank calls.  Its call is still a mismatch. */
static int rank_that_is_late(int rank, int size, void *argument)
{
    (void)argument;
    float x[8] = {0};
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    bool late = rank == size - 1;
    if (late) {
        proc_barrier(size, 1);
        usleep(300000); /* until the others' messages have arrived */
    }
    int status = tutti_all_reduce(tutti_view(x, rank == 0 ? 4 : 8), TUTTI_SUM, NULL);
    EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "#2", "rank 0", "4 elements", "8 elements");
    if (!late) proc_barrier(size, 1);
    EXPECT_ERROR(tutti_barrier(NULL), TUTTI_ERR_ABORTED, "#2", "rank 0");
    proc_barrier(size, 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* Nobody sends to a root, so a rank that alone names itself the root cannot know.  Its next calls fail. */
static int rank_of_two_roots(int rank, int size, void *argument)
{
    enum { MORE = 4 };
    int64_t x = rank;
    int status = TUTTI_OK;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_broadcast(tutti_view(&x, 1), rank == 1 ? 1 : 0, NULL) == TUTTI_OK && x == (rank == 1));
    proc_barrier(size, 1); /* no rank's next call fails the group before another one's first */
    for (int i = 0; i < MORE && status == TUTTI_OK; i++) status = tutti_broadcast(tutti_view(&x, 1), 0, NULL);
    if (rank == 1) EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "earlier calls differ");
    proc_barrier(size, 2);
    EXPECT(tutti_barrier(NULL) != TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_two_roots(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_two_roots, NULL);
}

/* Every rank names itself the root.  A root that only sends gets the error in the next collective, which names this
 * call.  A root that receives gets it in the call. */
static int rank_of_all_roots(int rank, int size, void *argument)
{
    float x[4] = {(float)rank}, all[16] = {0};
    int status = TUTTI_OK;
    EXPECT(proc_init(20000) == TUTTI_OK && size <= 4);
    switch (*(const tutti_kind *)argument) {
    case TUTTI_BROADCAST:
        EXPECT(tutti_broadcast(tutti_view(x, 4), rank, NULL) == TUTTI_OK && x[0] == (float)rank);
        proc_barrier(size, 1); /* no rank's barrier fails the group before another one's broadcast */
        EXPECT_ERROR(tutti_barrier(NULL), TUTTI_ERR_MISMATCH, "earlier calls differ", "broadcast(", "root");
        break;
    case TUTTI_SCATTER:
        EXPECT(tutti_scatter_tensor(tutti_view(x, 4), tutti_view(all, 4 * size), rank, NULL) == TUTTI_OK);
        proc_barrier(size, 1);
        EXPECT_ERROR(tutti_barrier(NULL), TUTTI_ERR_MISMATCH, "earlier calls differ", "scatter(", "root");
        break;
    case TUTTI_REDUCE:
        status = tutti_reduce(tutti_view(x, 4), rank, TUTTI_SUM, NULL);
        EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "reduce(", "root");
        break;
    default:
        status = tutti_gather_into_tensor(tutti_view(all, 4 * size), tutti_view(x, 4), rank, NULL);
        EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "gather(", "root");
    }
    proc_barrier(size, 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_all_roots(void **state)
{
    static const tutti_kind kinds[] = {TUTTI_BROADCAST, TUTTI_SCATTER, TUTTI_REDUCE, TUTTI_GATHER};
    (void)state;
    for (int shm = 0; shm < 2; shm++) {
        setenv("TUTTI_SHM", shm == 1 ? "1" : "0", 1);
        for (int i = 0; i < 4; i++) procs_run_ranks(3, rank_of_all_roots, (void *)(uintptr_t)&kinds[i]);
    }
    unsetenv("TUTTI_SHM");
}

static void test_a_rank_that_is_late_to_a_mismatch(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_that_is_late, NULL);
}

/* ---- another algorithm on one rank: the messages would not be each other's
 * ---------------------------------------------------------- */

static int rank_of_mixed_algorithms(int rank, int size, void *argument)
{
    const char *const *settings = argument; /* NAME=VALUE of the others and of the last rank, or "" */
    const char *mine = settings[rank == size - 1], *equals = strchr(mine, '=');
    char name[64];
    if (equals != NULL) {
        snprintf(name, sizeof name, "%.*s", (int)(equals - mine), mine);
        setenv(name, equals + 1, 1);
    }
    if (settings[2] == NULL) {
        const tutti_init_opts opts = {.timeout_ms = 5000, .store_timeout_ms = 20000};
        EXPECT_ERROR(tutti_init_process_group(size == 3 ? "cpu:tcp|mpi" : "tcp", &opts), TUTTI_ERR_INVALID_ARGUMENT,
                     "TUTTI_ALGO or TUTTI_DETERMINISTIC differ", "set the same value on");
        return 0;
    }
    EXPECT(proc_init(5000) == TUTTI_OK);
    int32_t x = 1;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == size);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_mixed_algorithms(void **state)
{
    (void)state;
    static const char *const settings[][3] = {{"TUTTI_ALGO=recursive_doubling", "TUTTI_ALGO=ring", NULL},
                                              {"", "TUTTI_ALGO=ring", NULL},
                                              {"", "TUTTI_DETERMINISTIC=1", NULL},
                                              {"", "TUTTI_DETERMINISTIC=0", "the same"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (int size = 2; size <= 4; size++)
            procs_run_ranks(size, rank_of_mixed_algorithms, (void *)(uintptr_t)settings[i]);
}

/* ---- messages that do not fit --------------------------------------------------------------------------------- */

static int message(tutti_group *group, int rank, int64_t sent, int64_t received, tutti_dtype as, bool fits)
{
    if (rank > 1) return 0;
    struct guarded it = guarded_new((size_t)(rank == 0 ? sent : received) * 4);
    int64_t begin = monotonic_ns();
    tutti_opts *opts = tutti_with(.group = group, .tag = 3);
    int status = rank == 0 ? tutti_send(tutti_tensor_of(it.data, sent, TUTTI_FLOAT32), 1, opts)
                           : tutti_recv(tutti_tensor_of(it.data, received, as), 0, opts);
    EXPECT_WITHIN(begin, 0, SOON_S);
    if (fits) {
        EXPECT(status == TUTTI_OK);
    } else if (rank == 1) {
        EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "rank 0", "recv", tutti_get_name(group));
        for (size_t i = 0; i < it.bytes; i++) EXPECT(((uint8_t *)it.data)[i] == 1);
    } else if (status != TUTTI_OK) { /* small messages were sent eagerly */
        EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "rank 1", "send", tutti_get_name(group));
    }
    EXPECT(guarded_end(&it));
    return 0;
}

static int rank_of_messages(int rank, int size, void *argument)
{
    static const int64_t bases[] = {16, 200000};
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        int64_t n = bases[i];
        EXPECT(message(NULL, rank, n, n / 2, TUTTI_FLOAT32, false) == 0);
        EXPECT(message(NULL, rank, n, n * 2, TUTTI_FLOAT32, false) == 0);
        EXPECT(message(NULL, rank, n, 0, TUTTI_FLOAT32, false) == 0);
        EXPECT(message(NULL, rank, 0, n, TUTTI_FLOAT32, false) == 0);
        EXPECT(message(NULL, rank, n, n, TUTTI_INT32, false) == 0);
        EXPECT(message(NULL, rank, n, n, TUTTI_FLOAT32, true) == 0);
        int64_t one = 1;
        EXPECT(tutti_all_reduce(tutti_view(&one, 1), TUTTI_SUM, NULL) == TUTTI_OK && one == size);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_messages_that_do_not_fit(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_messages, NULL);
    procs_run_ranks(3, rank_of_messages, NULL);
}

/* ---- calls that are refused before anything is sent --------------------------------------------------------- */

static int rank_of_refusals(int rank, int size, void *argument)
{
    (void)argument;
    float x[4] = {1, 1, 1, 1};
    EXPECT(proc_init(20000) == TUTTI_OK);
    if (rank == 0) { /* on one rank only, so nothing can have been sent */
        EXPECT_ERROR(tutti_broadcast(tutti_view(x, 4), size, NULL), TUTTI_ERR_INVALID_ARGUMENT, "broadcast", "world");
        EXPECT_ERROR(tutti_all_reduce(tutti_view(x, -1), TUTTI_SUM, NULL), TUTTI_ERR_INVALID_ARGUMENT, "-1");
        EXPECT_ERROR(tutti_all_reduce(tutti_view((float *)NULL, 4), TUTTI_SUM, NULL), TUTTI_ERR_INVALID_ARGUMENT,
                     "NULL");
        EXPECT_ERROR(tutti_all_reduce(tutti_view(x, INT64_MAX / 2), TUTTI_SUM, NULL), TUTTI_ERR_INVALID_ARGUMENT, "");
        EXPECT_ERROR(tutti_send(tutti_view(x, 4), 0, NULL), TUTTI_ERR_INVALID_ARGUMENT, "send");
        EXPECT_ERROR(tutti_all_reduce(tutti_view(x, 4), (tutti_reduce_op)77, NULL), TUTTI_ERR_INVALID_ARGUMENT, "77");
    }
    for (int i = 0; i < 3; i++) /* alike on all ranks */
        EXPECT_ERROR(tutti_all_reduce(tutti_view(x, 4), TUTTI_BAND, NULL), TUTTI_ERR_UNSUPPORTED, "BAND", "float32");
    EXPECT(tutti_all_reduce(tutti_view(x, 4), TUTTI_SUM, NULL) == TUTTI_OK && x[3] == (float)size);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_refused_calls_leave_the_group_usable(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_refusals, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_calls_that_differ),
        cmocka_unit_test(test_large_calls_that_differ),
        cmocka_unit_test(test_a_rank_that_is_late_to_a_mismatch),
        cmocka_unit_test(test_two_roots),
        cmocka_unit_test(test_all_roots),
        cmocka_unit_test(test_mixed_algorithms),
        cmocka_unit_test(test_messages_that_do_not_fit),
        cmocka_unit_test(test_refused_calls_leave_the_group_usable),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
