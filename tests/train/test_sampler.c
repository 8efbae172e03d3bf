/* Samplers: every sample is taken once, the order depends on seed and epoch alone, and positions can be resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train/sampler.h>

#include <cmocka.h>

#include "permutation.h"

static tutti_sampler make(int64_t size, int rank, int world_size, tutti_sampler_opts opts)
{
    tutti_sampler sampler;
    opts.rank = rank;
    opts.world_size = world_size;
    assert_int_equal(tutti_sampler_init(&sampler, size, &opts), TUTTI_OK);
    return sampler;
}

/* Counts how often each sample is taken by all ranks from their samplers' positions on.  The caller frees it. */
static int *count_taken(int64_t size, int world_size, tutti_sampler *samplers)
{
    int *taken = calloc((size_t)size + 1, sizeof *taken);
    assert_non_null(taken);
    for (int rank = 0; rank < world_size; rank++)
        for (int64_t index; tutti_sampler_next(&samplers[rank], &index);) {
            assert_true(index >= 0 && index < size);
            taken[index]++;
        }
    return taken;
}

/* Takes all samples and checks that each is taken once, but `padded` twice or `dropped` never. */
static void check_epoch(int64_t size, int world_size, tutti_sampler_opts opts)
{
    tutti_sampler samplers[16];
    int64_t padded = 0, dropped = 0, rest = size % world_size;
    if (rest > 0 && opts.drop_last) dropped = rest;
    if (rest > 0 && !opts.drop_last) padded = world_size - rest;
    for (int rank = 0; rank < world_size; rank++) {
        samplers[rank] = make(size, rank, world_size, opts);
        assert_int_equal(tutti_sampler_length(&samplers[rank]), (size + padded - dropped) / world_size);
    }
    int *taken = count_taken(size, world_size, samplers);
    int64_t missing = 0, twice = 0;
    for (int64_t i = 0; i < size; i++) {
        missing += taken[i] == 0;
        twice += taken[i] > 0 ? taken[i] - 1 : 0;
    }
    assert_int_equal(missing, dropped);
    assert_int_equal(twice, padded);
    free(taken);
}

static void test_every_sample_once(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 63, 64, 65, 1000, 4097};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int world_size = 1; world_size <= 16; world_size++)
            for (int flags = 0; flags < 4; flags++) {
                bool drop_last = flags & 1;
                if (drop_last && sizes[i] < world_size) continue;
                check_epoch(sizes[i], world_size,
                            (tutti_sampler_opts){.shuffle = flags & 2, .drop_last = drop_last, .seed = 5});
            }
}

static void test_order(void **state)
{
    (void)state;
    tutti_sampler plain = make(10, 1, 2, (tutti_sampler_opts){0});
    for (int i = 0; i < 5; i++) assert_int_equal(tutti_sampler_index(&plain, i), 2 * i + 1);
    assert_int_equal(tutti_sampler_index(&plain, 5), -1);
    assert_int_equal(tutti_sampler_index(&plain, -1), -1);

    tutti_sampler a = make(1000, 0, 1, (tutti_sampler_opts){.shuffle = true, .seed = 1}), b = a, c = a;
    tutti_sampler_set_epoch(&b, 1);
    c.seed = 2;
    int same_epoch = 0, same_seed = 0, fixed = 0;
    for (int i = 0; i < 1000; i++) {
        same_epoch += tutti_sampler_index(&a, i) == tutti_sampler_index(&b, i);
        same_seed += tutti_sampler_index(&a, i) == tutti_sampler_index(&c, i);
        fixed += tutti_sampler_index(&a, i) == i;
    }
    /* each is 1 on average; 12 has a probability below 1e-9 */
    assert_true(same_epoch < 12 && same_seed < 12 && fixed < 12);
}

/* The first place's element is uniform over the keys: a chi-square test with 63 degrees of freedom. */
static void test_uniform(void **state)
{
    enum { N = 64, KEYS = 64 * 400 };
    (void)state;
    for (int place = 0; place < N; place += 21) {
        int count[N] = {0};
        double chi = 0;
        for (uint64_t epoch = 0; epoch < KEYS; epoch++) count[permutation_at(permutation_key(3, epoch), N, place)]++;
        for (int i = 0; i < N; i++) chi += (count[i] - 400.0) * (count[i] - 400.0) / 400.0;
        if (chi > 130) fail_msg("place %d: chi-square %g", place, chi); /* 1e-6 */
    }
}

/* Large data sets cost nothing, and places stay in range. */
static void test_large(void **state)
{
    int64_t size = ((int64_t)1 << 62) - 1;
    (void)state;
    tutti_sampler sampler = make(size, 2, 3, (tutti_sampler_opts){.shuffle = true});
    for (int64_t i = 0; i < 1000; i++) {
        int64_t index = tutti_sampler_index(&sampler, tutti_sampler_length(&sampler) - 1 - i);
        assert_true(index >= 0 && index < size);
    }
}

/* Two ranks take a part of an epoch; three ranks take the rest. */
static void test_resume(void **state)
{
    enum { SIZE = 60 };
    tutti_sampler_opts opts = {.shuffle = true, .seed = 9};
    (void)state;
    int *taken = calloc(SIZE, sizeof *taken), position = 0;
    assert_non_null(taken);
    for (int rank = 0; rank < 2; rank++) {
        tutti_sampler sampler = make(SIZE, rank, 2, opts);
        tutti_sampler_set_epoch(&sampler, 4);
        for (int i = 0; i < 9; i++) {
            int64_t index;
            assert_true(tutti_sampler_next(&sampler, &index));
            taken[index]++;
        }
        position = (int)tutti_sampler_position(&sampler);
    }
    assert_int_equal(position, 18);
    for (int rank = 0; rank < 3; rank++) {
        tutti_sampler sampler = make(SIZE, rank, 3, opts);
        assert_int_equal(tutti_sampler_resume(&sampler, 4, position), TUTTI_OK);
        for (int64_t index; tutti_sampler_next(&sampler, &index);) taken[index]++;
    }
    for (int i = 0; i < SIZE; i++) assert_int_equal(taken[i], 1);
    free(taken);
}

static void assert_refused(int status, const char *word)
{
    assert_int_equal(status, TUTTI_ERR_INVALID_ARGUMENT);
    if (strstr(tutti_last_error(), word) == NULL) fail_msg("\"%s\" lacks \"%s\"", tutti_last_error(), word);
}

static void test_refusals(void **state)
{
    tutti_sampler sampler;
    int64_t index;
    (void)state;
    assert_refused(tutti_sampler_init(NULL, 1, NULL), "pass a sampler");
    assert_refused(tutti_sampler_init(&sampler, -1, NULL), "size -1");
    assert_refused(tutti_sampler_init(&sampler, 1, &(tutti_sampler_opts){.rank = 2, .world_size = 2}),
                   "rank is 2 of 2");
    assert_refused(tutti_sampler_init(&sampler, 2, &(tutti_sampler_opts){.world_size = 3, .drop_last = true}),
                   "2 samples are fewer than 3 ranks");
    assert_int_equal(tutti_sampler_init(&sampler, 0, NULL), TUTTI_OK); /* without a group: one rank */
    assert_false(tutti_sampler_next(&sampler, &index));
    assert_int_equal(tutti_sampler_init(&sampler, 5, NULL), TUTTI_OK);
    assert_int_equal(tutti_sampler_length(&sampler), 5);
    assert_refused(tutti_sampler_resume(&sampler, 0, 6), "an epoch has 5 samples");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_sample_once),
                                       cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_uniform),
                                       cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_resume),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
