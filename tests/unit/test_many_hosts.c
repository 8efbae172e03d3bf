/* Ranks by host: right for small groups, without quadratic work for large ones.  With a million ranks an algorithm of
 * n^2 steps exceeds the test's time limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../backends/tcp/net/hosts.c"
#include "coll/coll.h"

enum { MANY = 1000000, SMALL = 12, ROUNDS = 2000 };

static int first_rank(const int32_t *host, int rank)
{
    int first = 0;
    while (host[first] != host[rank]) first++;
    return first;
}

/* Checks all of coll_hosts: each rank's host has a number, numbers ascend with first ranks, and each host lists its
 * ranks in ascending order. */
static void check_hosts(const int32_t *host, int size, int (*first)(const int32_t *host, int rank))
{
    struct coll_hosts *hosts = coll_hosts_new(host, size);
    int n = 0, least = size, most = 0, listed = 0;
    assert_non_null(hosts);
    for (int i = 0; i < size; i++) {
        int f = first(host, i);
        if (hosts->of[i] != (f == i ? n : hosts->of[f])) fail_msg("rank %d has host %d", i, hosts->of[i]);
        n += f == i;
    }
    assert_int_equal(hosts->n, n);
    assert_int_equal(hosts->begin[0], 0);
    for (int h = 0; h < n; h++) {
        int ranks = hosts->begin[h + 1] - hosts->begin[h];
        for (int i = hosts->begin[h]; i < hosts->begin[h + 1]; i++, listed++) {
            if (hosts->of[hosts->rank[i]] != h) fail_msg("host %d lists rank %d", h, hosts->rank[i]);
            if (i > hosts->begin[h] && hosts->rank[i] <= hosts->rank[i - 1]) fail_msg("host %d is not sorted", h);
        }
        least = ranks < least ? ranks : least;
        most = ranks > most ? ranks : most;
    }
    assert_int_equal(listed, size);
    assert_int_equal(hosts->least, least);
    assert_int_equal(hosts->most, most);
    free(hosts);
}

static void test_small_groups(void **state)
{
    (void)state;
    static const int32_t numbers[] = {0, 1, 2, -1, INT32_MAX, INT32_MIN, 7};
    int32_t host[SMALL];
    srand(1);
    for (int round = 0; round < ROUNDS; round++) {
        int size = 1 + round % SMALL, kinds = 1 + rand() % 7;
        for (int i = 0; i < size; i++) host[i] = numbers[rand() % kinds];
        check_hosts(host, size, first_rank);
    }
}

static int first_of_thousand(const int32_t *host, int rank)
{
    (void)host;
    return rank % 1000;
}

static int first_is_itself(const int32_t *host, int rank)
{
    (void)host;
    return rank;
}

static void test_many_ranks(void **state)
{
    (void)state;
    int32_t *host = malloc(MANY * sizeof *host);
    for (int i = 0; i < MANY; i++) host[i] = i % 1000;
    check_hosts(host, MANY, first_of_thousand);
    for (int i = 0; i < MANY; i++) host[i] = MANY - i;
    check_hosts(host, MANY, first_is_itself);
    free(host);
}

/* Checks n ranks on `hosts` addresses, round robin. */
static void check_addresses(int n, int hosts)
{
    struct wire_address *address = calloc((size_t)n, sizeof *address);
    const struct wire_address **list = malloc((size_t)n * sizeof *list);
    int32_t *first = malloc((size_t)n * sizeof *first);
    for (int i = 0; i < n; i++) {
        uint32_t number = (uint32_t)(hosts - i % hosts);
        memcpy(address[i].ip, &number, sizeof number);
        address[i].family = 4;
        address[i].port = (uint16_t)i; /* tells processes apart, not hosts */
        list[i] = &address[i];
    }
    assert_true(hosts_first_ranks(list, n, first));
    for (int i = 0; i < n; i++)
        if (first[i] != i % hosts) fail_msg("rank %d of %d: first rank %d", i, n, first[i]);
    free(address);
    free(list);
    free(first);
}

static void test_addresses(void **state)
{
    (void)state;
    struct wire_address four = {.family = 4, .ip = {1}}, six = {.family = 6, .ip = {1}};
    const struct wire_address *mixed[] = {&six, &four, &six, &four};
    int32_t first[4];
    assert_true(hosts_first_ranks(mixed, 4, first));
    for (int i = 0; i < 4; i++) assert_int_equal(first[i], i % 2);
    for (int hosts = 1; hosts <= SMALL; hosts++)
        for (int n = hosts; n <= 2 * SMALL; n++) check_addresses(n, hosts);
    check_addresses(MANY, 1000);
    check_addresses(MANY, MANY);
}

/* Ranks with equal host ids share a host, whatever their addresses are.  If one of the ranks does not know its host,
 * addresses decide for all. */
static void test_host_ids(void **state)
{
    (void)state;
    struct wire_address address[] = {
        {.family = 4, .ip = {1}, .host = 9}, {.family = 4, .ip = {2}, .host = UINT64_MAX},
        {.family = 4, .ip = {3}, .host = 9}, {.family = 4, .ip = {2}, .host = 8},
        {.family = 6, .ip = {9}, .host = 8}, {.family = 4, .ip = {1}, .host = UINT64_MAX},
    };
    static const int32_t by_id[] = {0, 1, 0, 3, 3, 1}, by_address[] = {0, 1, 2, 1, 4, 0};
    const struct wire_address *list[6];
    int32_t first[6];
    for (int i = 0; i < 6; i++) list[i] = &address[i];
    assert_true(hosts_first_ranks(list, 6, first));
    assert_memory_equal(first, by_id, sizeof first);
    address[4].host = 0;
    assert_true(hosts_first_ranks(list, 6, first));
    assert_memory_equal(first, by_address, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_groups),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_host_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
