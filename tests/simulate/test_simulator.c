/* The simulator of networks: its times where they can be computed by hand, the formulas against it, and the choice
 * between algorithms on a small grid.  docs/benchmarks/simulator.md has the large one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "simulate.h"

/* Latency 1 us, 100 ns of overhead, 1 byte per ns, messages above 1 KiB by rendezvous. */
static const struct sim_network plain = {.name = "plain",
                                         .latency = 1000,
                                         .overhead = 100,
                                         .rail = 1000,
                                         .rails = 1,
                                         .local_latency = 50,
                                         .local_overhead = 10,
                                         .local_rank = 2000,
                                         .memory = 4000,
                                         .reduce = 500,
                                         .copy = 1000,
                                         .eager_bytes = 1024,
                                         .segment_bytes = 1 << 20};

static double time_of(const struct sim_network *network, tutti_kind kind, int hosts, int per_host, int64_t bytes,
                      const char *algorithm)
{
    struct sim_case what = {network, kind, hosts, per_host, bytes};
    struct sim_group *group = sim_group_new(&what);
    double time = sim_time(group, coll_find(kind, algorithm, strlen(algorithm)), INT64_MAX);
    sim_group_free(group);
    return time;
}

static void assert_near(double found, double wanted)
{
    if (found < wanted - 1e-6 || found > wanted + 1e-6) fail_msg("found %g ns, wanted %g", found, wanted);
}

static void test_messages(void **state)
{
    struct sim_network busy = plain;
    (void)state;
    /* overhead, latency, 1 ns a byte, overhead */
    assert_near(time_of(&plain, TUTTI_BROADCAST, 2, 1, 8, "binomial"), 100 + 1000 + 8 + 100);
    /* the answer to the posted receive takes one latency, then the data take another */
    assert_near(time_of(&plain, TUTTI_BROADCAST, 2, 1, 4096, "binomial"), 1000 + 1000 + 4096 + 100);
    /* the root's rail sends one message after the other */
    assert_near(time_of(&plain, TUTTI_BROADCAST, 4, 1, 1000, "linear"), 100 + 3 * 1000 + 1000 + 100);
    /* processors that move 0.5 bytes per ns are busy for 2 us at each end, and at both ends at once */
    busy.rank = 500;
    assert_near(time_of(&busy, TUTTI_BROADCAST, 2, 1, 1000, "binomial"), 100 + 1000 + 2000 + 100);
    assert_near(time_of(&busy, TUTTI_BROADCAST, 3, 1, 1000, "linear"), 2 * 100 + 2 * 2000 + 1000 + 100);
}

static void test_hosts(void **state)
{
    struct sim_network two = plain;
    (void)state;
    /* within a host: overhead, latency, overhead, and a copy of half a ns a byte */
    assert_near(time_of(&plain, TUTTI_BROADCAST, 1, 2, 1000, "binomial"), 10 + 50 + 10 + 500);
    /* eight copies at once are limited by the memory, which moves 4 bytes per ns */
    assert_in_range(time_of(&plain, TUTTI_BROADCAST, 1, 9, 1000, "linear"), 8 * 250, 8 * 250 + 200);
    /* two ranks send two blocks each through one rail, or one rail each */
    two.rails = 2;
    double shared = time_of(&plain, TUTTI_ALL_TO_ALL, 2, 2, 4 * 1000, "pairwise");
    double apart = time_of(&two, TUTTI_ALL_TO_ALL, 2, 2, 4 * 1000, "pairwise");
    assert_in_range(shared, 4000 + 1000 + 200, 4000 + 1000 + 1000);
    assert_in_range(apart, 2000 + 1000 + 200, shared - 900);
}

static void test_local_steps(void **state)
{
    (void)state;
    /* the sum of 1000 bytes takes 2 us after the message */
    assert_near(time_of(&plain, TUTTI_REDUCE, 2, 1, 1000, "binomial"), 100 + 1000 + 1000 + 100 + 2000);
}

/* A plan that waits for a message that nobody sends never ends. */
static void test_no_end(void **state)
{
    struct coll_hosts *hosts = coll_hosts_new((int32_t[]){0, 1}, 2);
    struct plan *plans[] = {plan_new(0, 2, PLAN_NEVER), plan_new(1, 2, PLAN_NEVER)};
    (void)state;
    plan_recv(plans[0], 1, plan_at(PLAN_OUT(0), 0), 1);
    for (int i = 0; i < 2; i++) assert_int_equal(plan_finish(plans[i]), 0);
    assert_true(sim_run(&plain, plans, hosts, 2, 4) < 0);
    for (int i = 0; i < 2; i++) plan_free(plans[i]);
    free(hosts);
}

/* ---- formulas and choice ------------------------------------------------------------------------------------------
 */

struct tally {
    int cells, good, timed, near;
    double worst; /* chosen / best */
};

static void add_case(const struct sim_case *what, struct tally *tally)
{
    struct sim_result result;
    sim_judge(what, 20000, false, &result);
    tally->cells++;
    tally->good += result.ratio <= 1.3;
    if (result.ratio > tally->worst) tally->worst = result.ratio;
    for (int i = 0; i < result.n; i++) {
        if (result.time[i] < 0) continue;
        tally->timed++;
        tally->near += result.estimate[i] <= 1.25 * result.time[i] && result.time[i] <= 1.25 * result.estimate[i];
    }
}

static void add_grid(tutti_kind kind, struct tally *tally)
{
    static const int hosts[] = {2, 3, 8, 16}, per_host[] = {1, 4};
    for (const struct sim_network *network = sim_networks; network->name != NULL; network++)
        for (int h = 0; h < 4; h++)
            for (int p = 0; p < 2; p++)
                for (int64_t bytes = 8; bytes <= (int64_t)1 << 30; bytes *= 64) {
                    struct sim_case what = {network, kind, hosts[h], per_host[p], bytes};
                    add_case(&what, tally);
                }
}

/* The aim is 95 % of the cells within 1.3 of the best algorithm. */
static void test_choice(void **state)
{
    struct tally tally = {0};
    (void)state;
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++)
        if (coll_nth((tutti_kind)kind, 0) != NULL) add_grid((tutti_kind)kind, &tally);
    print_message("%d of %d choices within 1.3 of the best, the worst is %.2f; %d of %d formulas within 1.25\n",
                  tally.good, tally.cells, tally.worst, tally.near, tally.timed);
    assert_true(tally.cells > 1500 && tally.timed > 5000);
    assert_true(tally.good >= tally.cells * 0.98);
    assert_true(tally.worst < 2);
    assert_true(tally.near >= tally.timed * 0.85);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_hosts),  cmocka_unit_test(test_local_steps),
        cmocka_unit_test(test_no_end),   cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
