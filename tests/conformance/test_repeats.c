/* Calls that repeat the last one, and calls that almost do.  Two calls that differ in one thing follow themselves and
 * each other, so that no check of one is reused for the other.  Three ranks run over shared memory and, by plans, over
 * a network. */
#include "procs.h"

enum { SIZE = 3, MOST = 40000 };

/* Memory of the default group, and of a group in which rank r is SIZE - 1 - r. */
struct rank {
    int rank;
    int32_t *a, *b, *c; /* SIZE * MOST each */
    tutti_group *reversed;
};

/* which of two calls: 0, 1, 0, 0, 1, 1 */
static const int turns[] = {0, 1, 0, 0, 1, 1};
enum { TURNS = sizeof turns / sizeof *turns };

static void fill(int32_t *x, int rank, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (int32_t)(i % 100 + 1000 * (rank + 1));
}

/* True if every element is its index, times `times`, plus more. */
static bool holds(const int32_t *x, int64_t n, int times, int more)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != i % 100 * times + more) return false;
    return true;
}

static int ops_and_tensors(struct rank *r, int64_t n)
{
    for (int i = 0; i < TURNS; i++) {
        bool second = turns[i];
        fill(r->a, r->rank, n);
        fill(r->b, r->rank + 10, n);
        tutti_tensor a = tutti_view(r->a, n), b = tutti_view(r->b, n), c = tutti_view(r->c, n);
        EXPECT(tutti_all_reduce_into(c, a, second ? TUTTI_MAX : TUTTI_SUM, NULL) == TUTTI_OK);
        EXPECT(second ? holds(r->c, n, 1, 3000) : holds(r->c, n, 3, 6000));
        EXPECT(tutti_all_reduce_into(c, second ? b : a, TUTTI_SUM, NULL) == TUTTI_OK);
        EXPECT(holds(r->c, n, 3, second ? 36000 : 6000));
        EXPECT(tutti_all_reduce_into(second ? a : c, b, TUTTI_SUM, NULL) == TUTTI_OK);
        EXPECT(holds(second ? r->a : r->c, n, 3, 36000));
    }
    return 0;
}

static int roots(struct rank *r, int64_t n)
{
    for (int i = 0; i < TURNS; i++) {
        fill(r->a, r->rank, n);
        EXPECT(tutti_broadcast(tutti_view(r->a, n), turns[i], NULL) == TUTTI_OK);
        EXPECT(holds(r->a, n, 1, 1000 * (turns[i] + 1)));
    }
    for (int i = 0; i < TURNS; i++) { /* the same number means another rank */
        fill(r->a, r->rank, n);
        EXPECT(tutti_broadcast(tutti_view(r->a, n), 0, tutti_with(.group = r->reversed, .group_rank = turns[i])) ==
               TUTTI_OK);
        EXPECT(holds(r->a, n, 1, turns[i] ? 1000 * SIZE : 1000));
    }
    return 0;
}

static int sizes_and_dtypes(struct rank *r, int64_t n)
{
    for (int i = 0; i < TURNS; i++) {
        int64_t numel = turns[i] ? n : n / 2;
        fill(r->a, r->rank, n);
        EXPECT(tutti_all_gather_into_tensor(tutti_view(r->c, SIZE * numel), tutti_view(r->a, numel), NULL) == TUTTI_OK);
        for (int k = 0; k < SIZE; k++) EXPECT(holds(r->c + k * numel, numel, 1, 1000 * (k + 1)));
        float *f = (float *)(void *)r->b;
        for (int64_t k = 0; k < n; k++) { /* read as an integer, the sum of three is another number */
            f[k] = 1.5F;
            if (!turns[i]) r->b[k] = 7;
        }
        tutti_dtype dtype = turns[i] ? TUTTI_FLOAT32 : TUTTI_INT32;
        EXPECT(tutti_all_reduce(tutti_tensor_of(r->b, n, dtype), TUTTI_SUM, NULL) == TUTTI_OK);
        for (int64_t k = 0; k < n; k++) EXPECT(turns[i] ? f[k] == 4.5F : r->b[k] == 21);
    }
    return 0;
}

static int factors(struct rank *r, int64_t n)
{
    float *f = (float *)(void *)r->a;
    for (int i = 0; i < TURNS; i++) {
        tutti_tensor x = tutti_view(f, n);
        for (int64_t k = 0; k < n; k++) f[k] = 1;
        EXPECT(tutti_all_reduce(x, TUTTI_PREMUL_SUM, tutti_with(.factor = turns[i] ? 2 : 3)) == TUTTI_OK);
        for (int64_t k = 0; k < n; k++) EXPECT(f[k] == (turns[i] ? 2 * SIZE : 3 * SIZE));
        EXPECT(tutti_all_reduce(x, TUTTI_PREMUL_SUM, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    }
    return 0;
}

static void keep_most(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    int32_t *a = inout;
    const int32_t *b = in;
    (void)dtype, (void)argument;
    for (int64_t i = 0; i < n; i++)
        if (b[i] > a[i]) a[i] = b[i];
}

/* A reduction that the backend does by itself, and one that it cannot do. */
static int user_ops(struct rank *r, int64_t n)
{
    tutti_reduce_op most;
    EXPECT(tutti_op_create("most", keep_most, NULL, NULL, &most) == TUTTI_OK);
    for (int i = 0; i < TURNS; i++) {
        tutti_reduce_op op = turns[i] ? most : TUTTI_SUM;
        int times = turns[i] ? 1 : 3, more = turns[i] ? 3000 : 6000;
        fill(r->a, r->rank, n);
        EXPECT(tutti_all_reduce(tutti_view(r->a, n), op, NULL) == TUTTI_OK);
        EXPECT(holds(r->a, n, times, more));
        fill(r->a, r->rank, n);
        EXPECT(tutti_reduce(tutti_view(r->a, n), 1, op, NULL) == TUTTI_OK);
        if (r->rank == 1) EXPECT(holds(r->a, n, times, more));
        for (int k = 0; k < SIZE; k++) fill(r->b + k * n, r->rank, n);
        EXPECT(tutti_reduce_scatter_tensor(tutti_view(r->c, n), tutti_view(r->b, SIZE * n), op, NULL) == TUTTI_OK);
        EXPECT(holds(r->c, n, times, more));
    }
    EXPECT(tutti_op_free(most) == TUTTI_OK);
    return 0;
}

/* Changes the lists and the splits. */
static int lists_and_splits(struct rank *r, int64_t n)
{
    static const int64_t some[] = {1, 2, 3};
    int64_t in[SIZE], out[SIZE], all = 0;
    for (int i = 0; i < TURNS; i++) {
        tutti_tensor list[SIZE];
        fill(r->a, r->rank, n);
        for (int k = 0; k < SIZE; k++) list[k] = tutti_view((k == 1 && turns[i] ? r->b : r->c) + k * n, n);
        EXPECT(tutti_all_gather(list, SIZE, tutti_view(r->a, n), NULL) == TUTTI_OK);
        for (int k = 0; k < SIZE; k++) EXPECT(holds(list[k].data, n, 1, 1000 * (k + 1)));
        list[1].data = NULL;
        EXPECT(tutti_all_gather(list, SIZE, tutti_view(r->a, n), NULL) == TUTTI_ERR_INVALID_ARGUMENT);
        memset(r->c, 0, (size_t)(SIZE * n) * sizeof *r->c);
        EXPECT(tutti_all_gather_into_tensor(tutti_view(r->c, SIZE * n), tutti_view(r->a, n), NULL) == TUTTI_OK);
        for (int k = 0; k < SIZE; k++) EXPECT(holds(r->c + k * n, n, 1, 1000 * (k + 1)));
    }
    for (int k = 0; k < SIZE; k++) all += some[k];
    for (int i = 0; i < TURNS; i++) { /* rank s sends rank k some[(s + k + turn) % SIZE] elements */
        for (int k = 0; k < SIZE; k++) in[k] = out[k] = some[(r->rank + k + turns[i]) % SIZE];
        fill(r->a, r->rank, all);
        tutti_tensor from = tutti_view(r->a, all), to = tutti_view(r->c, all);
        EXPECT(tutti_all_to_all_single(to, from, out, in, NULL) == TUTTI_OK);
        for (int64_t k = 0, at = 0; k < SIZE; at += out[k++]) EXPECT(r->c[at] / 1000 == k + 1);
        EXPECT(tutti_all_to_all_single(to, from, NULL, NULL, NULL) == TUTTI_OK);
        for (int k = 0; k < SIZE; k++) EXPECT(r->c[2 * k] == 1000 * (k + 1) + 2 * r->rank);
        in[0]--;
        EXPECT(tutti_all_to_all_single(to, from, out, in, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    }
    return 0;
}

/* The same tensors are in another list, and the last one is gone. */
static int moved_lists(struct rank *r, int64_t n)
{
    for (int i = 0; i < TURNS; i++) {
        tutti_tensor lists[2][SIZE], *list = lists[turns[i]], a = tutti_view(r->a, n);
        memset(lists, 0xff, sizeof lists);
        for (int k = 0; k < SIZE; k++) list[k] = tutti_view(r->c + k * n, n);
        fill(r->a, r->rank, n);
        EXPECT(tutti_all_gather(list, SIZE, a, NULL) == TUTTI_OK);
        memcpy(lists[!turns[i]], list, sizeof lists[0]);
        memset(list, 0xff, sizeof lists[0]);
        memset(r->c, 0, (size_t)(SIZE * n) * sizeof *r->c);
        EXPECT(tutti_all_gather(lists[!turns[i]], SIZE, a, NULL) == TUTTI_OK);
        for (int k = 0; k < SIZE; k++) EXPECT(holds(r->c + k * n, n, 1, 1000 * (k + 1)));
        for (int k = 0; k < SIZE; k++) fill(r->c + k * n, r->rank + k, n);
        memcpy(list, lists[!turns[i]], sizeof lists[0]);
        EXPECT(tutti_reduce_scatter(a, list, SIZE, TUTTI_SUM, NULL) == TUTTI_OK);
        EXPECT(holds(r->a, n, SIZE, 6000 + 3000 * r->rank));
        EXPECT(tutti_all_gather(NULL, SIZE, a, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    }
    return 0;
}

/* The same with lists that the root alone passes.  Each call is repeated, and refused where a rank passes what only the
 * others may. */
static int moved_rooted_lists(struct rank *r, int64_t n)
{
    enum { ROOT = 1 };
    tutti_tensor lists[2][SIZE], a = tutti_view(r->a, n);
    for (int i = 0; i < 2 * TURNS; i++) {
        bool gathers = i < TURNS;
        int given = r->rank == ROOT ? SIZE : 0;
        tutti_tensor *list = lists[turns[i % TURNS]], *wrong = r->rank == ROOT ? NULL : list;
        memset(lists, 0xff, sizeof lists);
        for (int k = 0; k < SIZE; k++) list[k] = tutti_view(r->c + k * n, n);
        for (int k = 0; k < SIZE; k++) fill(r->c + k * n, gathers ? 9 : k + i, n);
        fill(r->a, gathers ? r->rank + i : 9, n);
        if (gathers) {
            EXPECT(tutti_gather(a, given > 0 ? list : NULL, given, ROOT, NULL) == TUTTI_OK);
            for (int k = 0; k < given; k++) EXPECT(holds(r->c + k * n, n, 1, 1000 * (k + i + 1)));
            EXPECT(tutti_gather(a, wrong, SIZE, ROOT, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
        } else {
            EXPECT(tutti_scatter(a, given > 0 ? list : NULL, given, ROOT, NULL) == TUTTI_OK);
            EXPECT(holds(r->a, n, 1, 1000 * (r->rank + i + 1)));
            EXPECT(tutti_scatter(a, wrong, given, ROOT, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
        }
    }
    return 0;
}

/* One argument of a good call is wrong.  The call is refused, and the next good call succeeds. */
static int refused(struct rank *r, int64_t n)
{
    tutti_tensor a = tutti_view(r->a, n), c = tutti_view(r->c, n);
    for (int wrong = 0; wrong <= 8; wrong++) {
        tutti_tensor in = a, out = c;
        tutti_opts opts = {.tag = -(wrong == 1), .timeout_ms = -(wrong == 2)};
        tutti_reduce_op op = wrong == 3 ? (tutti_reduce_op)99 : TUTTI_SUM;
        in.numel = wrong == 4 ? -1 : wrong == 5 ? n + 1 : n;
        if (wrong == 6) in.dtype = TUTTI_FLOAT32;
        if (wrong == 7) in.device.index = 1;
        if (wrong == 8) out.data = NULL;
        fill(r->a, r->rank, n);
        EXPECT(tutti_all_reduce_into(out, in, op, &opts) == (wrong == 0 ? TUTTI_OK : TUTTI_ERR_INVALID_ARGUMENT));
        EXPECT(tutti_all_reduce_into(c, a, TUTTI_SUM, NULL) == TUTTI_OK);
        EXPECT(holds(r->c, n, 3, 6000));
    }
    EXPECT(tutti_broadcast(a, 0, NULL) == TUTTI_OK);
    EXPECT(tutti_broadcast(a, SIZE, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_broadcast(a, 0, NULL) == TUTTI_OK);
    return 0;
}

static int collect(struct rank *r, tutti_kind kind, int32_t *x, int64_t n)
{
    tutti_tensor one = tutti_view(x, n);
    fill(x, r->rank, n);
    if (kind == TUTTI_ALL_REDUCE) {
        EXPECT(tutti_all_reduce(one, TUTTI_SUM, NULL) == TUTTI_OK && holds(x, n, 3, 6000));
    } else if (kind == TUTTI_BROADCAST) {
        EXPECT(tutti_broadcast(one, 1, NULL) == TUTTI_OK && holds(x, n, 1, 2000));
    } else {
        EXPECT(tutti_all_gather_into_tensor(tutti_view(r->c, SIZE * n), one, NULL) == TUTTI_OK);
        for (int k = 0; k < SIZE; k++) EXPECT(holds(r->c + k * n, n, 1, 1000 * (k + 1)));
    }
    return 0;
}

/* An operation on memory that can be read in place follows one that used fragment buffers.  First rank 0 alone changes
 * its tensor, then all ranks do.  Later calls alternate between that memory and another. */
static int shared_memory(struct rank *r, int64_t n)
{
    static const tutti_kind kinds[] = {TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_BROADCAST};
    void *memory[2];
    for (int i = 0; i < 2; i++) EXPECT(tutti_alloc(NULL, n * (int64_t)sizeof(int32_t), &memory[i]) == TUTTI_OK);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int i = 0; i < 4 * TURNS; i++) {
            bool all = i / TURNS % 2, second = turns[i % TURNS] && (all || r->rank == 0);
            EXPECT(collect(r, kinds[k], !second ? memory[0] : i < 2 * TURNS ? memory[1] : r->a, n) == 0);
        }
    for (int i = 0; i < 2; i++) EXPECT(tutti_free(NULL, memory[i]) == TUTTI_OK);
    return 0;
}

/* Peers are ranks of the group, however they were given. */
static int messages(struct rank *r, int64_t n)
{
    for (int i = 0; i < TURNS; i++) {
        tutti_opts opts = {.group = r->reversed, .group_rank = turns[i]};
        int self = turns[i] ? SIZE - 1 - r->rank : r->rank, left = (self + SIZE - 1) % SIZE;
        tutti_work *work = NULL;
        fill(r->a, self, n);
        EXPECT(tutti_isend(tutti_view(r->a, n), (self + 1) % SIZE, &opts, &work) == TUTTI_OK);
        EXPECT(tutti_recv(tutti_view(r->b, n), left, &opts) == TUTTI_OK);
        EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
        EXPECT(holds(r->b, n, 1, 1000 * (left + 1)));
        opts.tag = -2;
        EXPECT(tutti_recv(tutti_view(r->b, n), left, &opts) == TUTTI_ERR_INVALID_ARGUMENT);
    }
    return 0;
}

/* Runs several operations at once, alike and different. */
static int together(struct rank *r, int64_t n)
{
    tutti_work *work[TURNS] = {NULL};
    int32_t *x[2] = {r->a, r->b};
    for (int i = 0; i < 2; i++) fill(x[i], r->rank, n);
    for (int i = 0; i < TURNS; i++)
        EXPECT(tutti_all_reduce(tutti_view(x[turns[i]], n), i % 3 == 0 ? TUTTI_SUM : TUTTI_MAX,
                                tutti_with(.async_op = &work[i])) == TUTTI_OK);
    EXPECT(tutti_wait_all(work, TURNS, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(holds(r->a, n, 9, 18000)); /* SUM, MAX, SUM */
    EXPECT(holds(r->b, n, 1, 3000));
    return 0;
}

static int rank_of_repeats(int rank, int size, void *argument)
{
    static int (*const parts[])(struct rank *, int64_t) = {
        ops_and_tensors,    roots,   sizes_and_dtypes, factors,  user_ops, lists_and_splits, moved_lists,
        moved_rooted_lists, refused, shared_memory,    messages, together};
    static const int64_t counts[] = {6, 600, MOST}; /* in a control slot, beside it, in chunks */
    struct rank r = {.rank = rank};
    if (*(bool *)argument) setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_new_group((int[]){2, 1, 0}, size, NULL, &r.reversed) == TUTTI_OK);
    r.a = malloc(sizeof *r.a * SIZE * MOST);
    r.b = malloc(sizeof *r.b * SIZE * MOST);
    r.c = malloc(sizeof *r.c * SIZE * MOST);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) EXPECT(parts[i](&r, counts[c]) == 0);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    free(r.a);
    free(r.b);
    free(r.c);
    EXPECT(tutti_destroy_process_group(r.reversed) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_shared_memory(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_of_repeats, &(bool){false});
}

static void test_network(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_of_repeats, &(bool){true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_network)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
