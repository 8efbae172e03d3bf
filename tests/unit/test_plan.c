/* The plan's builder: dependencies, aliases, slots, printing; and how an algorithm is chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
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
    struct plan *plan = plan_new(0, 4, true);
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
    plan_order(plan, UINT32_MAX, send); /* no step: no order */
    plan_order(plan, recv, send);
    plan_order(plan, recv, send);
    assert_int_equal(plan_finish(plan), 0);
    assert_true(follows(plan, recv, send));
    assert_int_equal(plan->steps[send].waits, 1);
    assert_int_equal(plan->n_next, 1);
    plan_free(plan);
}

/* Random steps, held against what their elements say: each conflict has a path, each edge has a conflict. */
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
    assert_int_equal(plan_copy(plan, OUT(100), IN(0), 10), UINT32_MAX); /* onto itself */
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
    assert_int_equal(plan->steps[recv].kind, PLAN_RECV); /* there is nothing to reduce */
    plan_free(plan);
}

/* Without the backend's help a receive goes through scratch, and the scratch is used again. */
static void test_recv_reduce_through_scratch(void **state)
{
    (void)state;
    struct plan *plan = plan_new(0, 2, false);
    for (int i = 0; i < 100; i++) plan_recv_reduce(plan, 1, OUT(10 * i), IN(10 * i), 10);
    assert_int_equal(plan_finish(plan), 0);
    assert_int_equal(plan->n_steps, 200);
    assert_true(plan->scratch <= 80);
    assert_true(plan->n_ready > 1 && plan->n_ready <= 8);
    for (uint32_t i = 0; i < plan->n_steps; i++) assert_int_equal(plan->steps[i].kind, i % 2 ? PLAN_REDUCE : PLAN_RECV);
    plan_free(plan);
}

/* A plan that has failed takes no more steps, and says so at the end. */
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

/* Ten steps as a small all-reduce has them. */
static void build_small(void)
{
    struct plan *plan = plan_new(0, 32, true);
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
    const struct coll_algorithm *ring = coll_select(&args, &(struct coll_wish){.names = "ring"}, NULL);
    assert_non_null(ring);
    for (int recv_reduce = 0; recv_reduce < 2; recv_reduce++) {
        start = clock_now_ns();
        struct plan *plan = coll_build(ring, &args, recv_reduce);
        assert_non_null(plan);
        print_message("a ring of 1 GiB in segments of 64 KiB on 64 ranks: %u steps, %.0f ns each\n", plan->n_steps,
                      (double)(clock_now_ns() - start) / plan->n_steps);
        plan_free(plan);
    }
}

/* ---- choice ---------------------------------------------------------------------------------------------------- */

static struct coll_args some_args(tutti_kind kind, int size, int64_t count)
{
    return (struct coll_args){.kind = kind, .size = size, .count = count, .segment = 1024, .even = true, .element = 4};
}

static void assert_choice(const struct coll_args *args, const char *override, const char *name)
{
    const struct coll_algorithm *chosen = coll_select(args, &(struct coll_wish){.names = override}, NULL);
    assert_non_null(chosen);
    assert_int_equal(chosen->kind, args->kind);
    if (name) assert_string_equal(chosen->name, name);
}

static void assert_refused(const struct coll_args *args, const char *override, const char *sentence)
{
    assert_null(coll_select(args, &(struct coll_wish){.names = override}, NULL));
    if (!strstr(error_text(), sentence)) print_error("got: %s\n", error_text());
    assert_non_null(strstr(error_text(), sentence));
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
    struct coll_link near = {1000, 8192, 0}, far = {1000000, 8192, 0};
    args.link = &near;
    assert_choice(&args, NULL, "ring");
    args.link = &far;
    assert_choice(&args, NULL, "recursive_doubling");
}

/* Measured rows go before the table, names before both; bytes are then as they are, whatever the link. */
static void test_tuned_choice(void **state)
{
    (void)state;
    struct coll_link far = {1000000, 8192, 0};
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 8, 100);
    args.link = &far;
    const struct coll_tuned rows[] = {
        {TUTTI_BROADCAST, INT64_MAX, coll_find(TUTTI_BROADCAST, "chain", 5)},
        {TUTTI_ALL_REDUCE, 399, coll_find(TUTTI_ALL_REDUCE, "ring", 4)},
        {TUTTI_ALL_REDUCE, 400, coll_find(TUTTI_ALL_REDUCE, "reduce_broadcast", 16)},
    };
    struct coll_wish wish = {.tuned = rows, .n_tuned = 3};
    struct coll_reason reason;
    assert_string_equal(coll_select(&args, &wish, &reason)->name, "reduce_broadcast");
    assert_int_equal(reason.by, COLL_BY_TUNING);
    assert_int_equal(reason.bytes, 400);
    args.count++;
    assert_string_equal(coll_select(&args, &wish, &reason)->name, "recursive_doubling");
    assert_int_equal(reason.by, COLL_BY_TABLE);
    args.count = 1;
    wish.names = "all_reduce=rabenseifner";
    assert_string_equal(coll_select(&args, &wish, &reason)->name, "rabenseifner");
    assert_int_equal(reason.by, COLL_BY_NAME);
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

/* Elements that all ranks together send to other hosts. */
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
        args.link = &(struct coll_link){1, 1, 0}; /* everything is large */
        struct plan *plan = coll_build(coll_find(kind, name, strlen(name)), &args, true);
        assert_non_null(plan);
        for (uint32_t i = 0; i < plan->n_steps; i++)
            if (plan->steps[i].kind == PLAN_SEND && hosts->of[plan->steps[i].peer] != hosts->of[rank])
                abroad += plan->steps[i].numel;
        plan_free(plan);
    }
    return abroad;
}

/* What crosses the network is what the hosts would send if each were one rank, however many ranks they have. */
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
        int size = where[i].size, n = 1680; /* which all numbers of ranks, hosts and slices divide */
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

static void test_hosts_choice(void **state)
{
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 4, 100);
    static const int32_t spread[] = {0, 0, 1, 1}, apart[] = {0, 1, 2, 3}, together[] = {0, 0, 0, 0};
    struct coll_reason reason;
    struct coll_hosts *hosts = coll_hosts_new(spread, 4);
    (void)state;
    args.hosts = hosts;
    assert_choice(&args, NULL, "leaders");
    assert_choice(&args, "ring", "ring");
    args.count = 1 << 20;
    assert_string_equal(coll_select(&args, NULL, &reason)->name, "hierarchical");
    assert_int_equal(reason.where, COLL_SPREAD);
    free(hosts);
    args.hosts = hosts = coll_hosts_new(apart, 4);
    assert_choice(&args, NULL, "ring");
    free(hosts);
    args.hosts = hosts = coll_hosts_new(together, 4);
    assert_choice(&args, NULL, "ring");
    free(hosts);
}

/* Where nobody says that the ranks are on one host, root alone does not send it all. */
static void test_together_choice(void **state)
{
    static const int32_t together[] = {5, 5, 5, 5}, apart[] = {0, 1, 2, 3};
    struct coll_args args = some_args(TUTTI_BROADCAST, 4, 64 * 1024);
    struct coll_reason reason;
    struct coll_hosts *hosts = coll_hosts_new(together, 4);
    (void)state;
    assert_choice(&args, NULL, "binomial");
    args.hosts = hosts;
    assert_string_equal(coll_select(&args, NULL, &reason)->name, "linear");
    assert_int_equal(reason.where, COLL_TOGETHER);
    free(hosts);
    args.hosts = hosts = coll_hosts_new(apart, 4);
    assert_choice(&args, NULL, "binomial");
    free(hosts);
}

static void test_segment(void **state)
{
    struct coll_link link = {1000, 8192, 1024};
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 4, 1 << 20);
    (void)state;
    assert_int_equal(coll_segment(&args), INT64_MAX); /* no link says that messages should be cut */
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

/* The steps of one kind, and the longest of them, in rank's plan of a linear gather to rank 0. */
static int gather_steps(int rank, bool is_part, enum plan_step_kind kind, int64_t *longest)
{
    int64_t counts[3] = {5000, 5000, 5000}, at[3] = {0, 5000, 10000};
    struct coll_args args = some_args(TUTTI_GATHER, 3, 5000);
    int steps = 0;
    args.rank = rank;
    args.is_part = is_part;
    if (rank == 0) args.out = (struct coll_blocks){false, counts, at};
    struct plan *plan = coll_build(coll_find(TUTTI_GATHER, "linear", 6), &args, false);
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

/* Segments are of 1024 elements here. */
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
    assert_choice(&args, "bruck", NULL); /* not for this kind */
    assert_choice(&args, "", NULL);
}

static void test_override_errors(void **state)
{
    (void)state;
    struct coll_args args = some_args(TUTTI_ALL_REDUCE, 8, 10);
    assert_refused(&args, "rings", "TUTTI_ALGO: no algorithm \"rings\"; there are: recursive_doubling, ring,");
    assert_refused(&args, "all_reduce=bruck",
                   "TUTTI_ALGO: all_reduce has no algorithm \"bruck\"; there are: recursive_doubling, ring, "
                   "rabenseifner, reduce_broadcast, hierarchical, leaders");
    assert_refused(&args, "all_reduce=ring,broadcast=", "broadcast has no algorithm \"\"");
    assert_refused(&args, "allreduce=ring", "TUTTI_ALGO: \"allreduce\" is no collective");
    args = some_args(TUTTI_GATHER, 8, 10);
    assert_choice(&args, "gather=binomial", "binomial");
    args.even = false;
    assert_refused(&args, "gather=binomial", "TUTTI_ALGO: gather=binomial cannot do blocks of differing size");
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
        cmocka_unit_test(test_recv_reduce_through_scratch),
        cmocka_unit_test(test_failure_sticks),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_every_kind_has_a_choice),
        cmocka_unit_test(test_uneven_choice),
        cmocka_unit_test(test_link_moves_the_choice),
        cmocka_unit_test(test_tuned_choice),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_hosts_send_little),
        cmocka_unit_test(test_hosts_choice),
        cmocka_unit_test(test_together_choice),
        cmocka_unit_test(test_segment),
        cmocka_unit_test(test_blocks_go_whole),
        cmocka_unit_test(test_override),
        cmocka_unit_test(test_override_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
