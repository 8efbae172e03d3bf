/* What a rank of test_mpi does under mpirun or mpiexec: every operation once over mpi and once over tcp, on the same
 * random bits; the results must be the same bits.  Then what has no twin: order, mismatch, timeouts, groups.
 *
 * A rank prints what went wrong and returns 1. */
#ifndef TESTS_MPI_RANKS_H
#define TESTS_MPI_RANKS_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { MOST = 300000, BYTES = MOST * 16 + 64 };

static struct {
    int rank, size;
    tutti_group *mpi;
    tutti_store *store;
    char *in, *out[2];
} my;

static int wrong(const char *what, const char *detail)
{
    fprintf(stderr, "rank %d: %s: %s\n", my.rank, what, detail);
    return 1;
}

#define SHOULD(call, status)                                                                                           \
    do {                                                                                                               \
        int got_ = (call);                                                                                             \
        if (got_ != (status)) {                                                                                        \
            fprintf(stderr, "rank %d, line %d: %s gave %d: %s\n", my.rank, __LINE__, #call, got_, tutti_last_error()); \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define OK(call) SHOULD(call, TUTTI_OK)

static const tutti_dtype all_dtypes[] = {
    TUTTI_INT8,      TUTTI_INT16,      TUTTI_INT32,   TUTTI_INT64,         TUTTI_UINT8,      TUTTI_UINT16,
    TUTTI_UINT32,    TUTTI_UINT64,     TUTTI_FLOAT16, TUTTI_FLOAT32,       TUTTI_FLOAT64,    TUTTI_BFLOAT16,
    TUTTI_COMPLEX64, TUTTI_COMPLEX128, TUTTI_BOOL,    TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2};

static void fill(uint64_t seed, tutti_dtype dtype, int64_t bytes)
{
    uint64_t state = seed * 1000003u + (uint64_t)my.rank * 7919u + 1;
    for (int64_t i = 0; i < bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        my.in[i] = (char)(dtype == TUTTI_BOOL ? state >> 40 & 1 : state >> 40);
    }
}

/* Sums of floats depend on the order, which is each backend's own; with two ranks there is but one. */
static bool is_exact(tutti_dtype dtype, tutti_reduce_op op)
{
    bool inexact = (dtype >> 8 != 0 && dtype >> 8 != 1 && dtype != TUTTI_BOOL) && op != TUTTI_MIN && op != TUTTI_MAX;
    return my.size <= 2 || !inexact;
}

/* ---- every operation over both ------------------------------------------------------------------------------- */

enum form {
    BROADCAST,
    ALL_REDUCE,
    ALL_REDUCE_SAME,
    REDUCE,
    ALL_GATHER,
    ALL_GATHER_SAME,
    ALL_GATHER_LIST,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    REDUCE_SCATTER_SAME,
    ALL_TO_ALL,
    ALL_TO_ALL_SAME,
    ALL_TO_ALL_SPLITS,
    FORMS
};

static const char *const form_names[FORMS] = {"broadcast",
                                              "all_reduce",
                                              "all_reduce in place",
                                              "reduce",
                                              "all_gather",
                                              "all_gather in place",
                                              "all_gather of a list",
                                              "gather",
                                              "scatter",
                                              "reduce_scatter",
                                              "reduce_scatter in place",
                                              "all_to_all",
                                              "all_to_all in place",
                                              "all_to_all with splits"};

static int run_splits(char *out, int64_t n, tutti_dtype dtype, const tutti_opts *opts)
{
    int64_t ins[8], outs[8], in_sum = 0, out_sum = 0; /* rank r sends n * ((r + k) % 3) to rank k */
    for (int k = 0; k < my.size; k++) {
        ins[k] = n * ((my.rank + k) % 3);
        outs[k] = n * ((my.rank + k) % 3);
        in_sum += ins[k];
        out_sum += outs[k];
    }
    return tutti_all_to_all_single(tutti_tensor_of(out, out_sum, dtype), tutti_tensor_of(my.in, in_sum, dtype), outs,
                                   ins, opts);
}

static int run_list(char *out, int64_t n, tutti_dtype dtype, const tutti_opts *opts)
{
    tutti_tensor list[8];
    int64_t element = tutti_dtype_bytes(dtype);
    for (int k = 0; k < my.size; k++) /* in reversed places */
        list[k] = tutti_tensor_of(out + (my.size - 1 - k) * n * element, n, dtype);
    return tutti_all_gather(list, my.size, tutti_tensor_of(my.in, n, dtype), opts);
}

/* n elements a part. */
static int run(enum form form, char *out, int64_t n, tutti_dtype dtype, tutti_reduce_op op, int root,
               const tutti_opts *opts)
{
    int64_t bytes = n * tutti_dtype_bytes(dtype), all = n * my.size;
    tutti_tensor in1 = tutti_tensor_of(my.in, n, dtype), in_all = tutti_tensor_of(my.in, all, dtype);
    tutti_tensor out1 = tutti_tensor_of(out, n, dtype), out_all = tutti_tensor_of(out, all, dtype);
    tutti_tensor own = tutti_tensor_of(out + my.rank * bytes, n, dtype);
    switch (form) {
    case BROADCAST:
        memcpy(out, my.in, (size_t)bytes);
        return tutti_broadcast(out1, root, opts);
    case ALL_REDUCE:
        return tutti_all_reduce_into(out1, in1, op, opts);
    case ALL_REDUCE_SAME:
        memcpy(out, my.in, (size_t)bytes);
        return tutti_all_reduce(out1, op, opts);
    case REDUCE:
        return tutti_reduce_into(out1, in1, root, op, opts);
    case ALL_GATHER:
        return tutti_all_gather_into_tensor(out_all, in1, opts);
    case ALL_GATHER_SAME:
        memcpy(own.data, my.in, (size_t)bytes);
        return tutti_all_gather_into_tensor(out_all, own, opts);
    case ALL_GATHER_LIST:
        return run_list(out, n, dtype, opts);
    case GATHER:
        return tutti_gather_into_tensor(out_all, in1, root, opts);
    case SCATTER:
        return tutti_scatter_tensor(out1, in_all, root, opts);
    case REDUCE_SCATTER:
        return tutti_reduce_scatter_tensor(out1, in_all, op, opts);
    case REDUCE_SCATTER_SAME: {
        memcpy(out, my.in, (size_t)(bytes * my.size));
        int status = tutti_reduce_scatter_tensor(own, out_all, op, opts);
        memmove(out, own.data, (size_t)bytes); /* the other parts are not said */
        memset(out + bytes, 0, (size_t)(bytes * (my.size - 1)));
        return status;
    }
    case ALL_TO_ALL:
        return tutti_all_to_all_single(out_all, in_all, NULL, NULL, opts);
    case ALL_TO_ALL_SAME:
        memcpy(out, my.in, (size_t)(bytes * my.size));
        return tutti_all_to_all_single(out_all, out_all, NULL, NULL, opts);
    case ALL_TO_ALL_SPLITS:
        return run_splits(out, n, dtype, opts);
    default:
        return -1;
    }
}

static int compare(enum form form, int64_t n, tutti_dtype dtype, tutti_reduce_op op, int root)
{
    size_t bytes = (size_t)(3 * n * my.size * tutti_dtype_bytes(dtype)) + 64;
    int status[2];
    fill((uint64_t)(form * 131 + n + (int)op * 17 + root), dtype, (int64_t)bytes);
    for (int k = 0; k < 2; k++) {
        memset(my.out[k], 0x5a, bytes);
        status[k] =
            run(form, my.out[k], n, dtype, op, root, tutti_with(.group = k == 0 ? NULL : my.mpi, .factor = 0.5));
        if (status[k] != TUTTI_OK && status[k] != TUTTI_ERR_UNSUPPORTED)
            return wrong(form_names[form], tutti_last_error());
    }
    char text[200];
    snprintf(text, sizeof text, "%s of %" PRId64 " elements of 0x%x, op %d, root %d", form_names[form], n,
             (unsigned)dtype, (int)op, root);
    if (status[0] != status[1]) return wrong(text, "one backend does it, the other does not");
    return memcmp(my.out[0], my.out[1], bytes) == 0 ? 0 : wrong(text, "tcp and mpi differ");
}

static int all_reductions(void)
{
    static const int64_t counts[] = {0, 1, 5, 3001};
    for (size_t d = 0; d < sizeof all_dtypes / sizeof *all_dtypes; d++)
        for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                if (is_exact(all_dtypes[d], (tutti_reduce_op)op) &&
                    compare(ALL_REDUCE, counts[c], all_dtypes[d], (tutti_reduce_op)op, 0) != 0)
                    return 1;
    return 0;
}

static int all_forms(void)
{
    static const int64_t counts[] = {1, 700, 100000 / 3};
    static const tutti_dtype dtypes[] = {TUTTI_INT32, TUTTI_UINT8, TUTTI_COMPLEX128};
    for (int form = 0; form < FORMS; form++)
        for (int d = 0; d < 3; d++)
            for (int c = 0; c < 3; c++)
                for (int root = 0; root < my.size; root++) {
                    bool reduces = form == REDUCE || form == REDUCE_SCATTER || form == REDUCE_SCATTER_SAME ||
                                   form == ALL_REDUCE || form == ALL_REDUCE_SAME;
                    if (reduces && !is_exact(dtypes[d], TUTTI_SUM)) continue;
                    if (compare((enum form)form, counts[c], dtypes[d], TUTTI_SUM, root) != 0) return 1;
                }
    return 0;
}

/* ---- what has no twin ------------------------------------------------------------------------------------------ */

static int messages(void)
{
    enum { N = 1 << 20 };
    int *mine = calloc(N, sizeof *mine), *theirs = calloc(N, sizeof *theirs), source = -1, small = 0;
    int next = (my.rank + 1) % my.size, before = (my.rank + my.size - 1) % my.size;
    tutti_work *works[2] = {NULL};
    for (int i = 0; i < N; i++) mine[i] = my.rank * N + i;
    const tutti_opts *opts = tutti_with(.group = my.mpi, .tag = 2000000000); /* more than MPI's tags hold */
    OK(tutti_isend(tutti_view(mine, N), next, opts, &works[0]));             /* all send first */
    OK(tutti_irecv(tutti_view(theirs, N), before, opts, &works[1]));
    OK(tutti_wait(&works[1], 20000));
    OK(tutti_wait(&works[0], 20000));
    for (int i = 0; i < N; i++)
        if (theirs[i] != before * N + i) return wrong("ring of long messages", "other bytes");
    for (int i = 0; i < 100; i++) {
        OK(tutti_isend(tutti_view(&mine[i], 1), next, tutti_with(.group = my.mpi, .tag = i % 2), &works[0]));
        OK(tutti_wait(&works[0], 20000));
    }
    for (int i = 1; i < 100; i += 2) {
        OK(tutti_recv(tutti_view(&small, 1), before, tutti_with(.group = my.mpi, .tag = 1)));
        if (small != before * N + i) return wrong("messages of one tag", "out of order");
    }
    for (int i = 0; i < 100; i += 2) {
        OK(tutti_recv(tutti_view(&small, 1), TUTTI_ANY_SOURCE, tutti_with(.group = my.mpi, .source = &source)));
        if (small != before * N + i || source != before) return wrong("any source", "out of order, or another source");
    }
    free(mine);
    free(theirs);
    return 0;
}

/* Messages as long as what just rides along with its header, and as what does not, received before they are sent or
 * after. */
static int sizes(void)
{
    static char mine[4][3074], theirs[4][3074];
    int next = (my.rank + 1) % my.size, before = (my.rank + my.size - 1) % my.size;
    for (int n = 3071; n <= 3074; n++) {
        for (int early = 0; early < 2; early++) {
            tutti_work *works[2][4];
            for (int i = 0; i < 4; i++) memset(mine[i], n + my.rank * 16 + i, (size_t)n);
            for (int turn = 0; turn < 2; turn++) {
                for (int i = 0; i < 4; i++) {
                    bool sends = turn == early;
                    tutti_tensor tensor = tutti_tensor_of(sends ? mine[i] : theirs[i], n, TUTTI_INT8);
                    const tutti_opts *opts = tutti_with(.group = my.mpi, .tag = i % 2);
                    OK(sends ? tutti_isend(tensor, next, opts, &works[0][i])
                             : tutti_irecv(tensor, before, opts, &works[1][i]));
                }
                if (early == 0) OK(tutti_barrier(tutti_with(.group = my.mpi)));
            }
            for (int i = 0; i < 8; i++) OK(tutti_wait(&works[i / 4][i % 4], 20000));
            for (int i = 0; i < 4; i++)
                if (theirs[i][0] != (char)(n + before * 16 + i) || theirs[i][n - 1] != theirs[i][0])
                    return wrong("messages of 3 KiB", "other bytes");
        }
    }
    return 0;
}

/* More long messages than there are tags for them. */
static int many_long(void)
{
    enum { TIMES = 33000, N = 800 };
    static int mine[N], theirs[N];
    int peer = my.rank ^ 1;
    for (int i = 0; i < TIMES && my.rank < 2; i++) {
        mine[0] = mine[N - 1] = i;
        if (my.rank == 0) OK(tutti_send(tutti_view(mine, N), peer, tutti_with(.group = my.mpi)));
        if (my.rank == 1) OK(tutti_recv(tutti_view(theirs, N), peer, tutti_with(.group = my.mpi)));
        if (my.rank == 1 && (theirs[0] != i || theirs[N - 1] != i)) return wrong("many long messages", "other bytes");
    }
    return 0;
}

/* Who sends to one that is busy waits once MPI takes no more, and keeps no copies: they would fill the memory.  A send
 * whose time is up meanwhile is on its way all the same. */
static int far_ahead(void)
{
    enum { TIMES = 20000, N = 3072, MOST_KIB = 16 << 10 };
    static char data[N];
    struct rusage before, after;
    int sent = 0, status = TUTTI_OK;
    getrusage(RUSAGE_SELF, &before);
    if (my.rank == 0) {
        for (; sent < TIMES && status == TUTTI_OK; sent++) {
            data[0] = (char)sent;
            status = tutti_send(tutti_tensor_of(data, N, TUTTI_INT8), 1, tutti_with(.group = my.mpi, .timeout_ms = 50));
        }
        if (status != TUTTI_OK && status != TUTTI_ERR_TIMEOUT)
            return wrong("sends to one that is busy", tutti_last_error());
    }
    OK(tutti_broadcast(tutti_view(&sent, 1), 0,
                       NULL)); /* until here nobody else calls MPI, but now and then a thread */
    for (int i = 0; i < TIMES; i++) {
        if (i >= sent) data[0] = (char)i;
        if (i >= sent && my.rank == 0)
            OK(tutti_send(tutti_tensor_of(data, N, TUTTI_INT8), 1, tutti_with(.group = my.mpi)));
        if (my.rank != 1) continue;
        OK(tutti_recv(tutti_tensor_of(data, N, TUTTI_INT8), 0, tutti_with(.group = my.mpi)));
        if (data[0] != (char)i) return wrong("sends to one that is busy", "other bytes");
        if (i % 1000 == 0) usleep(1000);
    }
    getrusage(RUSAGE_SELF, &after);
    bool is_mpich = getenv("OMPI_COMM_WORLD_SIZE") == NULL; /* its own memory grows at times, by tens of MiB */
    if (my.rank == 0 && !is_mpich && after.ru_maxrss - before.ru_maxrss > MOST_KIB)
        return wrong("sends to one that is busy", "they were copied");
    return 0;
}

/* Each reads what the one before writes; the core holds some back, on each rank at its own time. */
static int order(void)
{
    enum { N = 5000, TIMES = 12 };
    static float a[N], b[N], c[N];
    tutti_work *works[3 * TIMES];
    for (int i = 0; i < N; i++) a[i] = 1.0f, c[i] = 2.0f;
    for (int i = 0; i < TIMES; i++) {
        OK(tutti_all_reduce(tutti_view(a, N), TUTTI_SUM, tutti_with(.group = my.mpi, .async_op = &works[3 * i])));
        OK(tutti_all_reduce_into(tutti_view(b, N), tutti_view(a, N), TUTTI_MAX,
                                 tutti_with(.group = my.mpi, .async_op = &works[3 * i + 1])));
        OK(tutti_broadcast(tutti_view(c, N), i % my.size, tutti_with(.group = my.mpi, .async_op = &works[3 * i + 2])));
    }
    for (int i = 0; i < 3 * TIMES; i++) OK(tutti_wait(&works[i], 20000));
    float expected = 1.0f;
    for (int i = 0; i < TIMES; i++) expected *= (float)my.size;
    return a[N - 1] == expected && b[0] == expected && c[7] == 2.0f ? 0
                                                                    : wrong("a row of operations", "another result");
}

static int subgroups(void)
{
    int ranks[8], value = my.rank;
    tutti_group *reversed = NULL, *half = NULL;
    for (int i = 0; i < my.size; i++) ranks[i] = my.size - 1 - i;
    tutti_group_opts opts = {.parent = my.mpi};
    OK(tutti_new_group(ranks, my.size, &opts, &reversed));
    int all[8] = {0};
    OK(tutti_all_gather_into_tensor(tutti_view(all, my.size), tutti_view(&value, 1), tutti_with(.group = reversed)));
    for (int i = 0; i < my.size; i++)
        if (all[i] != ranks[i]) return wrong("a group in reversed order", "another order");
    opts.members_only = true;
    if (my.rank < 2) {
        static int many[60000];
        for (int i = 0; i < 60000; i++) many[i] = my.rank;
        OK(tutti_new_group((int[]){1, 0}, 2, &opts, &half));
        OK(tutti_broadcast(tutti_view(many, 60000), 1, tutti_with(.group = half)));
        if (many[0] != 1 || many[59999] != 1) return wrong("a group of two", "another result");
        OK(tutti_destroy_process_group(half));
    }
    OK(tutti_all_reduce(tutti_view(&value, 1), TUTTI_SUM, tutti_with(.group = reversed)));
    OK(tutti_destroy_process_group(reversed));
    return value == my.size * (my.size - 1) / 2 ? 0 : wrong("a group in reversed order", "another sum");
}

/* Who comes last to a collective, in a call that blocks, gets to a new group only once the others have gone on with it,
 * while they wait for him there. */
static int group_behind_an_operation(void)
{
    tutti_group *group = NULL;
    tutti_group_opts opts = {.parent = my.mpi, .timeout_ms = 20000};
    int ranks[8], last = my.size - 1;
    for (int i = 0; i < my.size; i++) ranks[i] = i;
    for (int turn = 0; turn < 2; turn++) {
        float x = 1.0f;
        tutti_work *works[2] = {NULL};
        tutti_opts own = {.group = my.mpi, .timeout_ms = 20000};
        if (my.rank == last) usleep(100000);
        if (my.rank != last) own.async_op = &works[0];
        OK(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, &own));
        if (my.rank != last) own.async_op = &works[1];
        OK(tutti_barrier(&own));
        OK(tutti_new_group(ranks, my.size, &opts, &group));
        OK(tutti_wait_all(works, 2, 20000));
        OK(tutti_destroy_process_group(group));
        if (x != (float)my.size) return wrong("a group behind an operation", "another sum");
    }
    return 0;
}

/* What waits for a rank that has destroyed the group ends before its time. */
static int group_that_one_has_left(void)
{
    tutti_group *group = NULL;
    tutti_group_opts opts = {.parent = my.mpi, .timeout_ms = 20000};
    int ranks[8], last = my.size - 1;
    for (int i = 0; i < my.size; i++) ranks[i] = i;
    OK(tutti_new_group(ranks, my.size, &opts, &group));
    OK(tutti_barrier(&(tutti_opts){.group = group}));
    if (my.rank != last && tutti_barrier(&(tutti_opts){.group = group}) != TUTTI_ERR_ABORTED)
        return wrong("a group that one has left", tutti_last_error());
    OK(tutti_destroy_process_group(group));
    OK(tutti_barrier(&(tutti_opts){.group = my.mpi})); /* where MPI is the main thread's, that answers in here */
    return 0;
}

/* Failures of a message leave the group as it was; a collective that differs fails it on all ranks. */
static int failures(void)
{
    double numbers[2] = {0};
    static float many[50000];
    const tutti_opts *opts = tutti_with(.group = my.mpi, .tag = 5, .timeout_ms = 20000);
    if (my.rank == 0) {
        SHOULD(tutti_recv(tutti_view(numbers, 2), 1, tutti_with(.group = my.mpi, .tag = 9, .timeout_ms = 100)),
               TUTTI_ERR_TIMEOUT);
        SHOULD(tutti_recv(tutti_view(numbers, 2), 1, opts), TUTTI_ERR_MISMATCH);
        SHOULD(tutti_recv(tutti_view(numbers, 2), 1, opts), TUTTI_ERR_MISMATCH);
    } else if (my.rank == 1) {
        OK(tutti_send(tutti_view(numbers, 1), 0, opts));
        OK(tutti_send(tutti_view(many, 50000), 0, opts)); /* a long one that nobody takes does not stand in the way */
    }
    OK(tutti_barrier(tutti_with(.group = my.mpi, .timeout_ms = 20000)));
    int status = tutti_all_reduce(tutti_tensor_of(many, my.rank == 0 ? 4 : 8, TUTTI_FLOAT32), TUTTI_SUM,
                                  tutti_with(.group = my.mpi, .timeout_ms = 20000));
    return status == TUTTI_ERR_MISMATCH ? 0 : wrong("ranks that differ", tutti_last_error());
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static int open_groups(void)
{
    int32_t port = 0;
    OK(tutti_init_process_group("tcp", NULL)); /* the launcher's own board says where */
    my.rank = tutti_get_rank(NULL);
    my.size = tutti_get_world_size(NULL);
    tutti_store_opts serves = {.server = my.rank == 0};
    if (my.rank == 0) {
        OK(tutti_store_tcp("127.0.0.1", 0, &serves, &my.store));
        port = tutti_store_port(my.store);
    }
    OK(tutti_broadcast(tutti_view(&port, 1), 0, NULL));
    if (my.rank > 0) OK(tutti_store_tcp("127.0.0.1", (uint16_t)port, &serves, &my.store));
    OK(tutti_create_group("mpi", my.store, my.rank, my.size, NULL, &my.mpi));
    my.in = malloc(BYTES);
    for (int k = 0; k < 2; k++) my.out[k] = malloc(BYTES);
    return my.in == NULL || my.out[0] == NULL || my.out[1] == NULL;
}

static int rank_main(void)
{
    int failed = open_groups();
    if (failed == 0) failed = all_reductions();
    if (failed == 0) failed = all_forms();
    if (failed == 0) failed = messages();
    if (failed == 0) failed = sizes();
    if (failed == 0 && my.size == 2) failed = many_long();
    if (failed == 0) failed = far_ahead();
    if (failed == 0) failed = order();
    if (failed == 0) failed = subgroups();
    if (failed == 0) failed = group_behind_an_operation();
    if (failed == 0) failed = group_that_one_has_left();
    if (failed == 0) OK(tutti_barrier(NULL));
    if (failed == 0) failed = failures();
    if (failed == 0) OK(tutti_barrier(NULL));
    if (failed != 0) return 1;
    tutti_destroy_process_group(my.mpi);
    tutti_store_free(my.store);
    OK(tutti_destroy_process_group(NULL));
    printf("rank %d of %d: all right\n", my.rank, my.size);
    return 0;
}

#endif
