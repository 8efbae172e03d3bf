/* The plan cache: what it keeps, and how much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "progress/plan_cache.h"
#include "state/group_state.h"

enum { RANKS = 256, SHAPES = 1000 };

static struct tutti_group *new_group(void)
{
    struct tutti_group *group = calloc(1, sizeof *group);
    group->size = RANKS;
    group->cache = plan_cache_new();
    assert_non_null(group->cache);
    return group;
}

static void free_group(struct tutti_group *group)
{
    plan_cache_free(group->cache);
    free(group);
}

/* Begins an all_to_all with this many elements for each rank, and returns its plan. */
static const struct plan *begin_all_to_all(struct tutti_group *group, int64_t numel, struct plan_cache_entry **entry,
                                           struct exec **exec)
{
    static const tutti_backend backend = {.name = "none"};
    static char in[1], out[1];
    struct backend_entry backend_entry = {.backend = &backend};
    tutti_tensor from = tutti_tensor_of(in, numel * RANKS, TUTTI_INT8),
                 to = tutti_tensor_of(out, numel * RANKS, TUTTI_INT8);
    tutti_op op = {
        .kind = TUTTI_ALL_TO_ALL, .dtype = TUTTI_INT8, .root = -1, .n_in = 1, .in = &from, .n_out = 1, .out = &to};
    assert_int_equal(plan_cache_take(group->cache, group, &backend_entry, &op, entry, exec), TUTTI_OK);
    return (*exec)->plan;
}

static const struct plan *run(struct tutti_group *group, int64_t numel)
{
    struct plan_cache_entry *entry;
    struct exec *exec;
    const struct plan *plan = begin_all_to_all(group, numel, &entry, &exec);
    plan_cache_give(group->cache, entry, exec);
    return plan;
}

static void test_takes_bounded_memory(void **state)
{
    struct tutti_group *group = new_group();
    (void)state;
    for (int64_t i = 1; i <= SHAPES; i++) {
        run(group, i * 1000);
        assert_in_range(plan_cache_bytes(group->cache), 1, CACHE_BYTES_MOST);
    }
    assert_in_range(plan_cache_bytes(group->cache), CACHE_BYTES_MOST / 2, CACHE_BYTES_MOST);
    free_group(group);
}

static void test_keeps_what_is_used(void **state)
{
    struct tutti_group *group = new_group();
    (void)state;
    const struct plan *first = run(group, 1);
    for (int64_t i = 1; i <= SHAPES; i++) {
        run(group, i * 1000);
        assert_ptr_equal(run(group, 1), first);
    }
    free_group(group);
}

static void test_keeps_what_runs(void **state)
{
    struct tutti_group *group = new_group();
    struct plan_cache_entry *entry;
    struct exec *exec;
    (void)state;
    const struct plan *plan = begin_all_to_all(group, 1, &entry, &exec);
    uint32_t steps = plan->n_steps;
    for (int64_t i = 1; i <= SHAPES; i++) run(group, i * 1000);
    assert_int_equal(plan->n_steps, steps);
    plan_cache_give(group->cache, entry, exec);
    assert_ptr_equal(run(group, 1), plan);
    free_group(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_bounded_memory),
        cmocka_unit_test(test_keeps_what_is_used),
        cmocka_unit_test(test_keeps_what_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
