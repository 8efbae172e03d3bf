/* The plan's builder: dependencies, aliases, slots, printing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "coll/coll.h"

#define IN(at) plan_at(PLAN_IN(0), at)
#define OUT(at) plan_at(PLAN_OUT(0), at)

static bool follows(const struct plan *plan, uint32_t before, uint32_t after)
{
    const struct plan_step *step = &plan->steps[before];
    for (uint32_t i = 0; i < step->nexts; i++)
        if (plan->next[step->first_next + i] == after) return true;
    return false;
}

static struct plan *new_plan(void)
{
    struct plan *plan = plan_new(0, 4, PLAN_ALWAYS);
    assert_non_null(plan);
    return plan;
}

/* ---- dependencies ------------------------------------------------------------------------------------------ */

static void test_read_after_write(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    uint32_t first = plan_recv(plan, 1, OUT(0), 10);
    uint32_t second = plan_recv(plan, 1, OUT(10), 10);
    uint32_t left = plan_send(plan, 2, OUT(0), 10);
    uint32_t both = plan_send(plan, 2, OUT(9), 2);
    uint32_t apart = plan_send(plan, 2, OUT(20), 5);
    assert_int_equal(plan_finish(plan), 0);
    assert_true(follows(plan, first, left));
    assert_false(follows(plan, second, left));
    assert_true(follows(plan, first, both));
    assert_true(follows(plan, second, both));
    assert_int_equal(plan->steps[both].waits, 2);
    assert_int_equal(plan->steps[apart].waits, 0);
    assert_int_equal(plan->n_ready, 3);
    plan_free(plan);
}

static void test_write_after_read(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    uint32_t write = plan_recv(plan, 1, OUT(0), 10);
    uint32_t one = plan_send(plan, 2, OUT(0), 5);
    uint32_t two = plan_send(plan, 3, OUT(3), 5);
    uint32_t again = plan_recv(plan, 1, OUT(4), 2);
    uint32_t last = plan_recv(plan, 1, OUT(8), 2);
    assert_int_equal(plan_finish(plan), 0);
    assert_true(follows(plan, one, again));
    assert_true(follows(plan, two, again));
    assert_false(follows(plan, write, again)); /* its readers follow it already */
    assert_true(follows(plan, write, last));
    plan_free(plan);
}

static void test_reduce_in_place(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    uint32_t recv = plan_recv(plan, 1, plan_scratch(plan, 8), 8);
    uint32_t reduce = plan_reduce(plan, OUT(0), OUT(0), plan_at(PLAN_SCRATCH, 0), 8);
    uint32_t send = plan_send(plan, 1, OUT(0), 8);
    assert_int_equal(plan_finish(plan), 0);
    assert_int_equal(plan->steps[reduce].waits, 1);
    assert_true(follows(plan, recv, reduce));
    assert_true(follows(plan, reduce, send));
    assert_int_equal(plan->scratch, 8);
    plan_free(plan);
}

static void test_one_edge_between_two_steps(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    uint32_t copy = plan_copy(plan, OUT(0), IN(0), 10);
    for (int i = 0; i < 10; i += 2) plan_send(plan, 1, OUT(i), 1);
    uint32_t twice = plan_reduce(plan, OUT(0), OUT(0), OUT(0), 10);
    assert_int_equal(plan_finish(plan), 0);
    assert_int_equal(plan->steps[twice].waits, 6);
    assert_true(follows(plan, copy, twice));
    plan_free(plan);
}

static void test_order(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    uint32_t recv = plan_recv(plan, 1, OUT(0), 0);
    uint32_t send = plan_send(plan, 1, OUT(0), 0);
    plan_order(plan, UINT32_MAX, send); /* no step, so no order */
    plan_order(plan, recv, send);
    plan_order(plan, recv, send);
    assert_int_equal(plan_finish(plan), 0);
    assert_true(follows(plan, recv, send));
    assert_int_equal(plan->steps[send].waits, 1);
    assert_int_equal(plan->n_next, 1);
    plan_free(plan);
}

/* Random steps, compared with an element-wise analysis: each conflict has a path, each edge has a conflict. */
enum { FUZZ_STEPS = 120, FUZZ_ELEMENTS = 48 };

static bool fuzz_overlap(const struct plan_step *x, struct plan_ref x_ref, const struct plan_step *y,
                         struct plan_ref y_ref)
{
    return x_ref.buffer == y_ref.buffer && x_ref.at < y_ref.at + y->numel && y_ref.at < x_ref.at + x->numel;
}

static bool fuzz_conflict(const struct plan_step *x, const struct plan_step *y)
{
    bool x_writes = x->kind != PLAN_SEND, y_writes = y->kind != PLAN_SEND;
    bool x_reads = x->kind != PLAN_RECV, y_reads = y->kind != PLAN_RECV;
    return (x_writes && y_writes && fuzz_overlap(x, x->dst, y, y->dst)) ||
           (x_writes && y_reads && fuzz_overlap(x, x->dst, y, y->a)) ||
           (x_reads && y_writes && fuzz_overlap(x, x->a, y, y->dst));
}

static struct plan_ref fuzz_ref(int64_t *numel)
{
    int64_t at = rand() % FUZZ_ELEMENTS;
    *numel = 1 + rand() % (rand() % 4 ? 6 : FUZZ_ELEMENTS);
    return plan_at(rand() % 3, at);
}

static void fuzz_step(struct plan *plan)
{
    int64_t n, m;
    struct plan_ref a = fuzz_ref(&n), b = fuzz_ref(&m);
    if (rand() % 3 == 0)
        plan_send(plan, 1, a, n);
    else if (rand() % 2 == 0)
        plan_recv(plan, 1, a, n);
    else
        plan_copy(plan, a, b, n);
}

static void test_random_steps(void **state)
{
    (void)state;
    static bool path[FUZZ_STEPS][FUZZ_STEPS];
    for (int seed = 0; seed < 300; seed++) {
        srand((unsigned)seed);
        struct plan *plan = new_plan();
        while (plan->n_steps < FUZZ_STEPS) fuzz_step(plan);
        assert_int_equal(plan_finish(plan), 0);
        memset(path, 0, sizeof path);
        for (int after = 0; after < FUZZ_STEPS; after++) {
            for (int before = after; before-- > 0;) {
                if (!follows(plan, (uint32_t)before, (uint32_t)after)) continue;
                assert_true(fuzz_conflict(&plan->steps[before], &plan->steps[after]));
                path[after][before] = true;
                for (int i = 0; i < before; i++) path[after][i] |= path[before][i];
            }
            for (int before = 0; before < after; before++)
                if (fuzz_conflict(&plan->steps[before], &plan->steps[after])) assert_true(path[after][before]);
        }
        plan_free(plan);
    }
}

/* ---- buffers and messages ------------------------------------------------------------------------------------ */

static void test_alias(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    plan_alias(plan, PLAN_IN(0), PLAN_OUT(0), 100);
    uint32_t send = plan_send(plan, 1, IN(5), 10);
    uint32_t recv = plan_recv(plan, 1, OUT(110), 10);
    assert_int_equal(plan_copy(plan, OUT(100), IN(0), 10), UINT32_MAX); /* copy onto itself */
    uint32_t copy = plan_copy(plan, OUT(0), IN(0), 10);
    assert_int_equal(plan_finish(plan), 0);
    assert_int_equal(plan->steps[send].a.buffer, PLAN_OUT(0));
    assert_int_equal(plan->steps[send].a.at, 105);
    assert_true(follows(plan, send, recv));
    assert_int_equal(plan->steps[copy].a.at, 100);
    assert_int_equal(plan->n_steps, 3);
    plan_free(plan);
}

static void test_slots(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    uint32_t id[] = {plan_send(plan, 1, IN(0), 1), plan_send(plan, 2, IN(0), 1), plan_send(plan, 1, IN(1), 0),
                     plan_recv(plan, 1, OUT(0), 1), plan_recv_reduce(plan, 1, OUT(1), IN(0), 1)};
    uint32_t slot[] = {0, 0, 1, 0, 1};
    assert_int_equal(plan_finish(plan), 0);
    for (int i = 0; i < 5; i++) assert_int_equal(plan->steps[id[i]].slot, slot[i]);
    plan_free(plan);
}

static void test_empty_steps(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    assert_int_equal(plan_copy(plan, OUT(0), IN(0), 0), UINT32_MAX);
    assert_int_equal(plan_reduce(plan, OUT(0), IN(0), IN(0), 0), UINT32_MAX);
    assert_int_equal(plan_scale(plan, OUT(0), IN(0), 0), UINT32_MAX);
    assert_int_equal(plan_average(plan, OUT(0), IN(0), 0), UINT32_MAX);
    uint32_t recv = plan_recv_reduce(plan, 1, OUT(0), IN(0), 0);
    assert_int_equal(plan_finish(plan), 0);
    assert_int_equal(plan->n_steps, 1);
    assert_int_equal(plan->steps[recv].kind, PLAN_RECV); /* nothing to reduce */
    plan_free(plan);
}

/* Without the backend's help the message is received in the place of the sum. */
static void test_recv_reduce_in_place_of_the_sum(void **state)
{
    (void)state;
    struct plan *plan = plan_new(0, 2, PLAN_NEVER);
    plan_recv_reduce(plan, 1, OUT(0), IN(0), 10);
    plan_recv_reduce(plan, 1, IN(20), IN(10), 10); /* side by side */
    assert_int_equal(plan_finish(plan), 0);
    assert_int_equal(plan->scratch, 0);
    for (uint32_t i = 0; i < plan->n_steps; i += 2) {
        const struct plan_step *recv = &plan->steps[i], *reduce = &plan->steps[i + 1];
        assert_int_equal(recv->kind, PLAN_RECV);
        assert_int_equal(reduce->kind, PLAN_REDUCE);
        assert_memory_equal(&recv->dst, &reduce->dst, sizeof recv->dst);
        assert_memory_equal(&recv->dst, &reduce->b, sizeof recv->dst);
    }
    plan_free(plan);
}

/* If that place is in use, the message goes through scratch, which is reused. */
static void test_recv_reduce_through_scratch(void **state)
{
    (void)state;
    struct plan *plan = plan_new(0, 2, PLAN_NEVER);
    for (int i = 0; i < 100; i++) plan_recv_reduce(plan, 1, IN(10 * i + i % 10), IN(10 * i), 10);
    assert_int_equal(plan_finish(plan), 0);
    assert_int_equal(plan->n_steps, 200);
    assert_true(plan->scratch <= 80);
    assert_true(plan->n_ready > 1 && plan->n_ready <= 8);
    for (uint32_t i = 0; i < plan->n_steps; i++) assert_int_equal(plan->steps[i].kind, i % 2 ? PLAN_REDUCE : PLAN_RECV);
    plan_free(plan);
}

/* A failed plan accepts no more steps, and reports the failure at the end. */
static void test_failure_sticks(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    plan_send(plan, 1, IN(0), 1);
    plan->error = TUTTI_ERR_NO_MEMORY;
    assert_int_equal(plan_send(plan, 1, IN(0), 1), UINT32_MAX);
    assert_int_equal(plan_recv_reduce(plan, 1, OUT(0), IN(0), 1), UINT32_MAX);
    assert_int_equal(plan_copy(plan, OUT(0), IN(0), 1), UINT32_MAX);
    plan_order(plan, 0, 7);
    assert_int_equal(plan_finish(plan), TUTTI_ERR_NO_MEMORY);
    assert_int_equal(plan_finish(plan), TUTTI_ERR_NO_MEMORY);
    plan_free(plan);
}

static void test_print(void **state)
{
    (void)state;
    struct plan *plan = new_plan();
    plan_recv(plan, 1, plan_scratch(plan, 4), 4);
    plan_reduce(plan, OUT(0), IN(2), plan_at(PLAN_SCRATCH, 0), 4);
    plan_send(plan, 3, OUT(0), 4);
    assert_int_equal(plan_finish(plan), 0);
    char text[1024] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    plan_print(plan, out);
    fclose(out);
    plan_free(plan);
    assert_string_equal(text, "plan of rank 0 of 4: 3 steps, 4 elements of scratch\n"
                              "    0 recv        peer 1 slot 0 scratch[0,4) then 1\n"
                              "    1 reduce      out0[0,4) <- in0[2,6) and scratch[0,4) then 2\n"
                              "    2 send        peer 3 slot 0 <- out0[0,4)\n");
}

/* ---- cost ---------------------------------------------------------------------------------------------------- */

/* Builds ten steps, as in a small all-reduce. */
static void build_small(void)
{
    struct plan *plan = plan_new(0, 32, PLAN_ALWAYS);
    struct plan_ref have = IN(0), scratch = plan_scratch(plan, 20);
    for (int i = 0; i < 5; i++) {
        struct plan_ref next = plan_shift(scratch, i % 2 * 10);
        plan_send(plan, 1 << i, have, 10);
        plan_recv_reduce(plan, 1 << i, next, have, 10);
        have = next;
    }
    plan_finish(plan);
    plan_free(plan);
}

static void test_cost(void **state)
{
    (void)state;
    enum { TIMES = 20000 };
    int64_t start = clock_now_ns();
    for (int i = 0; i < TIMES; i++) build_small();
    print_message("a plan of 10 steps: %.0f ns\n", (double)(clock_now_ns() - start) / TIMES);
    struct coll_args args = {.kind = TUTTI_ALL_REDUCE, .rank = 5, .size = 64, .count = 1 << 28, .segment = 1 << 14};
    const struct coll_algorithm *ring = coll_select(&args, &(struct coll_override){.names = "ring"}, NULL);
    assert_non_null(ring);
    for (int64_t most = PLAN_NEVER;; most = PLAN_ALWAYS) {
        start = clock_now_ns();
        struct plan *plan = coll_build(ring, &args, most);
        assert_non_null(plan);
        print_message("a ring of 1 GiB in segments of 64 KiB on 64 ranks: %u steps, %.0f ns each\n", plan->n_steps,
                      (double)(clock_now_ns() - start) / plan->n_steps);
        plan_free(plan);
        if (most == PLAN_ALWAYS) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_after_write),
        cmocka_unit_test(test_write_after_read),
        cmocka_unit_test(test_reduce_in_place),
        cmocka_unit_test(test_one_edge_between_two_steps),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_alias),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_empty_steps),
        cmocka_unit_test(test_recv_reduce_in_place_of_the_sum),
        cmocka_unit_test(test_recv_reduce_through_scratch),
        cmocka_unit_test(test_failure_sticks),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
