/* How fast links are: what devices report, rounding, and the text that rank 0 publishes. */
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../backends/tcp/net/speed.c"
#include "coll/cost_phases.h"
#include "group/links.h"
#include "progress/plan_cache.h"
#include "state/group_state.h"

/* ---- devices --------------------------------------------------------------------------------------------------- */

static void test_speed(void **state)
{
    (void)state;
    assert_int_equal(speed_parse("10000\n"), 1250);
    assert_int_equal(speed_parse("100000"), 12500);
    assert_int_equal(speed_parse("10\n"), 1); /* at least 1 */
    assert_int_equal(speed_parse("1\n"), 1);
    static const char *const unknown[] = {
        "-1\n", "", "\n", "0\n", "fast", "10 Gbit/s", "4294967295\n", "1e4\n", "99999999999999999999999\n"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) assert_int_equal(speed_parse(unknown[i]), 0);
    assert_int_equal(speed_of(UINT64_C(400000000000)), 50000);
    assert_int_equal(speed_of(1), 1);
    assert_int_equal(speed_of(0), 0);
    assert_int_equal(speed_of(UINT64_MAX), 0);
}

/* ---- rounding -------------------------------------------------------------------------------------------------- */

static int64_t rounded(int64_t latency_ns)
{
    tutti_link link = {.latency_ns = latency_ns};
    links_round(&link);
    return link.latency_ns;
}

static void test_rounding(void **state)
{
    (void)state;
    assert_int_equal(rounded(0), 0);
    assert_int_equal(rounded(-5), 0);
    assert_int_equal(rounded(1), 1);
    assert_int_equal(rounded(6800), 5793); /* 2^12.5 */
    assert_int_equal(rounded(7500), 8192);
    assert_int_equal(rounded(8192), 8192);
    int64_t last = 0;
    for (int64_t ns = 1; ns < 3000000; ns += ns / 50 + 1) {
        int64_t near = rounded(ns);
        assert_true(near >= last); /* monotonic */
        assert_int_equal(rounded(near), near);
        assert_true((double)near < 1.2 * (double)ns + 1 && (double)near > 0.83 * (double)ns - 1);
        last = near;
    }
    tutti_link link = {INT64_MAX, INT64_MAX, INT64_MAX, TUTTI_LINK_MEASURED, TUTTI_LINK_MEASURED};
    links_round(&link);
    assert_true(link.latency_ns < INT64_C(2000000000) && link.bytes_per_us < INT64_C(200000000));
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static const tutti_backend fast = {TUTTI_BACKEND_HEADER, .name = "fast", .latency_ns = 100, .segment_bytes = 4096};
static const tutti_backend other = {TUTTI_BACKEND_HEADER, .name = "other", .latency_ns = 1500, .bytes_per_us = 8192};

static void open_group(struct tutti_group *group)
{
    *group = (struct tutti_group){.root = group, .n_entries = {2, 1}};
    group->entries[0][0].backend = group->entries[1][0].backend = &fast; /* one backend serves both devices */
    group->entries[0][1].backend = &other;
}

static void test_exchange(void **state)
{
    static struct tutti_group first, second;
    char text[LINKS_TEXT_MAX];
    (void)state;
    open_group(&first);
    open_group(&second);
    assert_int_equal(links_print(&first, text), 0); /* nothing is known */
    assert_string_equal(links_read(&second, text), "");
    tutti_links links = {.size = sizeof links,
                         .between = {8192, 1024, 2896, TUTTI_LINK_MEASURED, TUTTI_LINK_INTERFACE},
                         .within = {9000, 4000, 2500, TUTTI_LINK_ASSUMED, TUTTI_LINK_ASSUMED},
                         .cores = 2};
    links_round(&links.within);
    first.entries[0][0].links = first.entries[1][0].links = links;
    size_t used = links_print(&first, text);
    assert_int_equal(used, strlen(text));
    assert_string_equal(text, "link fast 8192 1024 2896 2 1 8192 4096 2896 0 0 2\n");
    strcpy(text + used, "tutti tuning 1\n");
    assert_string_equal(links_read(&second, text), "tutti tuning 1\n");
    for (int device = 0; device < 2; device++)
        assert_memory_equal(&second.entries[device][0].links, &links, sizeof links);
    struct coll_link link = plan_cache_link(&second.entries[0][0]);
    assert_int_equal(link.latency_ns, 8192);
    assert_int_equal(link.overhead_ns, 1024);
    assert_int_equal(link.local_bytes_per_us, 2896);
    assert_int_equal(link.segment_bytes, 4096);
    assert_int_equal(link.host_cores, 2);
}

static void test_malformed(void **state)
{
    static const char *const lines[] = {"link \n",
                                        "link fast\n",
                                        "link fast 1 2 3 0 0\n",
                                        "link fast 1 2 3 0 0 1 2 3 0 0\n",
                                        "link fast 1 2 3 0 0 1 2 3 0 0 4",
                                        "link fast 1 2 3 0 0 1 2 3 0 0 0 4\n",
                                        "link fast 1 2 3 0 9 1 2 3 0 0 4\n",
                                        "link fast 1 2 3 -1 0 1 2 3 0 0 4\n",
                                        "link fast -1 2 3 0 0 1 2 3 0 0 4\n",
                                        "link fast 1 2 999999999999 0 0 1 2 3 0 0 4\n",
                                        "link fast 1 2 3 0 0 9999999999999999999 2 3 0 0 4\n",
                                        "link Fast 1 2 3 0 0 1 2 3 0 0 4\n",
                                        "link fast 1 2 x 0 0 1 2 3 0 0 4\n",
                                        "link fast 1 2 3 0 0 1 2 3 0 0 -1\n",
                                        "link fast 1 2 3 0 0 1 2 3 0 0 1000000\n",
                                        "link fast 1 2 3 0 0 1 2 3 0 0 99999999\n"};
    static struct tutti_group group;
    (void)state;
    open_group(&group);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (links_read(&group, lines[i]) != NULL) fail_msg("accepted: %s", lines[i]);
    assert_string_equal(links_read(&group, "link fast 1 2 3 0 0 1 2 3 0 0 4\nlink none 1 2 3 0 0 1 2 3 0 0 4\nrest"),
                        "rest");
}

/* ---- what the estimates use ------------------------------------------------------------------------------------- */

static void test_assumptions(void **state)
{
    static struct tutti_group group;
    (void)state;
    open_group(&group);
    struct coll_link given = plan_cache_link(&group.entries[0][1]), link = cost_link(&given);
    assert_int_equal(link.latency_ns, 1500); /* the backend's constants */
    assert_int_equal(link.bytes_per_us, 8192);
    assert_int_equal(link.local_latency_ns, 800);
    link = cost_link(NULL);
    assert_int_equal(link.latency_ns, 7000);
    assert_int_equal(link.bytes_per_us, 2500);
    assert_int_equal(link.overhead_ns, 7000 / 6);
    struct coll_link sockets = {.local_latency_ns = 8192, .local_overhead_ns = 4096, .local_bytes_per_us = 2896};
    link = cost_link(&sockets);
    assert_int_equal(link.local_latency_ns, 8192); /* although the assumed network is faster */
    assert_int_equal(link.local_overhead_ns, 4096);
    assert_int_equal(link.local_bytes_per_us, 2896);
}

/* A small broadcast to eight ranks of a host: a tree over sockets, whose sends keep the root busy. */
static void test_within_a_host(void **state)
{
    struct coll_link memory = {0},
                     sockets = {.local_latency_ns = 8192, .local_overhead_ns = 4096, .local_bytes_per_us = 2896};
    struct coll_args args = {.kind = TUTTI_BROADCAST, .size = 8, .count = 8, .element = 1, .segment = 1 << 18};
    int32_t on[8] = {0};
    struct coll_hosts *hosts = coll_hosts_new(on, 8);
    (void)state;
    assert_non_null(hosts);
    args.hosts = hosts;
    args.link = &sockets;
    assert_string_equal(coll_select(&args, NULL, NULL)->name, "binomial");
    args.link = &memory;
    assert_string_equal(coll_select(&args, NULL, NULL)->name, "linear");
    free(hosts);
}

/* Returns the algorithm over sockets for eight ranks of a host with this many cores. */
static const char *choose_on_cores(tutti_kind kind, int64_t bytes, int64_t cores)
{
    struct coll_link link = {.local_latency_ns = 8192, .local_overhead_ns = 4096, .local_bytes_per_us = 2896};
    bool has_blocks = tutti_kind_has_blocks(kind);
    struct coll_args args = {.kind = kind, .size = 8, .count = has_blocks ? bytes / 8 : bytes, .element = 1};
    int32_t on[8] = {0};
    struct coll_hosts *hosts = coll_hosts_new(on, 8);
    assert_non_null(hosts);
    args.even = true;
    args.segment = 1 << 18;
    args.hosts = hosts;
    args.link = &link;
    link.host_cores = cores;
    const char *name = coll_select(&args, NULL, NULL)->name;
    free(hosts);
    return name;
}

/* Where ranks share cores, the work of all of them counts, not only the longest path. */
static void test_shared_cores(void **state)
{
    static const struct {
        tutti_kind kind;
        int64_t bytes;
        const char *own, *shared;
    } cases[] = {{TUTTI_BARRIER, 0, "dissemination", "tree"},
                 {TUTTI_ALL_REDUCE, 64, "recursive_doubling", "reduce_broadcast"},
                 {TUTTI_REDUCE, 1 << 16, "reduce_scatter_gather", "binomial"},
                 {TUTTI_GATHER, 1 << 13, "binomial", "linear"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(choose_on_cores(cases[i].kind, cases[i].bytes, 0), cases[i].own);
        assert_string_equal(choose_on_cores(cases[i].kind, cases[i].bytes, 8), cases[i].own);
        assert_string_equal(choose_on_cores(cases[i].kind, cases[i].bytes, 2), cases[i].shared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_speed),       cmocka_unit_test(test_rounding),
                                       cmocka_unit_test(test_exchange),    cmocka_unit_test(test_malformed),
                                       cmocka_unit_test(test_assumptions), cmocka_unit_test(test_within_a_host),
                                       cmocka_unit_test(test_shared_cores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
