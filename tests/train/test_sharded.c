/* Sharded optimizers: the results of an unsharded one, bit for bit, for any sizes, orders and dtypes; and what is
 * refused on all ranks. */
#include "ranks.h"

#include <math.h>
#include <tutti/train/sharded.h>

enum { N = 6, TOTAL = 1 + 7 + 100 + 0 + 33 + 513, STEPS = 4 };

static const int sizes[N] = {1, 7, 100, 0, 33, 513};
static const char *const names[N] = {"a", "b", "c", "empty", "d", "e"};

/* A model in plain arrays, parameters one after another. */
struct model {
    float value[TOTAL], gradient[TOTAL];
    tutti_parameter list[N];
};

static void model_init(struct model *model, int rank)
{
    int at = 0;
    for (int i = 0; i < TOTAL; i++) model->value[i] = (float)(i % 17) / 7 + (float)rank; /* rank 0's replace them */
    for (int i = 0; i < N; i++) {
        model->list[i] = (tutti_parameter){names[i], tutti_view(model->value + at, sizes[i]),
                                           tutti_view(model->gradient + at, sizes[i])};
        at += sizes[i];
    }
}

/* Returns a gradient that depends on everything. */
static float gradient_of(int rank, int step, int i, float value)
{
    return sinf((float)(i * 31 + rank * 7 + step)) * 1.1f + 0.3f * value;
}

/* ---- the unsharded optimizer ------------------------------------------------------------------------------- */

static int train_whole(tutti_group *group, int rank, int rounds, float *value)
{
    float gradient[TOTAL], sum[TOTAL], momentum[TOTAL] = {0};
    for (int i = 0; i < TOTAL; i++) value[i] = (float)(i % 17) / 7;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < TOTAL; i++) sum[i] = 0;
        for (int round = 0; round < rounds; round++) {
            for (int i = 0; i < TOTAL; i++) gradient[i] = gradient_of(rank, step * 10 + round, i, value[i]);
            EXPECT(tutti_all_reduce(tutti_view(gradient, TOTAL), TUTTI_AVG, tutti_with(.group = group)) == TUTTI_OK);
            for (int i = 0; i < TOTAL; i++) sum[i] += gradient[i];
        }
        for (int i = 0; i < TOTAL; i++) value[i] -= 0.1f * (momentum[i] = 0.9f * momentum[i] + sum[i]);
    }
    return 0;
}

/* ---- the sharded one --------------------------------------------------------------------------------------- */

struct plan {
    tutti_sharded_opts opts;
    int order;  /* 0: reverse, 1: forward, 2: another one on each rank */
    int rounds; /* of gradients, which are accumulated */
    bool exact;
};

/* Returns the k-th parameter to report. */
static int pick(int order, int rank, int k)
{
    if (order == 0) return N - 1 - k;
    return order == 1 ? k : (k * 5 + rank) % N;
}

static int report(tutti_group *group, tutti_sharded *sharded, struct model *model, const struct plan *plan, int step)
{
    int rank = tutti_get_rank(group);
    for (int k = 0; k < N; k++) {
        int i = pick(plan->order, rank, k), at = 0;
        for (int before = 0; before < i; before++) at += sizes[before];
        const float *value = tutti_sharded_parameter(sharded, i).data;
        for (int j = 0; j < sizes[i]; j++) model->gradient[at + j] = gradient_of(rank, step, at + j, value[j]);
        EXPECT(tutti_sharded_ready(sharded, i) == TUTTI_OK);
        for (int j = 0; j < sizes[i]; j++) model->gradient[at + j] = NAN; /* it may be used again */
    }
    EXPECT(tutti_sharded_wait(sharded) == TUTTI_OK);
    return 0;
}

static int train_sharded(tutti_group *group, struct model *model, const struct plan *plan, float *result)
{
    tutti_sharded *sharded;
    EXPECT(tutti_sharded_create(model->list, N, &plan->opts, &sharded) == TUTTI_OK);
    int64_t numel = tutti_sharded_value(sharded).numel;
    float *value = tutti_sharded_value(sharded).data, *gradient = tutti_sharded_gradient(sharded).data;
    float momentum[TOTAL] = {0};
    for (int step = 0; step < STEPS; step++) {
        for (int round = 0; round < plan->rounds; round++) {
            EXPECT(tutti_sharded_set_accumulate(sharded, round > 0) == TUTTI_OK);
            int line = report(group, sharded, model, plan, step * 10 + round);
            if (line != 0) return line;
        }
        for (int64_t i = 0; i < numel; i++) value[i] -= 0.1f * (momentum[i] = 0.9f * momentum[i] + gradient[i]);
        EXPECT(tutti_sharded_update(sharded) == TUTTI_OK);
        for (int i = 0; i < N; i++) EXPECT(tutti_sharded_wait_value(sharded, i) == TUTTI_OK);
    }
    EXPECT(tutti_sharded_wait_values(sharded) == TUTTI_OK);
    for (int i = 0; i < N; i++) {
        tutti_tensor parameter = tutti_sharded_parameter(sharded, i);
        memcpy(result, parameter.data, (size_t)parameter.numel * sizeof *result);
        result += parameter.numel;
    }
    tutti_sharded_destroy(sharded);
    return 0;
}

static int compare(tutti_group *group, int rank, int size, void *argument)
{
    struct plan plan = *(struct plan *)argument;
    struct model model;
    float whole[TOTAL], result[TOTAL];
    (void)size;
    plan.opts.group = group;
    model_init(&model, rank);
    int line = train_whole(group, rank, plan.rounds, whole);
    if (line == 0) line = train_sharded(group, &model, &plan, result);
    if (line != 0) return line;
    for (int i = 0; i < TOTAL; i++) {
        if (plan.exact) EXPECT(memcmp(&whole[i], &result[i], sizeof *whole) == 0);
        EXPECT(fabsf(whole[i] - result[i]) <= 1e-5f * (1 + fabsf(whole[i])));
    }
    return 0;
}

static void compare_all(bool exact, int rounds, int stride)
{
    static const int ranks[] = {1, 2, 3, 5};
    for (int k = 0; k < 4; k++)
        for (int form = 0; form < 12; form += stride) {
            struct plan plan = {.opts = {.bucket_bytes = form % 2 == 0 ? 300 : 0, .values_as_views = form / 2 % 2},
                                .order = form / 4,
                                .rounds = rounds,
                                .exact = exact};
            ranks_run(ranks[k], compare, &plan);
        }
}

static void test_equals_unsharded(void **state)
{
    (void)state;
    compare_all(false, 1, 5);
}

static void test_equals_unsharded_bit_for_bit(void **state)
{
    (void)state;
    setenv("TUTTI_DETERMINISTIC", "1", 1);
    compare_all(true, 1, 1);
    unsetenv("TUTTI_DETERMINISTIC");
}

static void test_accumulates(void **state)
{
    (void)state;
    compare_all(false, 3, 5);
}

/* ---- dtypes ------------------------------------------------------------------------------------------------ */

/* bfloat16 parameters of a float32 shard: small steps add up in the shard, though each is lost in bfloat16. */
static int train_narrow(tutti_group *group, int rank, int size, void *argument)
{
    uint16_t value[10], gradient[10];
    float one = 1, wanted = 0.5f;
    tutti_sharded *sharded;
    (void)argument;
    (void)size;
    for (int i = 0; i < 10; i++) {
        tutti_cast(tutti_tensor_of(&value[i], 1, TUTTI_BFLOAT16), tutti_view(&one, 1));
        tutti_cast(tutti_tensor_of(&gradient[i], 1, TUTTI_BFLOAT16), tutti_view(&one, 1));
    }
    tutti_parameter list = {"w", tutti_tensor_of(value, 10, TUTTI_BFLOAT16),
                            tutti_tensor_of(gradient, 10, TUTTI_BFLOAT16)};
    EXPECT(tutti_sharded_create(&list, 1, &(tutti_sharded_opts){.group = group}, &sharded) == TUTTI_OK);
    tutti_tensor shard = tutti_sharded_value(sharded), average = tutti_sharded_gradient(sharded);
    EXPECT(shard.dtype == TUTTI_FLOAT32 && average.dtype == TUTTI_FLOAT32);
    for (int step = 0; step < 512; step++) {
        EXPECT(tutti_sharded_set_accumulate(sharded, step % 2) == TUTTI_OK);
        EXPECT(tutti_sharded_ready(sharded, 0) == TUTTI_OK && tutti_sharded_wait(sharded) == TUTTI_OK);
        if (step % 2 == 0) continue;
        for (int64_t i = 0; i < shard.numel; i++) ((float *)shard.data)[i] -= ((float *)average.data)[i] / 1024;
        EXPECT(tutti_sharded_update(sharded) == TUTTI_OK && tutti_sharded_wait_values(sharded) == TUTTI_OK);
    }
    for (int i = 0; i < 10; i++) {
        EXPECT(tutti_cast(tutti_view(&one, 1), tutti_tensor_of(&value[i], 1, TUTTI_BFLOAT16)) == TUTTI_OK);
        if (one != wanted) fprintf(stderr, "rank %d: %g\n", rank, (double)one);
        EXPECT(one == wanted);
    }
    tutti_sharded_destroy(sharded);
    return 0;
}

static void test_narrow_parameters(void **state)
{
    (void)state;
    ranks_run(3, train_narrow, NULL);
}

/* Sums float64 gradients.  Some are not reported. */
static int sum_wide(tutti_group *group, int rank, int size, void *argument)
{
    double value[5] = {0}, gradient[5] = {1, 2, 3, 4, 5};
    tutti_sharded *sharded;
    (void)argument;
    tutti_parameter list[] = {{NULL, tutti_view(value, 3), tutti_view(gradient, 3)},
                              {NULL, tutti_view(value + 3, 2), tutti_view(gradient + 3, 2)}};
    tutti_sharded_opts opts = {.group = group, .dtype = TUTTI_FLOAT64, .sum = true, .unused_as_zero = true};
    EXPECT(tutti_sharded_create(list, 2, &opts, &sharded) == TUTTI_OK);
    EXPECT(tutti_sharded_ready(sharded, 0) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_sharded_ready(sharded, 1) == TUTTI_OK);
    EXPECT(tutti_sharded_wait(sharded) == TUTTI_OK);
    tutti_sharded_piece piece;
    for (int k = 0; tutti_sharded_get_piece(sharded, k, &piece); k++)
        for (int64_t i = 0; i < piece.numel; i++) {
            double wanted = piece.parameter == 0 ? (double)(piece.begin + i + 1) * size : (double)(piece.begin + i + 4);
            EXPECT(((double *)tutti_sharded_gradient(sharded).data)[piece.at + i] == wanted);
        }
    tutti_sharded_destroy(sharded);
    return 0;
}

static void test_sums_and_unused(void **state)
{
    (void)state;
    ranks_run(3, sum_wide, NULL);
}

/* ---- pieces ------------------------------------------------------------------------------------------------ */

static int cover(tutti_group *group, int rank, int size, void *argument)
{
    struct model model;
    tutti_sharded *sharded;
    tutti_sharded_piece piece;
    int64_t at = 0, covered[TOTAL] = {0};
    (void)argument;
    (void)size;
    model_init(&model, rank);
    tutti_sharded_opts opts = {.group = group, .bucket_bytes = 300};
    EXPECT(tutti_sharded_create(model.list, N, &opts, &sharded) == TUTTI_OK);
    for (int k = 0; tutti_sharded_get_piece(sharded, k, &piece); k++) {
        EXPECT(piece.at == at && piece.numel > 0 && piece.begin >= 0 &&
               piece.begin + piece.numel <= sizes[piece.parameter]);
        int64_t first = piece.begin;
        for (int i = 0; i < piece.parameter; i++) first += sizes[i];
        for (int64_t i = 0; i < piece.numel; i++) covered[first + i]++;
        EXPECT(((float *)tutti_sharded_value(sharded).data)[at] == (float)(first % 17) / 7); /* rank 0's */
        at += piece.numel;
    }
    EXPECT(at == tutti_sharded_value(sharded).numel && at == tutti_sharded_gradient(sharded).numel);
    EXPECT(tutti_all_reduce(tutti_view(covered, TOTAL), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    for (int i = 0; i < TOTAL; i++) EXPECT(covered[i] == 1);
    EXPECT(!tutti_sharded_get_piece(sharded, -1, &piece));
    tutti_sharded_destroy(sharded);
    tutti_sharded_destroy(NULL);
    return 0;
}

static void test_pieces(void **state)
{
    (void)state;
    ranks_run(1, cover, NULL);
    ranks_run(4, cover, NULL);
    ranks_run(7, cover, NULL);
}

/* ---- refusals ---------------------------------------------------------------------------------------------- */

#define EXPECT_REFUSED(call, wanted, word)                                                                             \
    do {                                                                                                               \
        EXPECT((call) == (wanted));                                                                                    \
        if (strstr(tutti_last_error(), (word)) == NULL) fprintf(stderr, "no \"%s\"\n", (word));                        \
        EXPECT(strstr(tutti_last_error(), (word)) != NULL);                                                            \
    } while (0)

/* Each rank 1 alone passes something wrong: all ranks get its error. */
static int create_wrong(tutti_group *group, int rank, int size, void *argument)
{
    struct model model, wrong;
    tutti_sharded *sharded;
    tutti_sharded_opts opts = {.group = group}, wrong_opts = {.group = group};
    (void)argument;
    (void)size;
#define TRY(status, word)                                                                                              \
    EXPECT_REFUSED(                                                                                                    \
        tutti_sharded_create(rank == 1 ? wrong.list : model.list, N, rank == 1 ? &wrong_opts : &opts, &sharded),       \
        status, word);                                                                                                 \
    EXPECT(sharded == NULL);                                                                                           \
    memcpy(wrong.list, model.list, sizeof wrong.list)
    model_init(&model, rank);
    memcpy(wrong.list, model.list, sizeof wrong.list);
    wrong.list[2].value.numel = wrong.list[2].gradient.numel = 99;
    TRY(TUTTI_ERR_MISMATCH, "rank 0 has parameter 2 \"c\" of 100 float32 with gradient float32, but this rank has "
                            "parameter 2 \"c\" of 99");
    wrong.list[4].name = "other";
    TRY(TUTTI_ERR_MISMATCH, "parameter 4 \"other\"");
    wrong.list[1].gradient.numel = 8;
    TRY(TUTTI_ERR_INVALID_ARGUMENT, "rank 1: sharded_create: the value of \"b\" has 7 elements, but its gradient 8");
    wrong.list[1].value.data = NULL;
    TRY(TUTTI_ERR_INVALID_ARGUMENT, "the value of \"b\" is NULL");
    wrong.list[0].gradient.numel = -1;
    TRY(TUTTI_ERR_INVALID_ARGUMENT, "the gradient of \"a\" has -1 elements");
    wrong.list[5].value.device.type = TUTTI_CUDA;
    TRY(TUTTI_ERR_UNSUPPORTED, "the value of \"e\" is on device type 2");
    wrong.list[5].value.dtype = TUTTI_INT32;
    TRY(TUTTI_ERR_UNSUPPORTED, "the value of \"e\" is int32");
    wrong.list[5].value.dtype = TUTTI_FLOAT64;
    TRY(TUTTI_ERR_INVALID_ARGUMENT, "set opts.dtype to float64");
    for (int i = 0; i < N; i++) wrong.list[i].value.numel = wrong.list[i].gradient.numel = INT64_MAX / 64;
    TRY(TUTTI_ERR_INVALID_ARGUMENT, "more than 2^57 elements");
    wrong_opts.bucket_bytes = 1000;
    TRY(TUTTI_ERR_MISMATCH, "bucket_bytes");
    wrong_opts.bucket_bytes = -1;
    TRY(TUTTI_ERR_INVALID_ARGUMENT, "bucket_bytes is -1");
    wrong_opts = (tutti_sharded_opts){.group = group, .timeout_ms = -5};
    TRY(TUTTI_ERR_INVALID_ARGUMENT, "timeout_ms -5");
    wrong_opts = (tutti_sharded_opts){.group = group, .dtype = TUTTI_FLOAT16};
    TRY(TUTTI_ERR_INVALID_ARGUMENT, "opts.dtype is float16");
    EXPECT_REFUSED(tutti_sharded_create(model.list, rank == 1 ? 0 : N, &opts, &sharded), TUTTI_ERR_INVALID_ARGUMENT,
                   "rank 1: sharded_create: parameters is");
    /* more than the memory, on all ranks */
    tutti_parameter huge = {"huge", tutti_tensor_of(model.value, INT64_MAX / 64, TUTTI_FLOAT32),
                            tutti_tensor_of(model.gradient, INT64_MAX / 64, TUTTI_FLOAT32)};
    EXPECT_REFUSED(tutti_sharded_create(&huge, 1, &opts, &sharded), TUTTI_ERR_NO_MEMORY, "no memory for a shard");
    EXPECT(tutti_sharded_create(model.list, N, &opts, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_sharded_create(model.list, N, &opts, &sharded) == TUTTI_OK); /* the group is usable */
    tutti_sharded_destroy(sharded);
    return 0;
}

static void test_wrong_lists(void **state)
{
    (void)state;
    ranks_run(3, create_wrong, NULL);
}

/* A program with headers of a later version. */
static int create_later(tutti_group *group, int rank, int size, void *argument)
{
    struct {
        tutti_parameter known;
        int64_t later;
    } list[N];
    struct model model;
    tutti_sharded *sharded;
    (void)argument;
    (void)size;
    model_init(&model, rank);
    memset(list, 0, sizeof list);
    for (int i = 0; i < N; i++) list[i].known = model.list[i];
    tutti_sharded_opts opts = {.group = group};
    EXPECT(tutti_sharded_create_sized(&list[0].known, sizeof *list, N, &opts, sizeof opts, &sharded) == TUTTI_OK);
    EXPECT(tutti_sharded_parameter(sharded, 5).numel == 513);
    tutti_sharded_destroy(sharded);
    list[3].later = 1;
    EXPECT(tutti_sharded_create_sized(&list[0].known, sizeof *list, N, &opts, sizeof opts, &sharded) ==
           TUTTI_ERR_INVALID_ARGUMENT);
    return 0;
}

static void test_later_headers(void **state)
{
    (void)state;
    ranks_run(2, create_later, NULL);
}

static int use_wrong(tutti_group *group, int rank, int size, void *argument)
{
    struct model model;
    tutti_sharded *sharded;
    (void)argument;
    (void)size;
    model_init(&model, rank);
    memset(model.gradient, 0, sizeof model.gradient);
    tutti_sharded_opts opts = {.group = group, .bucket_bytes = 300};
    EXPECT(tutti_sharded_create(model.list, N, &opts, &sharded) == TUTTI_OK);
    EXPECT_REFUSED(tutti_sharded_ready(sharded, N), TUTTI_ERR_INVALID_ARGUMENT, "6 is not in the list of 6 parameters");
    EXPECT_REFUSED(tutti_sharded_ready(sharded, -1), TUTTI_ERR_INVALID_ARGUMENT, "-1 is not in the list");
    EXPECT_REFUSED(tutti_sharded_wait_value(sharded, N), TUTTI_ERR_INVALID_ARGUMENT, "6 is not in the list");
    EXPECT(tutti_sharded_parameter(sharded, N).numel == -1 && tutti_sharded_wait_value(sharded, 0) == TUTTI_OK);
    /* reported twice, on one rank; and never, on two others */
    for (int i = 0; i < N; i++)
        if ((rank != 1 || i != 4) && (rank != 2 || i != 1)) EXPECT(tutti_sharded_ready(sharded, i) == TUTTI_OK);
    EXPECT_REFUSED(tutti_sharded_ready(sharded, 0), TUTTI_ERR_INVALID_ARGUMENT,
                   "the gradient of \"a\" was reported before");
    EXPECT_REFUSED(tutti_sharded_update(sharded), TUTTI_ERR_INVALID_ARGUMENT, "gradients were reported since");
    EXPECT_REFUSED(tutti_sharded_set_accumulate(sharded, true), TUTTI_ERR_INVALID_ARGUMENT, "gradients were reported");
    EXPECT_REFUSED(tutti_sharded_wait(sharded), TUTTI_ERR_INVALID_ARGUMENT,
                   "rank 1: sharded_wait: 1 of 6 gradients were not reported, the first is that of \"d\"");
    /* the next iteration works */
    for (int i = 0; i < N; i++) EXPECT(tutti_sharded_ready(sharded, i) == TUTTI_OK);
    EXPECT(tutti_sharded_wait(sharded) == TUTTI_OK && tutti_sharded_update(sharded) == TUTTI_OK);
    tutti_sharded_destroy(sharded); /* with gathers in flight */
    return 0;
}

static void test_wrong_use(void **state)
{
    (void)state;
    ranks_run(3, use_wrong, NULL);
}

int main(void)
{
    ranks_setup();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_unsharded), cmocka_unit_test(test_equals_unsharded_bit_for_bit),
        cmocka_unit_test(test_accumulates),      cmocka_unit_test(test_narrow_parameters),
        cmocka_unit_test(test_sums_and_unused),  cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_wrong_lists),      cmocka_unit_test(test_later_headers),
        cmocka_unit_test(test_wrong_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
