/* Blocks of differing sizes: all_to_all with splits and lists, and lists of all_gather, reduce_scatter, gather and
 * scatter.  Small blocks go through one buffer, more through another one, and large ones are read from memory.  In an
 * all_gather and a reduce_scatter all ranks know the sizes, in the others each rank chooses what suits its own. */
#include "procs.h"
#include "sanitizer.h"

enum { MOST = 8 };

/* ---- sizes and values ------------------------------------------------------------------------------------------- */

/* Returns how many elements rank i sends to rank j. */
typedef int64_t (*sizes_fn)(int i, int j);

static int64_t few(int i, int j)
{
    return (i * 3 + j) % 4; /* also none */
}

static int64_t hundreds(int i, int j)
{
    return 100 + 10 * i + j;
}

static int64_t thousands(int i, int j)
{
    return 3000 + 500 * ((i + j) % 3);
}

static int64_t many(int i, int j)
{
    return 300000 + i + j; /* more than are read at once */
}

static int64_t one_sends_many(int i, int j)
{
    return i == 1 ? 70000 + j : few(i, j);
}

static int64_t one_receives_many(int i, int j)
{
    return j == 1 ? 70000 + i : 0;
}

/* Each block goes another way. */
static int64_t mixed(int i, int j)
{
    static const int64_t sizes[] = {3, 900, 5000, 14000, 70000, 20};
    return sizes[(i + 2 * j) % 6] + i;
}

static int64_t none(int i, int j)
{
    return (void)i, (void)j, 0;
}

/* The others' blocks exceed the caches. */
static int64_t first_is_empty(int i, int j)
{
    return i + j == 0 ? 0 : 1 << 20;
}

static int32_t value_of(int i, int j, int64_t k)
{
    return (int32_t)(i * 1000003 + j * 10007 + k % 5003);
}

/* A rank's blocks on both sides. */
struct blocks {
    int rank, size;
    int64_t in_splits[MOST], out_splits[MOST], in_all, out_all;
    int32_t *in, *out;
    tutti_tensor in_list[MOST], out_list[MOST];
};

static void fill(struct blocks *b, sizes_fn sizes)
{
    int32_t *in = b->in;
    for (int j = 0; j < b->size; j++)
        for (int64_t k = 0; k < sizes(b->rank, j); k++) *in++ = value_of(b->rank, j, k);
    memset(b->out, 0xee, (size_t)b->out_all * sizeof *b->out);
}

static int open_blocks(struct blocks *b, int rank, int size, sizes_fn sizes)
{
    *b = (struct blocks){.rank = rank, .size = size};
    for (int j = 0; j < size; j++) {
        b->in_all += b->in_splits[j] = sizes(rank, j);
        b->out_all += b->out_splits[j] = sizes(j, rank);
    }
    b->in = malloc((size_t)b->in_all * sizeof *b->in + 1);
    b->out = malloc((size_t)b->out_all * sizeof *b->out + 1);
    EXPECT(b->in != NULL && b->out != NULL);
    for (int64_t j = 0, in = 0, out = 0; j < size; in += b->in_splits[j], out += b->out_splits[j], j++) {
        b->in_list[j] = tutti_view(b->in + in, b->in_splits[j]);
        b->out_list[j] = tutti_view(b->out + out, b->out_splits[j]);
    }
    fill(b, sizes);
    return 0;
}

static void close_blocks(struct blocks *b)
{
    free(b->in);
    free(b->out);
}

static bool holds(const struct blocks *b, const int32_t *out)
{
    for (int j = 0; j < b->size; j++)
        for (int64_t k = 0; k < b->out_splits[j]; k++)
            if (*out++ != value_of(j, b->rank, k)) return false;
    return true;
}

static int call_splits(struct blocks *b, const tutti_opts *opts)
{
    return tutti_all_to_all_single(tutti_view(b->out, b->out_all), tutti_view(b->in, b->in_all), b->out_splits,
                                   b->in_splits, opts);
}

static int call_lists(struct blocks *b, const tutti_opts *opts)
{
    return tutti_all_to_all(b->out_list, b->in_list, b->size, opts);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static const sizes_fn all_sizes[] = {few, hundreds, thousands, many, one_sends_many, one_receives_many, mixed, none};
enum { SIZES = sizeof all_sizes / sizeof *all_sizes };

static int forms(int rank, int size, sizes_fn sizes)
{
    struct blocks b;
    EXPECT(open_blocks(&b, rank, size, sizes) == 0);
    for (int form = 0; form < 3; form++) {
        bool lists = form == 1 || (form == 2 && rank % 2 == 0); /* in the last one ranks differ */
        fill(&b, sizes);
        EXPECT((lists ? call_lists : call_splits)(&b, NULL) == TUTTI_OK);
        memset(b.in, 0x55, (size_t)b.in_all * sizeof *b.in); /* nobody reads it any longer */
        EXPECT(holds(&b, b.out));
    }
    close_blocks(&b);
    return 0;
}

/* In place, so that a rank overwrites what others read. */
static int in_place(int rank, int size, sizes_fn sizes)
{
    struct blocks b;
    EXPECT(open_blocks(&b, rank, size, sizes) == 0);
    EXPECT(memcmp(b.in_splits, b.out_splits, sizeof b.in_splits) == 0);
    tutti_tensor all = tutti_view(b.in, b.in_all);
    EXPECT(tutti_all_to_all_single(all, all, b.in_splits, b.in_splits, NULL) == TUTTI_OK);
    EXPECT(holds(&b, b.in));
    fill(&b, sizes);
    EXPECT(tutti_all_to_all(b.in_list, b.in_list, size, NULL) == TUTTI_OK);
    EXPECT(holds(&b, b.in));
    close_blocks(&b);
    return 0;
}

/* Operations under way together, and other ones between them. */
static int together(int rank, int size)
{
    struct blocks b[SIZES];
    tutti_work *works[SIZES], *scatters[SIZES];
    for (int i = 0; i < SIZES; i++) EXPECT(open_blocks(&b[i], rank, size, all_sizes[i]) == 0);
    for (int i = 0; i < SIZES; i++) {
        float x = 1;
        int root = i % size;
        tutti_tensor *list = rank == root ? b[i].in_list : NULL, own = b[i].out_list[root];
        EXPECT(tutti_scatter(own, list, list ? size : 0, root, tutti_with(.async_op = &scatters[i])) == TUTTI_OK);
        EXPECT((i % 2 ? call_lists : call_splits)(&b[i], tutti_with(.async_op = &works[i])) == TUTTI_OK);
        EXPECT(tutti_broadcast(tutti_view(&x, 1), i % size, NULL) == TUTTI_OK);
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == (float)size);
    }
    EXPECT(tutti_wait_all(scatters, SIZES, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(tutti_wait_all(works, SIZES, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    for (int i = 0; i < SIZES; i++) {
        EXPECT(holds(&b[i], b[i].out));
        close_blocks(&b[i]);
    }
    return 0;
}

/* A root does not wait for the others in a broadcast, so it is soon at the next operation, while they still read its
 * blocks of the last one. */
static int between_broadcasts(int rank, int size, sizes_fn sizes)
{
    enum { ROUNDS = 200 };
    struct blocks b;
    EXPECT(open_blocks(&b, rank, size, sizes) == 0);
    for (int32_t round = 0; round < ROUNDS; round++) {
        int32_t got = round;
        fill(&b, sizes);
        for (int64_t k = 0; k < b.in_all; k++) b.in[k] += round;
        EXPECT(call_splits(&b, NULL) == TUTTI_OK);
        EXPECT(tutti_broadcast(tutti_view(&got, 1), round % size, NULL) == TUTTI_OK && got == round);
        for (int64_t k = 0; k < b.out_all; k++) b.out[k] -= round;
        EXPECT(holds(&b, b.out));
    }
    close_blocks(&b);
    return 0;
}

static tutti_tensor block_at(int32_t *data, int64_t numel)
{
    return tutti_view(numel > 0 ? data : NULL, numel);
}

/* Rank j contributes what the sizes say that it sends to rank 0. */
static int gathers(int rank, int size, sizes_fn sizes)
{
    tutti_tensor list[MOST];
    int64_t all = 0, at = 0, own = sizes(rank, 0);
    for (int j = 0; j < size; j++) all += sizes(j, 0);
    int32_t *in = malloc((size_t)own * sizeof *in + 1), *out = calloc((size_t)all + 1, sizeof *out);
    EXPECT(in != NULL && out != NULL);
    for (int64_t k = 0; k < own; k++) in[k] = value_of(rank, 0, k);
    for (int j = 0; j < size; at += sizes(j, 0), j++) list[j] = block_at(out + at, sizes(j, 0));
    EXPECT(tutti_all_gather(list, size, block_at(in, own), NULL) == TUTTI_OK);
    for (int j = 0; j < size; j++)
        for (int64_t k = 0; k < list[j].numel; k++) EXPECT(((int32_t *)list[j].data)[k] == value_of(j, 0, k));
    free(in);
    free(out);
    return 0;
}

static int32_t sum_of(int size, int j, int64_t k)
{
    int32_t sum = 0;
    for (int i = 0; i < size; i++) sum += value_of(i, j, k);
    return sum;
}

/* Rank j gets what the sizes say that rank 0 sends it.  The memory is private or shared with the other ranks, and the
 * second time the output is the rank's own block of the input. */
static int reduces(int rank, int size, sizes_fn sizes, bool shared)
{
    tutti_tensor list[MOST];
    int64_t all = 0, own = sizes(0, rank);
    for (int j = 0; j < size; j++) all += sizes(0, j);
    void *memory = NULL, *allocated = NULL;
    int32_t *out = calloc((size_t)own + 1, sizeof *out);
    if (shared) EXPECT(tutti_alloc(NULL, all * (int64_t)sizeof *out + 1, &memory) == TUTTI_OK);
    if (!shared) memory = allocated = malloc((size_t)all * sizeof *out + 1);
    EXPECT(memory != NULL && out != NULL);
    for (int in_place = 0; in_place < 2; in_place++) {
        int32_t *at = memory;
        for (int j = 0; j < size; j++) {
            list[j] = block_at(at, sizes(0, j));
            for (int64_t k = 0; k < sizes(0, j); k++) *at++ = value_of(rank, j, k);
        }
        tutti_tensor to = in_place ? list[rank] : block_at(out, own);
        EXPECT(tutti_reduce_scatter(to, list, size, TUTTI_SUM, NULL) == TUTTI_OK);
        for (int64_t k = 0; k < own; k++) EXPECT(((int32_t *)to.data)[k] == sum_of(size, rank, k));
        EXPECT(out[own] == 0); /* nothing behind it is written */
    }
    if (shared) EXPECT(tutti_free(NULL, memory) == TUTTI_OK);
    free(allocated);
    free(out);
    return 0;
}

/* Gathers and scatters between a root's row of the sizes and the others, without a barrier, so that ranks that wait for
 * no other run ahead.  Memory is overwritten as soon as a call has returned. */
static int rooted(int rank, int size, sizes_fn sizes, int rounds)
{
    struct blocks b;
    EXPECT(open_blocks(&b, rank, size, sizes) == 0);
    for (int32_t round = 0; round < rounds; round++) {
        int root = round % size;
        bool is_root = rank == root;
        const tutti_tensor in = b.in_list[root], out = b.out_list[root];
        fill(&b, sizes);
        for (int64_t k = 0; k < b.in_all; k++) b.in[k] += round;
        EXPECT(tutti_gather(in, is_root ? b.out_list : NULL, is_root ? size : 0, root, NULL) == TUTTI_OK);
        for (int64_t k = 0; k < in.numel; k++) ((int32_t *)in.data)[k] = 0x55;
        for (int64_t k = 0; k < b.out_all; k++) b.out[k] -= is_root ? round : 0;
        EXPECT(!is_root || holds(&b, b.out));
        fill(&b, sizes);
        for (int64_t k = 0; k < b.in_all; k++) b.in[k] += round;
        EXPECT(tutti_scatter(out, is_root ? b.in_list : NULL, is_root ? size : 0, root, NULL) == TUTTI_OK);
        for (int64_t k = 0; is_root && k < b.in_all; k++) b.in[k] = 0x55;
        for (int64_t k = 0; k < out.numel; k++) EXPECT(((int32_t *)out.data)[k] == value_of(root, rank, k) + round);
    }
    close_blocks(&b);
    return 0;
}

/* The root's own block in place. */
static int rooted_in_place(int rank, int size, sizes_fn sizes)
{
    struct blocks b;
    EXPECT(open_blocks(&b, rank, size, sizes) == 0);
    tutti_tensor *list = rank == 0 ? b.out_list : NULL;
    memcpy(b.out_list[0].data, b.in_list[0].data, (size_t)b.out_list[0].numel * sizeof *b.out);
    EXPECT(tutti_gather(rank == 0 ? b.out_list[0] : b.in_list[0], list, list ? size : 0, 0, NULL) == TUTTI_OK);
    EXPECT(rank != 0 || holds(&b, b.out));
    list = rank == 0 ? b.in_list : NULL;
    EXPECT(tutti_scatter(rank == 0 ? b.in_list[0] : b.out_list[0], list, list ? size : 0, 0, NULL) == TUTTI_OK);
    for (int64_t k = 0; k < b.out_list[0].numel; k++)
        EXPECT(((int32_t *)(rank == 0 ? b.in_list : b.out_list)[0].data)[k] == value_of(0, rank, k));
    close_blocks(&b);
    return 0;
}

static int rank_of_values(int rank, int size, void *argument)
{
    if (*(bool *)argument) setenv("TUTTI_SHM_CMA", "0", 1); /* then most run as plans */
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < SIZES; i++) {
            EXPECT(forms(rank, size, all_sizes[i]) == 0);
            EXPECT(gathers(rank, size, all_sizes[i]) == 0);
            EXPECT(reduces(rank, size, all_sizes[i], round == 1) == 0);
            EXPECT(rooted(rank, size, all_sizes[i], 2 * size) == 0);
        }
    EXPECT(gathers(rank, size, first_is_empty) == 0);
    EXPECT(reduces(rank, size, first_is_empty, false) == 0);
    EXPECT(in_place(rank, size, thousands) == 0);
    EXPECT(in_place(rank, size, many) == 0);
    EXPECT(rooted_in_place(rank, size, thousands) == 0);
    EXPECT(rooted_in_place(rank, size, many) == 0);
    EXPECT(rooted(rank, size, few, 200) == 0);
    EXPECT(rooted(rank, size, hundreds, 200) == 0);
    EXPECT(rooted(rank, size, mixed, 100) == 0);
    EXPECT(together(rank, size) == 0);
    EXPECT(between_broadcasts(rank, size, few) == 0);
    EXPECT(between_broadcasts(rank, size, thousands) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_values(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size++) procs_run_ranks(size, rank_of_values, &(bool){false});
}

static void test_values_without_reads(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_values, &(bool){true});
}

/* Where all ranks know the sizes, the operation can be told to take any path. */
static int rank_of_path(int rank, int size, void *argument)
{
    setenv("TUTTI_ALGO", argument, 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < SIZES; i++) {
        EXPECT(gathers(rank, size, all_sizes[i]) == 0);
        EXPECT(reduces(rank, size, all_sizes[i], false) == 0);
        EXPECT(reduces(rank, size, all_sizes[i], true) == 0);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_values_by_each_path(void **state)
{
    static char paths[][16] = {"eager", "lockstep", "pipelined", "direct"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        for (int size = 2; size <= 3; size++) procs_run_ranks(size, rank_of_path, paths[i]);
}

/* ---- sizes that differ ------------------------------------------------------------------------------------------ */

struct rooted_case {
    bool scatters;
    int64_t numel;
};

/* Rank 0 sends rank 1 one element more than that expects. */
static int rank_of_mismatch(int rank, int size, void *argument)
{
    sizes_fn sizes = *(sizes_fn *)argument;
    struct blocks b;
    char words[2][32];
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(open_blocks(&b, rank, size, sizes) == 0);
    if (rank == 0) {
        b.in_splits[1]++;
        b.in_all++;
        b.in = realloc(b.in, (size_t)b.in_all * sizeof *b.in);
        EXPECT(b.in != NULL);
    }
    snprintf(words[0], sizeof words[0], "%" PRId64 " bytes", 4 * (sizes(0, 1) + 1));
    snprintf(words[1], sizeof words[1], "has %" PRId64, 4 * sizes(0, 1));
    int status = call_splits(&b, NULL);
    if (rank == 1) EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "rank 0", words[0], "rank 1", words[1]);
    if (status == TUTTI_OK) status = tutti_barrier(NULL); /* ranks that got all their blocks learn it here */
    EXPECT(status == TUTTI_ERR_MISMATCH);
    close_blocks(&b); /* nobody reads it any longer */
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* Rank 0 scatters to rank 1, or rank 1 gathers from rank 0, one element more than rank 1 expects. */
static int rank_of_rooted_mismatch(int rank, int size, void *argument)
{
    enum { EACH = 400000 };
    static int32_t x[MOST * EACH], mine[EACH];
    const struct rooted_case *c = argument;
    tutti_tensor all[MOST], *list = rank == (c->scatters ? 0 : 1) ? all : NULL;
    int64_t more = c->numel + 1;
    char words[2][32];
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < size; i++) all[i] = tutti_view(x + (int64_t)i * EACH, c->scatters && i == 1 ? more : c->numel);
    tutti_tensor own = tutti_view(mine, !c->scatters && rank == 0 ? more : c->numel);
    snprintf(words[0], sizeof words[0], "%" PRId64 " bytes", 4 * more);
    snprintf(words[1], sizeof words[1], "has %" PRId64, 4 * c->numel);
    int n = list != NULL ? size : 0;
    int status = c->scatters ? tutti_scatter(own, list, n, 0, NULL) : tutti_gather(own, list, n, 1, NULL);
    if (rank == 1) EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "rank 0", words[0], "rank 1", words[1]);
    if (status == TUTTI_OK) status = tutti_barrier(NULL); /* ranks that got all their blocks learn it here */
    EXPECT(status == TUTTI_ERR_MISMATCH);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_rooted_mismatch(void **state)
{
    static const int64_t sizes[] = {5, 1000, 20000, 300000};
    (void)state;
    for (int i = 0; i < 8; i++) procs_run_ranks(3, rank_of_rooted_mismatch, &(struct rooted_case){i % 2, sizes[i / 2]});
}

/* Every rank expects more than it gets, so each finds that itself, while others read its memory. */
static int rank_of_mismatches(int rank, int size, void *argument)
{
    enum { ROUNDS = SANITIZED ? 30 : 300, TIMEOUT_MS = 20000, EACH = 100000 };
    int all[MOST];
    struct blocks b;
    (void)argument;
    EXPECT(proc_init(TIMEOUT_MS) == TUTTI_OK);
    EXPECT(open_blocks(&b, rank, size, many) == 0);
    for (int i = 0; i < size; i++) {
        all[i] = i;
        b.in_splits[i] = EACH;
        b.out_splits[i] = EACH + (i != rank);
    }
    b.in_all = (int64_t)size * EACH;
    b.out_all = b.in_all + size - 1;
    for (int round = 0; round < ROUNDS; round++) {
        tutti_group *group = NULL;
        int64_t start_ns = monotonic_ns();
        EXPECT(tutti_new_group(all, size, NULL, &group) == TUTTI_OK);
        EXPECT(call_splits(&b, tutti_with(.group = group)) == TUTTI_ERR_MISMATCH);
        EXPECT_WITHIN(start_ns, 0, PROCS_SOON_S);
        EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    }
    close_blocks(&b);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_mismatch_everywhere(void **state)
{
    (void)state;
    procs_run_ranks(4, rank_of_mismatches, NULL);
}

static void test_mismatch(void **state)
{
    static const sizes_fn sizes[] = {hundreds, thousands, many};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        procs_run_ranks(3, rank_of_mismatch, &(sizes_fn){sizes[i]});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_values_without_reads),
                                       cmocka_unit_test(test_values_by_each_path),
                                       cmocka_unit_test(test_mismatch),
                                       cmocka_unit_test(test_mismatch_everywhere),
                                       cmocka_unit_test(test_rooted_mismatch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
