#include "mpi_ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "user_op_cases.h"

struct mpi_ranks mpi_ranks;

int mpi_ranks_wrong(const char *what, const char *detail)
{
    fprintf(stderr, "rank %d: %s: %s\n", mpi_ranks.rank, what, detail);
    return 1;
}

/* ---- what tcp does not do alike
 * ------------------------------------------------------------------------------------------ */

static int messages(void)
{
    enum { N = 1 << 20 };
    int *mine = calloc(N, sizeof *mine), *theirs = calloc(N, sizeof *theirs), source = -1, small = 0;
    int next = (mpi_ranks.rank + 1) % mpi_ranks.size, before = (mpi_ranks.rank + mpi_ranks.size - 1) % mpi_ranks.size;
    tutti_work *works[2] = {NULL};
    tutti_stats begun, ended;
    OK(tutti_get_stats(mpi_ranks.mpi, &begun));
    for (int i = 0; i < N; i++) mine[i] = mpi_ranks.rank * N + i;
    const tutti_opts *opts = tutti_with(.group = mpi_ranks.mpi, .tag = 2000000000); /* larger than MPI's tags */
    OK(tutti_isend(tutti_view(mine, N), next, opts, &works[0]));                    /* all ranks send first */
    OK(tutti_irecv(tutti_view(theirs, N), before, opts, &works[1]));
    OK(tutti_wait(&works[1], 20000));
    OK(tutti_wait(&works[0], 20000));
    for (int i = 0; i < N; i++)
        if (theirs[i] != before * N + i) return mpi_ranks_wrong("ring of long messages", "other bytes");
    for (int i = 0; i < 100; i++) {
        OK(tutti_isend(tutti_view(&mine[i], 1), next, tutti_with(.group = mpi_ranks.mpi, .tag = i % 2), &works[0]));
        OK(tutti_wait(&works[0], 20000));
    }
    for (int i = 1; i < 100; i += 2) {
        OK(tutti_recv(tutti_view(&small, 1), before, tutti_with(.group = mpi_ranks.mpi, .tag = 1)));
        if (small != before * N + i) return mpi_ranks_wrong("messages of one tag", "out of order");
    }
    for (int i = 0; i < 100; i += 2) {
        OK(tutti_recv(tutti_view(&small, 1), TUTTI_ANY_SOURCE, tutti_with(.group = mpi_ranks.mpi, .source = &source)));
        if (small != before * N + i || source != before)
            return mpi_ranks_wrong("any source", "out of order, or another source");
    }
    OK(tutti_get_stats(mpi_ranks.mpi, &ended));
    uint64_t bytes = (N + 100) * sizeof *mine;
    if (ended.transport.library.sent - begun.transport.library.sent != bytes ||
        ended.transport.library.received - begun.transport.library.received != bytes)
        return mpi_ranks_wrong("messages", "other bytes are counted");
    free(mine);
    free(theirs);
    return 0;
}

/* Uses message sizes around the largest that travels with its header, received before they are sent and after. */
static int sizes(void)
{
    static char mine[4][3074], theirs[4][3074];
    int next = (mpi_ranks.rank + 1) % mpi_ranks.size, before = (mpi_ranks.rank + mpi_ranks.size - 1) % mpi_ranks.size;
    for (int n = 3071; n <= 3074; n++) {
        for (int early = 0; early < 2; early++) {
            tutti_work *works[2][4];
            for (int i = 0; i < 4; i++) memset(mine[i], n + mpi_ranks.rank * 16 + i, (size_t)n);
            for (int turn = 0; turn < 2; turn++) {
                for (int i = 0; i < 4; i++) {
                    bool sends = turn == early;
                    tutti_tensor tensor = tutti_tensor_of(sends ? mine[i] : theirs[i], n, TUTTI_INT8);
                    const tutti_opts *opts = tutti_with(.group = mpi_ranks.mpi, .tag = i % 2);
                    OK(sends ? tutti_isend(tensor, next, opts, &works[0][i])
                             : tutti_irecv(tensor, before, opts, &works[1][i]));
                }
                if (early == 0) OK(tutti_barrier(tutti_with(.group = mpi_ranks.mpi)));
            }
            for (int i = 0; i < 8; i++) OK(tutti_wait(&works[i / 4][i % 4], 20000));
            for (int i = 0; i < 4; i++)
                if (theirs[i][0] != (char)(n + before * 16 + i) || theirs[i][n - 1] != theirs[i][0])
                    return mpi_ranks_wrong("messages of 3 KiB", "other bytes");
        }
    }
    return 0;
}

/* Sends more long messages than there are tags for them. */
static int many_long(void)
{
    enum { TIMES = 33000, N = 800 };
    static int mine[N], theirs[N];
    int peer = mpi_ranks.rank ^ 1;
    for (int i = 0; i < TIMES && mpi_ranks.rank < 2; i++) {
        mine[0] = mine[N - 1] = i;
        if (mpi_ranks.rank == 0) OK(tutti_send(tutti_view(mine, N), peer, tutti_with(.group = mpi_ranks.mpi)));
        if (mpi_ranks.rank == 1) OK(tutti_recv(tutti_view(theirs, N), peer, tutti_with(.group = mpi_ranks.mpi)));
        if (mpi_ranks.rank == 1 && (theirs[0] != i || theirs[N - 1] != i))
            return mpi_ranks_wrong("many long messages", "other bytes");
    }
    return 0;
}

/* A sender to a busy receiver waits when MPI takes no more.  It keeps no copies, which would fill the memory.  A send
 * that times out meanwhile is still delivered. */
static int far_ahead(void)
{
    enum { TIMES = 20000, N = 3072, MOST_KIB = 16 << 10 };
    static char data[N];
    struct rusage before, after;
    int sent = 0, status = TUTTI_OK;
    getrusage(RUSAGE_SELF, &before);
    if (mpi_ranks.rank == 0) {
        for (; sent < TIMES && status == TUTTI_OK; sent++) {
            data[0] = (char)sent;
            status = tutti_send(tutti_tensor_of(data, N, TUTTI_INT8), 1,
                                tutti_with(.group = mpi_ranks.mpi, .timeout_ms = 50));
        }
        if (status != TUTTI_OK && status != TUTTI_ERR_TIMEOUT)
            return mpi_ranks_wrong("sends to a busy receiver", tutti_last_error());
    }
    OK(tutti_broadcast(tutti_view(&sent, 1), 0, NULL)); /* until here only a progress thread calls MPI */
    for (int i = 0; i < TIMES; i++) {
        if (i >= sent) data[0] = (char)i;
        if (i >= sent && mpi_ranks.rank == 0)
            OK(tutti_send(tutti_tensor_of(data, N, TUTTI_INT8), 1, tutti_with(.group = mpi_ranks.mpi)));
        if (mpi_ranks.rank != 1) continue;
        OK(tutti_recv(tutti_tensor_of(data, N, TUTTI_INT8), 0, tutti_with(.group = mpi_ranks.mpi)));
        if (data[0] != (char)i) return mpi_ranks_wrong("sends to a busy receiver", "other bytes");
        if (i % 1000 == 0) usleep(1000);
    }
    getrusage(RUSAGE_SELF, &after);
    bool is_mpich = getenv("OMPI_COMM_WORLD_SIZE") == NULL; /* MPI's own memory sometimes grows by tens of MiB */
    if (mpi_ranks.rank == 0 && !is_mpich && after.ru_maxrss - before.ru_maxrss > MOST_KIB)
        return mpi_ranks_wrong("sends to a busy receiver", "they were copied");
    return 0;
}

/* Each operation reads the result of the one before.  The core delays some, at other times on each rank. */
static int order(void)
{
    enum { N = 5000, TIMES = 12 };
    static float a[N], b[N], c[N];
    tutti_work *works[3 * TIMES];
    for (int i = 0; i < N; i++) a[i] = 1.0f, c[i] = 2.0f;
    for (int i = 0; i < TIMES; i++) {
        OK(tutti_all_reduce(tutti_view(a, N), TUTTI_SUM,
                            tutti_with(.group = mpi_ranks.mpi, .async_op = &works[3 * i])));
        OK(tutti_all_reduce_into(tutti_view(b, N), tutti_view(a, N), TUTTI_MAX,
                                 tutti_with(.group = mpi_ranks.mpi, .async_op = &works[3 * i + 1])));
        OK(tutti_broadcast(tutti_view(c, N), i % mpi_ranks.size,
                           tutti_with(.group = mpi_ranks.mpi, .async_op = &works[3 * i + 2])));
    }
    for (int i = 0; i < 3 * TIMES; i++) OK(tutti_wait(&works[i], 20000));
    float expected = 1.0f;
    for (int i = 0; i < TIMES; i++) expected *= (float)mpi_ranks.size;
    return a[N - 1] == expected && b[0] == expected && c[7] == 2.0f
               ? 0
               : mpi_ranks_wrong("a row of operations", "another result");
}

static int subgroups(void)
{
    int ranks[8], value = mpi_ranks.rank;
    tutti_group *reversed = NULL, *half = NULL;
    for (int i = 0; i < mpi_ranks.size; i++) ranks[i] = mpi_ranks.size - 1 - i;
    tutti_group_opts opts = {.parent = mpi_ranks.mpi};
    OK(tutti_new_group(ranks, mpi_ranks.size, &opts, &reversed));
    int all[8] = {0};
    OK(tutti_all_gather_into_tensor(tutti_view(all, mpi_ranks.size), tutti_view(&value, 1),
                                    tutti_with(.group = reversed)));
    for (int i = 0; i < mpi_ranks.size; i++)
        if (all[i] != ranks[i]) return mpi_ranks_wrong("a group in reversed order", "another order");
    opts.members_only = true;
    if (mpi_ranks.rank < 2) {
        static int many[60000];
        for (int i = 0; i < 60000; i++) many[i] = mpi_ranks.rank;
        OK(tutti_new_group((int[]){1, 0}, 2, &opts, &half));
        OK(tutti_broadcast(tutti_view(many, 60000), 1, tutti_with(.group = half)));
        if (many[0] != 1 || many[59999] != 1) return mpi_ranks_wrong("a group of two", "another result");
        OK(tutti_destroy_process_group(half));
    }
    OK(tutti_all_reduce(tutti_view(&value, 1), TUTTI_SUM, tutti_with(.group = reversed)));
    OK(tutti_destroy_process_group(reversed));
    return value == mpi_ranks.size * (mpi_ranks.size - 1) / 2
               ? 0
               : mpi_ranks_wrong("a group in reversed order", "another sum");
}

/* The last rank of a blocking collective can make a new group only when the others have left the collective, while they
 * wait for it in the new group. */
static int group_behind_an_operation(void)
{
    tutti_group *group = NULL;
    tutti_group_opts opts = {.parent = mpi_ranks.mpi, .timeout_ms = 20000};
    int ranks[8], last = mpi_ranks.size - 1;
    for (int i = 0; i < mpi_ranks.size; i++) ranks[i] = i;
    for (int turn = 0; turn < 2; turn++) {
        float x = 1.0f;
        tutti_work *works[2] = {NULL};
        tutti_opts own = {.group = mpi_ranks.mpi, .timeout_ms = 20000};
        if (mpi_ranks.rank == last) usleep(100000);
        if (mpi_ranks.rank != last) own.async_op = &works[0];
        OK(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, &own));
        if (mpi_ranks.rank != last) own.async_op = &works[1];
        OK(tutti_barrier(&own));
        OK(tutti_new_group(ranks, mpi_ranks.size, &opts, &group));
        OK(tutti_wait_all(works, 2, 20000));
        OK(tutti_destroy_process_group(group));
        if (x != (float)mpi_ranks.size) return mpi_ranks_wrong("a group made after an operation", "another sum");
    }
    return 0;
}

/* An operation that waits for a rank which has destroyed the group ends before its timeout. */
static int group_that_one_has_left(void)
{
    tutti_group *group = NULL;
    tutti_group_opts opts = {.parent = mpi_ranks.mpi, .timeout_ms = 20000};
    int ranks[8], last = mpi_ranks.size - 1;
    for (int i = 0; i < mpi_ranks.size; i++) ranks[i] = i;
    OK(tutti_new_group(ranks, mpi_ranks.size, &opts, &group));
    OK(tutti_barrier(&(tutti_opts){.group = group}));
    if (mpi_ranks.rank != last && tutti_barrier(&(tutti_opts){.group = group}) != TUTTI_ERR_ABORTED)
        return mpi_ranks_wrong("a group that a rank has left", tutti_last_error());
    OK(tutti_destroy_process_group(group));
    OK(tutti_barrier(
        &(tutti_opts){.group = mpi_ranks.mpi})); /* MPI answers within this call if it belongs to the main thread */
    return 0;
}

/* A failed message leaves the group usable.  A collective that differs between ranks fails the group on all of them. */
static int failures(void)
{
    double numbers[2] = {0};
    static float many[50000];
    const tutti_opts *opts = tutti_with(.group = mpi_ranks.mpi, .tag = 5, .timeout_ms = 20000);
    if (mpi_ranks.rank == 0) {
        SHOULD(tutti_recv(tutti_view(numbers, 2), 1, tutti_with(.group = mpi_ranks.mpi, .tag = 9, .timeout_ms = 100)),
               TUTTI_ERR_TIMEOUT);
        SHOULD(tutti_recv(tutti_view(numbers, 2), 1, opts), TUTTI_ERR_MISMATCH);
        SHOULD(tutti_recv(tutti_view(numbers, 2), 1, opts), TUTTI_ERR_MISMATCH);
    } else if (mpi_ranks.rank == 1) {
        OK(tutti_send(tutti_view(numbers, 1), 0, opts));
        OK(tutti_send(tutti_view(many, 50000), 0, opts)); /* a long message that nobody receives does not block */
    }
    OK(tutti_barrier(tutti_with(.group = mpi_ranks.mpi, .timeout_ms = 20000)));
    int status = tutti_all_reduce(tutti_tensor_of(many, mpi_ranks.rank == 0 ? 4 : 8, TUTTI_FLOAT32), TUTTI_SUM,
                                  tutti_with(.group = mpi_ranks.mpi, .timeout_ms = 20000));
    return status == TUTTI_ERR_MISMATCH ? 0 : mpi_ranks_wrong("ranks that differ", tutti_last_error());
}

static int many_sums(tutti_group *group)
{
    for (int i = 0; i < 300; i++) {
        int value = i + mpi_ranks.rank;
        OK(tutti_all_reduce(tutti_view(&value, 1), TUTTI_SUM, tutti_with(.group = group, .timeout_ms = 20000)));
        if (value != i * mpi_ranks.size + mpi_ranks.size * (mpi_ranks.size - 1) / 2)
            return mpi_ranks_wrong("two groups at once", "another sum");
    }
    return 0;
}

static void *second_main(void *group)
{
    return many_sums(group) == 0 ? NULL : group;
}

/* Two threads use groups of their own, whose engines do not wait for one another.  Left out where MPI is only for the
 * thread that started it. */
static int two_groups_at_once(void)
{
    enum { SERIALIZED = 2 };
    int (*query_thread)(int *level) = NULL;
    int level = 0;
    tutti_store *store = NULL;
    tutti_group *group = NULL;
    pthread_t thread;
    void *failed = NULL;
    *(void **)&query_thread = dlsym(RTLD_DEFAULT, "MPI_Query_thread");
    if (query_thread == NULL || query_thread(&level) != 0) return mpi_ranks_wrong("MPI_Query_thread", "it fails");
    if (level < SERIALIZED) return 0;
    OK(tutti_store_prefix(mpi_ranks.store, "second", &store));
    OK(tutti_create_group("mpi", store, mpi_ranks.rank, mpi_ranks.size, NULL, &group));
    if (pthread_create(&thread, NULL, second_main, group) != 0) return mpi_ranks_wrong("pthread_create", "it fails");
    int status = many_sums(mpi_ranks.mpi);
    pthread_join(thread, &failed);
    OK(tutti_destroy_process_group(group));
    tutti_store_free(store);
    return status != 0 || failed != NULL;
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

int mpi_ranks_open(void)
{
    int32_t port = 0;
    OK(tutti_init_process_group("tcp", NULL)); /* the address is in the launcher's own store */
    mpi_ranks.rank = tutti_get_rank(NULL);
    mpi_ranks.size = tutti_get_world_size(NULL);
    tutti_store_opts serves = {.server = mpi_ranks.rank == 0};
    if (mpi_ranks.rank == 0) {
        OK(tutti_store_tcp("127.0.0.1", 0, &serves, &mpi_ranks.store));
        port = tutti_store_port(mpi_ranks.store);
    }
    OK(tutti_broadcast(tutti_view(&port, 1), 0, NULL));
    if (mpi_ranks.rank > 0) OK(tutti_store_tcp("127.0.0.1", (uint16_t)port, &serves, &mpi_ranks.store));
    OK(tutti_create_group("mpi", mpi_ranks.store, mpi_ranks.rank, mpi_ranks.size, NULL, &mpi_ranks.mpi));
    size_t bytes = (size_t)MPI_RANKS_MOST * 16 + 64;
    mpi_ranks.in = malloc(bytes);
    for (int k = 0; k < 2; k++) mpi_ranks.out[k] = malloc(bytes);
    return mpi_ranks.in == NULL || mpi_ranks.out[0] == NULL || mpi_ranks.out[1] == NULL;
}

int mpi_ranks_main(void)
{
    int failed = mpi_ranks_open();
    if (failed == 0) failed = mpi_forms_compare();
    if (failed == 0) failed = user_op_cases(mpi_ranks.mpi);
    if (failed == 0) failed = messages();
    if (failed == 0) failed = sizes();
    if (failed == 0 && mpi_ranks.size == 2) failed = many_long();
    if (failed == 0) failed = far_ahead();
    if (failed == 0) failed = order();
    if (failed == 0) failed = two_groups_at_once();
    if (failed == 0) failed = subgroups();
    if (failed == 0) failed = group_behind_an_operation();
    if (failed == 0) failed = group_that_one_has_left();
    if (failed == 0) OK(tutti_barrier(NULL));
    if (failed == 0) failed = failures();
    if (failed == 0) OK(tutti_barrier(NULL));
    if (failed != 0) return 1;
    tutti_destroy_process_group(mpi_ranks.mpi);
    tutti_store_free(mpi_ranks.store);
    OK(tutti_destroy_process_group(NULL));
    printf("rank %d of %d: all right\n", mpi_ranks.rank, mpi_ranks.size);
    return 0;
}
