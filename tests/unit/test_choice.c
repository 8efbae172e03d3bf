/* How an algorithm is chosen: by size, ranks, link, hosts and TUTTI_ALGO. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "coll/cost.h"
#include "coll/override.h"

static struct coll_args some_args(tutti_kind kind, int size, int64_t count)
{
    return (struct coll_args){.kind = kind, .size = size, .count = count, .segment = 1024, .even = true, .element = 4};
}

static void assert_choice(const struct coll_args *args, const char *override, const char *name)
{
    const struct coll_algorithm *chosen = coll_select(args, &(struct coll_override){.names = override}, NULL);
    assert_non_null(chosen);
    assert_int_equal(chosen->kind, args->kind);
    if (name) assert_string_equal(chosen->name, name);
}

static void assert_refused(const struct coll_args *args, const char *override, const char *part)
{
    assert_null(coll_select(args, &(struct coll_override){.names = override}, NULL));
    if (!strstr(error_text(), part)) print_error("got: %s\n", error_text());
    assert_non_null(strstr(error_text(), part));
}

static void test_every_kind_has_a_choice(void **state)
{
    (void)state;
    for (int kind = TUTTI_BROADCAST; kind <= TUTTI_BARRIER; kind++) {
        for (int size = 1; size < 3000; size = size * 3 + 1) {
            for (int64_t count = 0; count < INT64_MAX / 64; count = count * 64 + 1) {
                struct coll_args args = some_args((tutti_kind)kind, size, count);
                assert_choice(&args, NULL, NULL);
            }
        }
    }
}

static void test_uneven_choice(void **state)
{
    (void)state;
    int64_t counts[64] = {0};
    for (int kind = TUTTI_ALL_GATHER; kind <= TUTTI_ALL_TO_ALL; kind++) {
        struct coll_args args = some_args((tutti_kind)kind, 64, 1);
        args.even = false;
        args.in = args.out = (struct coll_blocks){true, counts, NULL};
        const struct coll_algorithm *chosen = coll_select(&args, NULL, NULL);
        assert_non_null(chosen);
        assert_true(chosen->uneven);
    }
}

static void test_link_moves_the_choice(void **state)
{
    (void)state;
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 2, 64 * 1024);
    struct coll_link near = {.latency_ns = 1000, .bytes_per_us = 8192};
    struct coll_link far = {.latency_ns = 1000000, .bytes_per_us = 8192};
    args.link = &near;
    args.segment = coll_segment(&args);
    assert_choice(&args, NULL, "ring");
    args.link = &far;
    assert_choice(&args, NULL, "recursive_doubling");
}

/* Measured rows precede estimates, and names precede both.  Their sizes are absolute, whatever the link. */
static void test_tuned_choice(void **state)
{
    (void)state;
    struct coll_link far = {.latency_ns = 1000000, .bytes_per_us = 8192};
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 8, 100);
    args.link = &far;
    const struct coll_tuned rows[] = {
        {TUTTI_BROADCAST, INT64_MAX, coll_find(TUTTI_BROADCAST, "chain", 5)},
        {TUTTI_ALL_REDUCE, 399, coll_find(TUTTI_ALL_REDUCE, "ring", 4)},
        {TUTTI_ALL_REDUCE, 400, coll_find(TUTTI_ALL_REDUCE, "reduce_broadcast", 16)},
    };
    struct coll_override override = {.tuned = rows, .n_tuned = 3};
    struct coll_reason reason;
    assert_string_equal(coll_select(&args, &override, &reason)->name, "reduce_broadcast");
    assert_int_equal(reason.by, COLL_BY_TUNING);
    assert_int_equal(reason.max_bytes, 400);
    args.count++;
    assert_string_equal(coll_select(&args, &override, &reason)->name, "recursive_multiplying");
    assert_int_equal(reason.by, COLL_BY_COST);
    args.count = 1;
    override.names = "all_reduce=rabenseifner";
    assert_string_equal(coll_select(&args, &override, &reason)->name, "rabenseifner");
    assert_int_equal(reason.by, COLL_BY_NAME);
}

/* Names and measured rows become a backend's rows: its own paths, and plans. */
static void test_rows_for_a_backend(void **state)
{
    int mine, others;
    const struct coll_path paths[] = {{{.kind = TUTTI_ALL_REDUCE, .name = "direct"}, 7, &mine},
                                      {{.kind = TUTTI_BROADCAST, .name = "direct"}, 8, &mine},
                                      {{.kind = TUTTI_REDUCE, .name = "native"}, 9, &others},
                                      {{.kind = TUTTI_BARRIER, .name = NULL}, 0, NULL}};
    const struct coll_tuned tuned[] = {{TUTTI_REDUCE, 100, &paths[2].algorithm},
                                       {TUTTI_BROADCAST, 200, &paths[1].algorithm},
                                       {TUTTI_BROADCAST, INT64_MAX, coll_find(TUTTI_BROADCAST, "chain", 5)}};
    struct coll_override override = {"all_reduce=direct,barrier=tree", tuned, 3, paths};
    tutti_path_row rows[TUTTI_KIND_COUNT + 3];
    (void)state;
    assert_in_range(override_rows_max(&override), 4, sizeof rows / sizeof *rows);
    int n = override_rows(&override, &mine, rows);
    assert_int_equal(n, 4);
    assert_int_equal(tutti_path_find(rows, n, TUTTI_ALL_REDUCE, INT64_MAX)->path, 7);
    assert_int_equal(tutti_path_find(rows, n, TUTTI_BARRIER, 0)->path, TUTTI_PATH_PLAN);
    assert_int_equal(tutti_path_find(rows, n, TUTTI_BROADCAST, 200)->path, 8);
    assert_int_equal(tutti_path_find(rows, n, TUTTI_BROADCAST, 201)->path, TUTTI_PATH_PLAN);
    assert_null(tutti_path_find(rows, n, TUTTI_REDUCE, 1)); /* belongs to another backend */
    assert_null(tutti_path_find(rows, n, TUTTI_GATHER, 1)); /* neither a name nor a row */
    assert_int_equal(override_rows(&override, &others, rows), 3);
    override.names = "all_reduce=dirct"; /* an unknown name is left to the selection of plans, which refuses it */
    n = override_rows(&override, &mine, rows);
    assert_int_equal(tutti_path_find(rows, n, TUTTI_GATHER, 1)->path, TUTTI_PATH_PLAN);
    struct coll_args args = some_args(TUTTI_GATHER, 4, 100);
    assert_null(coll_select(&args, &override, NULL));
    assert_non_null(strstr(error_text(), "TUTTI_ALGO: all_reduce has no algorithm \"dirct\"; use one of: "));
    assert_non_null(strstr(error_text(), ", direct"));
    override.names = "gather=linear,direct"; /* all algorithms with such a path */
    n = override_rows(&override, &mine, rows);
    assert_int_equal(tutti_path_find(rows, n, TUTTI_BROADCAST, INT64_MAX)->path, 8);
    assert_string_equal(coll_select(&args, &override, NULL)->name, "linear");
    args.kind = TUTTI_ALL_REDUCE; /* a plan by its cost, because the backend has refused the path */
    assert_non_null(coll_select(&args, &override, NULL)->build);
}

static void test_hosts(void **state)
{
    (void)state;
    const int32_t number[] = {7, 3, 7, 9, 3, 7};
    struct coll_hosts *hosts = coll_hosts_new(number, 6);
    assert_non_null(hosts);
    assert_int_equal(hosts->n, 3);
    assert_int_equal(hosts->least, 1);
    assert_int_equal(hosts->most, 3);
    assert_memory_equal(hosts->of, ((int[]){0, 1, 0, 2, 1, 0}), 6 * sizeof(int));
    assert_memory_equal(hosts->begin, ((int[]){0, 3, 5, 6}), 4 * sizeof(int));
    assert_memory_equal(hosts->rank, ((int[]){0, 2, 5, 1, 4, 3}), 6 * sizeof(int));
    free(hosts);
}

/* ---- hosts ----------------------------------------------------------------------------------------------------- */

/* Returns the number of elements that all ranks together send to other hosts. */
static int64_t sent_abroad(tutti_kind kind, const char *name, const struct coll_hosts *hosts, int size, int64_t count)
{
    int64_t abroad = 0;
    int64_t counts[16], at[16];
    for (int rank = 0; rank < size; rank++) {
        struct coll_args args = some_args(kind, size, count);
        for (int i = 0; i < size; i++) counts[i] = count, at[i] = i * count;
        args.rank = rank;
        args.hosts = hosts;
        args.in = args.out = (struct coll_blocks){false, counts, at};
        args.link = &(struct coll_link){.latency_ns = 1, .bytes_per_us = 1}; /* every message counts as large */
        struct plan *plan = coll_build(coll_find(kind, name, strlen(name)), &args, PLAN_ALWAYS);
        assert_non_null(plan);
        for (uint32_t i = 0; i < plan->n_steps; i++)
            if (plan->steps[i].kind == PLAN_SEND && hosts->of[plan->steps[i].peer] != hosts->of[rank])
                abroad += plan->steps[i].numel;
        plan_free(plan);
    }
    return abroad;
}

/* The network carries as much as if each host were one rank, however many ranks it has. */
static void test_hosts_send_little(void **state)
{
    static const struct {
        int size;
        int32_t host[16];
    } where[] = {
        {4, {0, 0, 1, 1}},
        {4, {0, 0, 0, 1}},
        {4, {0, 1, 0, 1}},
        {9, {0, 1, 2, 0, 1, 2, 0, 1, 2}},
        {8, {2, 2, 1, 1, 1, 2, 0, 0}},
    };
    static const char *const names[] = {"hierarchical", "leaders"};
    (void)state;
    for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
        struct coll_hosts *hosts = coll_hosts_new(where[i].host, where[i].size);
        int size = where[i].size, n = 1680; /* divisible by all numbers of ranks, hosts and slices */
        assert_non_null(hosts);
        for (int k = 0; k < 2; k++) {
            const char *name = names[k];
            int64_t others = hosts->n - 1;
            assert_int_equal(sent_abroad(TUTTI_ALL_REDUCE, name, hosts, size, n), 2 * others * n);
            assert_int_equal(sent_abroad(TUTTI_BROADCAST, name, hosts, size, n), others * n);
            assert_int_equal(sent_abroad(TUTTI_REDUCE, name, hosts, size, n), others * n);
            assert_int_equal(sent_abroad(TUTTI_ALL_GATHER, name, hosts, size, n), others * size * n);
            assert_int_equal(sent_abroad(TUTTI_REDUCE_SCATTER, name, hosts, size, n), others * size * n);
        }
        assert_true(2 * (hosts->n - 1) * n < sent_abroad(TUTTI_ALL_REDUCE, "ring", hosts, size, n));
        free(hosts);
    }
}

/* Chooses for four ranks on these hosts. */
static void assert_choice_on(const int32_t of[4], struct coll_args *args, const char *name)
{
    struct coll_hosts *hosts = coll_hosts_new(of, 4);
    args->hosts = hosts;
    assert_choice(args, NULL, name);
    free(hosts);
}

static void test_hosts_choice(void **state)
{
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 4, 100);
    static const int32_t turns[] = {0, 1, 0, 1}, apart[] = {0, 1, 2, 3}, together[] = {0, 0, 0, 0};
    struct coll_hosts *hosts = coll_hosts_new(turns, 4);
    (void)state;
    args.hosts = hosts;
    assert_choice(&args, NULL, "hierarchical");
    assert_choice(&args, "ring", "ring");
    args.count = 1 << 20;
    assert_choice(&args, NULL, "hierarchical");
    free(hosts);
    assert_choice_on(apart, &args, "ring");
    assert_choice_on(together, &args, "ring");
}

/* Within a host receivers copy, so the root sends small and medium messages itself.  Between hosts it has one link. */
static void test_together_choice(void **state)
{
    static const int32_t together[] = {5, 5, 5, 5}, apart[] = {0, 1, 2, 3};
    struct coll_args args = some_args(TUTTI_BROADCAST, 4, 8 * 1024);
    (void)state;
    assert_choice(&args, NULL, "double_tree");
    assert_choice_on(together, &args, "linear");
    assert_choice_on(apart, &args, "double_tree");
}

/* What counts is the size of a rank's part, not that of the whole: many ranks have little to send each. */
static void test_ranks_move_the_choice(void **state)
{
    struct coll_link link = {.latency_ns = 7000, .bytes_per_us = 2500, .segment_bytes = 256 << 10};
    struct coll_args args = some_args(TUTTI_ALL_GATHER, 4, (1 << 20) / 4 / 4);
    (void)state;
    args.link = &link;
    assert_choice(&args, NULL, "ring");
    args.size = 256;
    args.count = (1 << 20) / 4 / 256;
    assert_choice(&args, NULL, "bruck");
    args = some_args(TUTTI_ALL_REDUCE, 8192, (64 << 20) / 4);
    args.link = &link;
    args.segment = coll_segment(&args);
    assert_choice(&args, NULL, "rabenseifner");
}

/* The estimates of all candidates explain the choice. */
static void test_estimates(void **state)
{
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 8, 1024);
    struct coll_reason reason;
    const struct coll_algorithm *chosen = coll_select(&args, NULL, &reason), *next;
    (void)state;
    assert_int_equal(reason.by, COLL_BY_COST);
    for (int i = 0; (next = coll_nth(TUTTI_ALL_REDUCE, i)) != NULL; i++) {
        assert_true(reason.estimate[i] == cost_estimate(next, &args));
        assert_true(reason.estimate[i] > 0 && cost_estimate(chosen, &args) <= reason.estimate[i]);
    }
    /* without hosts there are no leaders */
    assert_true(isinf(cost_estimate(coll_find(TUTTI_ALL_REDUCE, "leaders", 7), &args)));
}

/* The list of choices has room for all algorithms of a kind. */
static void test_room_for_estimates(void **state)
{
    (void)state;
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++) assert_null(coll_nth((tutti_kind)kind, COLL_CHOICES));
}

static void test_segment(void **state)
{
    struct coll_link link = {.latency_ns = 1000, .bytes_per_us = 8192, .segment_bytes = 1024};
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 4, 1 << 20);
    (void)state;
    assert_int_equal(coll_segment(&args), INT64_MAX); /* without a link no message is cut */
    args.link = &link;
    assert_int_equal(coll_segment(&args), 512);
    args.count = 16 * 4 * 256;
    assert_int_equal(coll_segment(&args), 512);
    args.count--;
    assert_int_equal(coll_segment(&args), 256);
    args.element = 4096;
    args.count = 1;
    assert_int_equal(coll_segment(&args), 1);
}

/* Counts the steps of one kind, and finds the longest, in rank's plan of a linear gather to rank 0. */
static int gather_steps(int rank, bool is_part, enum plan_step_kind kind, int64_t *longest)
{
    int64_t counts[3] = {5000, 5000, 5000}, at[3] = {0, 5000, 10000};
    struct coll_args args = some_args(TUTTI_GATHER, 3, 5000);
    int steps = 0;
    args.rank = rank;
    args.is_part = is_part;
    if (rank == 0) args.out = (struct coll_blocks){false, counts, at};
    struct plan *plan = coll_build(coll_find(TUTTI_GATHER, "linear", 6), &args, PLAN_NEVER);
    assert_non_null(plan);
    *longest = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].kind != kind) continue;
        steps++;
        if (plan->steps[i].numel > *longest) *longest = plan->steps[i].numel;
    }
    plan_free(plan);
    return steps;
}

/* Segments have 1024 elements here. */
static void test_blocks_go_whole(void **state)
{
    int64_t longest;
    (void)state;
    assert_int_equal(gather_steps(1, false, PLAN_SEND, &longest), 1);
    assert_int_equal(longest, 5000);
    assert_int_equal(gather_steps(0, false, PLAN_RECV, &longest), 2);
    assert_int_equal(longest, 5000);
    assert_int_equal(gather_steps(0, false, PLAN_COPY, &longest), 5);
    assert_int_equal(longest, 1024);
    assert_int_equal(gather_steps(1, true, PLAN_SEND, &longest), 5);
    assert_int_equal(gather_steps(0, true, PLAN_RECV, &longest), 10);
}

static void test_override(void **state)
{
    (void)state;
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 8, 10);
    assert_choice(&args, "ring", "ring");
    assert_choice(&args, "all_reduce=ring,broadcast=chain", "ring");
    assert_choice(&args, "broadcast=chain,all_reduce=rabenseifner", "rabenseifner");
    assert_choice(&args, "broadcast=chain", NULL);
    assert_choice(&args, "bruck", NULL); /* not an algorithm of this kind */
    assert_choice(&args, "", NULL);
}

static void test_override_errors(void **state)
{
    (void)state;
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 8, 10);
    assert_refused(&args, "rings", "TUTTI_ALGO: no algorithm \"rings\"; use one of: recursive_doubling, ");
    assert_refused(&args, "rings", ", tree"); /* although fixed_tree is listed before it */
    assert_refused(&args, "all_reduce=bruck",
                   "TUTTI_ALGO: all_reduce has no algorithm \"bruck\"; use one of: recursive_doubling, "
                   "recursive_multiplying, ring, rabenseifner, circulant, reduce_broadcast, hierarchical, leaders");
    assert_refused(&args, "all_reduce=ring,broadcast=", "broadcast has no algorithm \"\"");
    assert_refused(&args, "allreduce=ring", "TUTTI_ALGO: \"allreduce\" is not a collective");
    args = some_args(TUTTI_GATHER, 8, 10);
    assert_choice(&args, "gather=binomial", "binomial");
    args.even = false;
    assert_refused(&args, "gather=binomial",
                   "TUTTI_ALGO: gather=binomial needs blocks of one size; name another algorithm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_has_a_choice),
        cmocka_unit_test(test_uneven_choice),
        cmocka_unit_test(test_link_moves_the_choice),
        cmocka_unit_test(test_tuned_choice),
        cmocka_unit_test(test_rows_for_a_backend),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_hosts_send_little),
        cmocka_unit_test(test_hosts_choice),
        cmocka_unit_test(test_together_choice),
        cmocka_unit_test(test_ranks_move_the_choice),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_room_for_estimates),
        cmocka_unit_test(test_segment),
        cmocka_unit_test(test_blocks_go_whole),
        cmocka_unit_test(test_override),
        cmocka_unit_test(test_override_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
