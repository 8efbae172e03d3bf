/* Every collective on ranks that are threads: counts around the group's size, every root, flat and list forms, in
 * place, and the algorithms of TUTTI_ALGO's default.  The backend is TUTTI_TEST_BACKEND, or the tests' own loop. */

#include "conformance/values.h"
#include "ranks.h"
#include "sanitizer.h"

static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 1000, 5003, 70001};
enum { N_COUNTS = sizeof counts / sizeof *counts };

struct buffers {
    int32_t *a, *b;
};

static struct buffers buffers_new(int64_t n)
{
    size_t bytes = (size_t)(n + 1) * sizeof(int32_t);
    struct buffers x = {malloc(bytes), malloc(bytes)};
    memset(x.a, 0x55, bytes);
    memset(x.b, 0x55, bytes);
    return x;
}

static void buffers_free(struct buffers x)
{
    free(x.a);
    free(x.b);
}

static int all_reduce(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    const tutti_opts *opts = tutti_with(.group = group);
    for (int c = 0; c < N_COUNTS; c++) {
        int64_t n = counts[c];
        struct buffers x = buffers_new(n);
        values_fill(x.a, rank, 0, n);
        EXPECT(tutti_all_reduce_into(tutti_view(x.b, n), tutti_view(x.a, n), TUTTI_SUM, opts) == TUTTI_OK);
        EXPECT(values_hold_sum(x.b, size, 0, n));
        EXPECT(values_hold(x.a, rank, 0, n));
        EXPECT(tutti_all_reduce(tutti_view(x.a, n), TUTTI_SUM, opts) == TUTTI_OK);
        EXPECT(values_hold_sum(x.a, size, 0, n));
        EXPECT(x.a[n] == 0x55555555 && x.b[n] == 0x55555555);
        buffers_free(x);
    }
    float average = (float)rank;
    EXPECT(tutti_all_reduce(tutti_view(&average, 1), TUTTI_AVG, opts) == TUTTI_OK);
    EXPECT(average == (float)(size - 1) / 2);
    double scaled = 2;
    EXPECT(tutti_all_reduce(tutti_view(&scaled, 1), TUTTI_PREMUL_SUM, tutti_with(.group = group, .factor = 0.5)) ==
           TUTTI_OK);
    EXPECT(scaled == size);
    return 0;
}

static int scans(tutti_group *group, int rank, int size, void *argument)
{
    (void)size;
    (void)argument;
    const tutti_opts *opts = tutti_with(.group = group);
    for (int c = 0; c < N_COUNTS; c++) {
        int64_t n = counts[c];
        struct buffers x = buffers_new(n);
        values_fill(x.a, rank, 0, n);
        EXPECT(tutti_exscan_into(tutti_view(x.b, n), tutti_view(x.a, n), TUTTI_SUM, opts) == TUTTI_OK);
        if (rank == 0) /* untouched */
            for (int64_t i = 0; i < n; i++) EXPECT(x.b[i] == 0x55555555);
        EXPECT(rank == 0 || values_hold_sum(x.b, rank, 0, n));
        EXPECT(tutti_scan_into(tutti_view(x.b, n), tutti_view(x.a, n), TUTTI_SUM, opts) == TUTTI_OK);
        EXPECT(values_hold_sum(x.b, rank + 1, 0, n) && values_hold(x.a, rank, 0, n));
        EXPECT(tutti_exscan(tutti_view(x.a, n), TUTTI_SUM, opts) == TUTTI_OK);
        EXPECT(rank == 0 ? values_hold(x.a, rank, 0, n) : values_hold_sum(x.a, rank, 0, n));
        values_fill(x.a, rank, 0, n);
        EXPECT(tutti_scan(tutti_view(x.a, n), TUTTI_SUM, opts) == TUTTI_OK);
        EXPECT(values_hold_sum(x.a, rank + 1, 0, n));
        EXPECT(x.a[n] == 0x55555555 && x.b[n] == 0x55555555);
        buffers_free(x);
    }
    double scaled = 2;
    EXPECT(tutti_scan(tutti_view(&scaled, 1), TUTTI_PREMUL_SUM, tutti_with(.group = group, .factor = 0.5)) == TUTTI_OK);
    EXPECT(scaled == rank + 1);
    EXPECT(tutti_scan(tutti_view(&scaled, 1), TUTTI_AVG, opts) == TUTTI_ERR_UNSUPPORTED);
    return 0;
}

static int rooted(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    const tutti_opts *opts = tutti_with(.group = group);
    for (int c = 0; c < N_COUNTS; c++)
        for (int root = 0; root < size; root++) {
            int64_t n = counts[c];
            struct buffers x = buffers_new(n * size);
            values_fill(x.a, rank, 0, n);
            EXPECT(tutti_broadcast(tutti_view(x.a, n), root, opts) == TUTTI_OK);
            EXPECT(values_hold(x.a, root, 0, n));
            values_fill(x.a, rank, 0, n);
            EXPECT(tutti_reduce(tutti_view(x.a, n), root, TUTTI_SUM, opts) == TUTTI_OK);
            EXPECT(rank == root ? values_hold_sum(x.a, size, 0, n) : values_hold(x.a, rank, 0, n));
            values_fill(x.a, rank, 0, n);
            EXPECT(tutti_gather_into_tensor(tutti_view(x.b, n * size), tutti_view(x.a, n), root, opts) == TUTTI_OK);
            for (int r = 0; r < size && rank == root; r++) EXPECT(values_hold(x.b + r * n, r, 0, n));
            if (rank == root)
                for (int r = 0; r < size; r++) values_fill(x.b + r * n, r, 5, n);
            EXPECT(tutti_scatter_tensor(tutti_view(x.a, n), tutti_view(x.b, n * size), root, opts) == TUTTI_OK);
            EXPECT(values_hold(x.a, rank, 5, n));
            buffers_free(x);
        }
    return 0;
}

static int gathering(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    const tutti_opts *opts = tutti_with(.group = group);
    for (int c = 0; c < N_COUNTS; c++) {
        int64_t n = counts[c];
        struct buffers x = buffers_new(n * size);
        values_fill(x.a, rank, 0, n);
        EXPECT(tutti_all_gather_into_tensor(tutti_view(x.b, n * size), tutti_view(x.a, n), opts) == TUTTI_OK);
        for (int r = 0; r < size; r++) EXPECT(values_hold(x.b + r * n, r, 0, n));
        memset(x.b, 0, (size_t)(n * size) * sizeof *x.b);
        values_fill(x.b + rank * n, rank, 0, n);
        EXPECT(tutti_all_gather_into_tensor(tutti_view(x.b, n * size), tutti_view(x.b + rank * n, n), opts) ==
               TUTTI_OK);
        for (int r = 0; r < size; r++) EXPECT(values_hold(x.b + r * n, r, 0, n));
        for (int r = 0; r < size; r++) values_fill(x.a + r * n, rank, r * n, n);
        EXPECT(tutti_reduce_scatter_tensor(tutti_view(x.b, n), tutti_view(x.a, n * size), TUTTI_SUM, opts) == TUTTI_OK);
        EXPECT(values_hold_sum(x.b, size, rank * n, n));
        EXPECT(tutti_all_to_all_single(tutti_view(x.b, n * size), tutti_view(x.a, n * size), NULL, NULL, opts) ==
               TUTTI_OK);
        for (int r = 0; r < size; r++) EXPECT(values_hold(x.b + r * n, r, rank * n, n));
        buffers_free(x);
    }
    return 0;
}

/* Rank r's part has base + r elements. */
static int uneven(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    const tutti_opts *opts = tutti_with(.group = group);
    for (int64_t base = 0; base < 3000; base = base * 7 + 1) {
        tutti_tensor list[RANKS_MOST], other[RANKS_MOST];
        int64_t in_splits[RANKS_MOST], out_splits[RANKS_MOST], total = 0, in_total = 0, own = base + rank;
        for (int r = 0; r < size; r++) total += base + r;
        for (int r = 0; r < size; r++) in_total += base + (rank + r) % size;
        struct buffers x = buffers_new((total + size) * 2), y = buffers_new((total + size) * 2);
        for (int64_t r = 0, at = 0; r < size; at += base + r++) list[r] = tutti_view(x.b + at, base + r);
        values_fill(x.a, rank, 0, own);
        EXPECT(tutti_all_gather(list, size, tutti_view(x.a, own), opts) == TUTTI_OK);
        for (int r = 0; r < size; r++) EXPECT(values_hold(list[r].data, r, 0, base + r));
        for (int root = 0; root < size; root++) {
            memset(x.b, 0, (size_t)total * sizeof *x.b);
            bool is_root = root == rank;
            EXPECT(tutti_gather(tutti_view(x.a, own), is_root ? list : NULL, is_root ? size : 0, root, opts) ==
                   TUTTI_OK);
            for (int r = 0; r < size && is_root; r++) EXPECT(values_hold(list[r].data, r, 0, base + r));
            EXPECT(tutti_scatter(tutti_view(y.a, own), is_root ? list : NULL, is_root ? size : 0, root, opts) ==
                   TUTTI_OK);
            EXPECT(values_hold(y.a, rank, 0, own));
        }
        for (int r = 0; r < size; r++) values_fill(list[r].data, rank, r, base + r);
        EXPECT(tutti_reduce_scatter(tutti_view(y.a, own), list, size, TUTTI_SUM, opts) == TUTTI_OK);
        EXPECT(values_hold_sum(y.a, size, rank, own));
        for (int64_t r = 0, at = 0; r < size; r++) { /* size from i to j: base + (i + j) % size */
            in_splits[r] = out_splits[r] = base + (rank + r) % size;
            other[r] = tutti_view(y.b + at, in_splits[r]);
            list[r] = tutti_view(x.b + at, in_splits[r]);
            values_fill(list[r].data, rank, r * 10, in_splits[r]);
            at += in_splits[r];
        }
        EXPECT(tutti_all_to_all(other, list, size, opts) == TUTTI_OK);
        for (int r = 0; r < size; r++) EXPECT(values_hold(other[r].data, r, rank * 10, out_splits[r]));
        memset(y.b, 0, (size_t)in_total * sizeof *y.b);
        EXPECT(tutti_all_to_all_single(tutti_view(y.b, in_total), tutti_view(x.b, in_total), out_splits, in_splits,
                                       opts) == TUTTI_OK);
        for (int r = 0; r < size; r++) EXPECT(values_hold(other[r].data, r, rank * 10, out_splits[r]));
        buffers_free(x);
        buffers_free(y);
    }
    return 0;
}

static int asynchronous(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    enum { N = 20, COUNT = 3000 };
    static const int64_t n = COUNT;
    int32_t *x = malloc(sizeof *x * N * COUNT);
    tutti_work *work[N] = {NULL};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            values_fill(x + i * n, rank, i, n);
            EXPECT(tutti_all_reduce(tutti_view(x + i * n, n), TUTTI_SUM,
                                    tutti_with(.group = group, .async_op = &work[i])) == TUTTI_OK);
        }
        for (int i = N - 1; i >= 0; i--) {
            EXPECT(tutti_wait(&work[i], TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
            EXPECT(work[i] == NULL && values_hold_sum(x + i * n, size, i, n));
        }
    }
    /* several operations on the same memory act as if run one after another */
    int32_t one = 1, expected = 1;
    for (int i = 0; i < N / 2; i++) {
        EXPECT(tutti_all_reduce(tutti_view(&one, 1), TUTTI_SUM, tutti_with(.group = group, .async_op = &work[i])) ==
               TUTTI_OK);
        expected *= size;
    }
    EXPECT(tutti_wait_all(work, N / 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(one == expected);
    /* nobody waits, so the progress thread completes it */
    static int32_t left_alone[RANKS_MOST]; /* until the group ends */
    EXPECT(tutti_all_reduce(tutti_view(&left_alone[rank], 1), TUTTI_SUM,
                            tutti_with(.group = group, .async_op = &work[0])) == TUTTI_OK);
    tutti_work_free(work[0]);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    free(x);
    return 0;
}

static int messages(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    enum { N = 50 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size, from = -1;
    int32_t out[N], in[N];
    tutti_work *sends[N], *receives[N];
    for (int i = 0; i < N; i++) {
        out[i] = values_of_rank(rank, i);
        EXPECT(tutti_irecv(tutti_view(&in[i], 1), left, tutti_with(.group = group, .tag = i % 3), &receives[i]) ==
               TUTTI_OK);
    }
    for (int i = 0; i < N; i++)
        EXPECT(tutti_isend(tutti_view(&out[i], 1), right, tutti_with(.group = group, .tag = i % 3), &sends[i]) ==
               TUTTI_OK);
    EXPECT(tutti_wait_all(receives, N, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(tutti_wait_all(sends, N, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    for (int i = 0; i < N; i++) EXPECT(in[i] == values_of_rank(left, i));
    if (rank == 0) {
        int64_t seen = 0;
        for (int i = 1; i < size; i++) {
            EXPECT(tutti_recv(tutti_view(&in[0], 1), TUTTI_ANY_SOURCE,
                              tutti_with(.group = group, .tag = 9, .source = &from)) == TUTTI_OK);
            EXPECT(in[0] == values_of_rank(from, 0));
            seen += from;
        }
        EXPECT(seen == size * (size - 1) / 2);
    } else {
        EXPECT(tutti_send(tutti_view(&out[0], 1), 0, tutti_with(.group = group, .tag = 9)) == TUTTI_OK);
    }
    return 0;
}

static int groups(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *half = NULL, *last = NULL, *alone = NULL;
    int32_t x = rank;
    EXPECT(tutti_split_group(rank % 2, -rank, &(tutti_group_opts){.parent = group}, &half) == TUTTI_OK);
    EXPECT(tutti_get_world_size(half) == (size + 1 - rank % 2) / 2);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_MAX, tutti_with(.group = half)) == TUTTI_OK);
    EXPECT(x == (rank % 2 == (size - 1) % 2 ? size - 1 : size - 2));
    int backwards[RANKS_MOST];
    for (int i = 0; i < size; i++) backwards[i] = size - 1 - i;
    EXPECT(tutti_new_group(backwards, size - 1, &(tutti_group_opts){.parent = group}, &last) == TUTTI_OK);
    EXPECT(tutti_get_rank(last) == (rank == 0 ? -1 : size - 1 - rank));
    if (rank > 0) {
        x = rank;
        EXPECT(tutti_broadcast(tutti_view(&x, 1), size - 1, tutti_with(.group = last)) == TUTTI_OK);
        EXPECT(x == size - 1);
        EXPECT(tutti_broadcast(tutti_view(&x, 1), 0, tutti_with(.group = last)) == TUTTI_ERR_INVALID_ARGUMENT);
    }
    if (rank == 1) {
        EXPECT(tutti_new_group(&rank, 1, &(tutti_group_opts){.parent = group, .members_only = true}, &alone) ==
               TUTTI_OK);
        EXPECT(tutti_barrier(tutti_with(.group = alone)) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(alone) == TUTTI_OK);
    }
    EXPECT(tutti_destroy_process_group(half) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(last) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

static int byte_strings(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    const tutti_opts *opts = tutti_with(.group = group);
    char own[64], expected[64];
    snprintf(own, sizeof own, "%.*s%d", rank * 3, "..............................", rank);
    tutti_bytes all[RANKS_MOST], one;
    EXPECT(tutti_all_gather_bytes(all, size, own, strlen(own), opts) == TUTTI_OK);
    for (int r = 0; r < size; r++) {
        snprintf(expected, sizeof expected, "%.*s%d", r * 3, "..............................", r);
        EXPECT(all[r].bytes == strlen(expected) && memcmp(all[r].data, expected, all[r].bytes) == 0);
    }
    EXPECT(tutti_scatter_bytes(&one, rank == 0 ? all : NULL, rank == 0 ? size : 0, 0, opts) == TUTTI_OK);
    EXPECT(one.bytes == strlen(own) && memcmp(one.data, own, one.bytes) == 0);
    tutti_bytes_free(all, size);
    EXPECT(tutti_gather_bytes(all, rank == 1 % size ? size : 0, one.data, one.bytes, 1 % size, opts) == TUTTI_OK);
    if (rank == 1 % size) {
        EXPECT(all[rank].bytes == strlen(own));
        tutti_bytes_free(all, size);
    }
    tutti_bytes_free(&one, 1);
    tutti_bytes word = rank == 0 ? (tutti_bytes){own, 1} : (tutti_bytes){0};
    EXPECT(tutti_broadcast_bytes(&word, 0, opts) == TUTTI_OK);
    EXPECT(word.bytes == 1 && *(char *)word.data == '0');
    if (rank != 0) tutti_bytes_free(&word, 1);
    return 0;
}

/* The root announces sizes and then fails.  No rank is left with memory to free. */
static int bytes_that_fail(tutti_group *group, int rank, int size, void *argument)
{
    int64_t promised = 100;
    tutti_bytes word = {NULL, 7};
    (void)size;
    (void)argument;
    if (rank == 0) {
        EXPECT(tutti_broadcast(tutti_view(&promised, 1), 0, tutti_with(.group = group)) == TUTTI_OK);
        EXPECT(tutti_abort(group, "it breaks off") == TUTTI_OK);
    } else {
        EXPECT(tutti_broadcast_bytes(&word, 0, tutti_with(.group = group)) != TUTTI_OK);
        EXPECT(word.data == NULL && word.bytes == 0);
    }
    return 0;
}

/* Returns floats whose sum depends on the order. */
static float awkward(int rank, int64_t i)
{
    uint32_t h = ((uint32_t)i * 2654435761u) ^ ((uint32_t)rank * 40503u);
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float)(int32_t)h * (h & 1 ? 1e-3f : 1e3f);
}

/* Sums rank v and all ranks below it in the binomial tree: its own value, then the nearest subtree, then the next. */
static float tree_sum(int v, int size, int64_t i)
{
    float s = awkward(v, i);
    for (int bit = 1; (v == 0 || bit < (v & -v)) && v + bit < size; bit *= 2) s += tree_sum(v + bit, size, i);
    return s;
}

static int deterministic(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    const tutti_opts *opts = tutti_with(.group = group);
    for (int c = 1; c < N_COUNTS; c++) {
        int64_t n = counts[c];
        float *x = malloc((size_t)(n * size) * sizeof *x), *y = malloc((size_t)n * sizeof *y);
        for (int64_t i = 0; i < n * size; i++) x[i] = awkward(rank, i);
        EXPECT(tutti_reduce_scatter_tensor(tutti_view(y, n), tutti_view(x, n * size), TUTTI_SUM, opts) == TUTTI_OK);
        for (int64_t i = 0; i < n; i++) EXPECT(y[i] == tree_sum(0, size, rank * n + i));
        int root = c % size;
        EXPECT(tutti_reduce_into(tutti_view(y, n), tutti_view(x, n), root, TUTTI_SUM, opts) == TUTTI_OK);
        for (int64_t i = 0; i < n && rank == root; i++) EXPECT(y[i] == tree_sum(0, size, i));
        EXPECT(tutti_all_reduce(tutti_view(x, n), TUTTI_SUM, opts) == TUTTI_OK);
        for (int64_t i = 0; i < n; i++) EXPECT(x[i] == tree_sum(0, size, i));
        free(x);
        free(y);
    }
    return 0;
}

static void each_size(rank_fn fn, int from)
{
    for (int size = from; size <= 7; size += 1 + SANITIZED) ranks_run(size, fn, NULL);
}

#define CASE(name, fn, from)                                                                                           \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        each_size(fn, from);                                                                                           \
    }

CASE(test_all_reduce, all_reduce, 1)
CASE(test_scans, scans, 1)
CASE(test_rooted, rooted, 1)
CASE(test_gathering, gathering, 1)
CASE(test_uneven, uneven, 1)
CASE(test_asynchronous, asynchronous, 1)
CASE(test_messages, messages, 2)
CASE(test_groups, groups, 2)
CASE(test_byte_strings, byte_strings, 1)
CASE(test_bytes_that_fail, bytes_that_fail, 2)

static void test_deterministic(void **state)
{
    (void)state;
    setenv("TUTTI_DETERMINISTIC", "1", 1);
    each_size(deterministic, 1);
    unsetenv("TUTTI_DETERMINISTIC");
}

int main(void)
{
    ranks_setup();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scans),         cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_rooted),        cmocka_unit_test(test_gathering),
        cmocka_unit_test(test_uneven),        cmocka_unit_test(test_asynchronous),
        cmocka_unit_test(test_messages),      cmocka_unit_test(test_groups),
        cmocka_unit_test(test_byte_strings),  cmocka_unit_test(test_bytes_that_fail),
        cmocka_unit_test(test_deterministic),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    setenv("LOOP_HOSTS", "0,1,0,0,2", 1); /* again, on several hosts */
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
