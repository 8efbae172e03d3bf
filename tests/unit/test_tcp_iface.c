/* TUTTI_IFACE: which interfaces a value chooses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../../backends/tcp/net/iface.c"

enum { MOST = 4 };

static struct iface_list list;

static void add(const char *name, const char *text, int bits, bool is_loopback)
{
    struct iface *iface = &list.at[list.n++];
    *iface = (struct iface){.bits = bits, .is_loopback = is_loopback};
    snprintf(iface->name, sizeof iface->name, "%s", name);
    snprintf(iface->text, sizeof iface->text, "%s", text);
    iface->family = strchr(text, ':') != NULL ? 6 : 4;
    assert_int_equal(inet_pton(iface->family == 4 ? AF_INET : AF_INET6, text, iface->ip), 1);
}

/* IPv6 addresses come first in places, because the order must not matter. */
static int make_list(void **state)
{
    (void)state;
    list.n = 0;
    add("lo", "127.0.0.1", 8, true);
    add("lo", "::1", 128, true);
    add("docker0", "172.17.0.1", 16, false);
    add("eth0", "fd00::1", 64, false);
    add("eth0", "10.0.0.1", 24, false);
    add("eth1", "10.1.0.1", 24, false);
    add("eth1", "fd01::1", 64, false);
    add("eth10", "10.10.0.1", 24, false);
    add("six", "fd06::1", 64, false);
    add("ib0", "10.2.0.1", 16, false);
    return 0;
}

/* Returns the addresses that a value chooses, after the number of matches, or "?" and the unknown item. */
static const char *include(const char *wanted)
{
    static char text[512];
    const struct iface *chosen[MOST];
    const char *unknown = NULL;
    int length = 0, n = iface_include(&list, wanted, chosen, MOST, &unknown, &length);
    int used = n > 0 ? snprintf(text, sizeof text, "%d", n) : snprintf(text, sizeof text, "?%.*s", length, unknown);
    for (int i = 0; i < n && i < MOST; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %s", chosen[i]->text);
    return text;
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(include("eth0"), "1 10.0.0.1");
    assert_string_equal(include("lo"), "1 127.0.0.1");
    assert_string_equal(include("six"), "1 fd06::1");
    assert_string_equal(include("ib0,eth0"), "2 10.2.0.1 10.0.0.1");
    assert_string_equal(include("eth1,eth1,ib0,eth1"), "2 10.1.0.1 10.2.0.1");
    assert_string_equal(include("eth0,eth1,ib0,eth10,docker0"), "5 10.0.0.1 10.1.0.1 10.2.0.1 10.10.0.1");
}

/* A name that exists is not a prefix: eth1 is not eth10. */
static void test_prefixes(void **state)
{
    (void)state;
    assert_string_equal(include("eth1"), "1 10.1.0.1");
    assert_string_equal(include("=eth1"), "1 10.1.0.1");
    assert_string_equal(include("eth"), "3 10.0.0.1 10.1.0.1 10.10.0.1");
    assert_string_equal(include("ib0,eth"), "4 10.2.0.1 10.0.0.1 10.1.0.1 10.10.0.1");
    assert_string_equal(include("eth1,eth"), "3 10.1.0.1 10.0.0.1 10.10.0.1");
    assert_string_equal(include("dock"), "1 172.17.0.1");
    assert_string_equal(include("=eth"), "?=eth");
}

static void test_networks(void **state)
{
    (void)state;
    assert_string_equal(include("10.0.0.0/8"), "1 10.0.0.1");
    assert_string_equal(include("10.1.0.0/16,10.0.0.0/16"), "2 10.1.0.1 10.0.0.1");
    assert_string_equal(include("10.2.0.1"), "1 10.2.0.1");
    assert_string_equal(include("fd01::/64"), "1 fd01::1");
    assert_string_equal(include("fd01::/64,eth0"), "2 fd01::1 fd00::1");
    assert_string_equal(include("0.0.0.0/0"), "1 172.17.0.1");
    assert_string_equal(include("10.0.0.0/33"), "?10.0.0.0/33");
    assert_string_equal(include("10.0.0.0/"), "?10.0.0.0/");
    assert_string_equal(include("192.168.0.0/16"), "?192.168.0.0/16");
}

/* The first item decides the IP version. */
static void test_unknown(void **state)
{
    (void)state;
    assert_string_equal(include("eth9"), "?eth9");
    assert_string_equal(include("eth0,eth9,ib0"), "?eth9");
    assert_string_equal(include("eth0,six"), "?six");
    assert_string_equal(include("six,ib0"), "?ib0");
    assert_string_equal(include(""), "?");
    assert_string_equal(include("eth0,"), "?");
    assert_string_equal(include("="), "?=");
    assert_string_equal(include("eth0;eth1"), "?eth0;eth1");
}

static const char *exclude(const char *unwanted)
{
    static char text[512];
    const struct iface *left[IFACE_LIST_MAX];
    iface_exclude(&list, unwanted);
    for (int i = 0; i < list.n; i++) left[i] = &list.at[i];
    iface_print(left, list.n, text, sizeof text);
    make_list(NULL);
    return text;
}

static void test_exclusion(void **state)
{
    (void)state;
    assert_string_equal(exclude("lo,docker,fd00::/8"), "eth0 10.0.0.1, eth1 10.1.0.1, eth10 10.10.0.1, ib0 10.2.0.1");
    assert_string_equal(exclude("lo,docker,six,ib,eth1"), "eth0 fd00::1, eth0 10.0.0.1");
    assert_string_equal(exclude("lo,docker,six,ib,=eth1"), "eth0 fd00::1, eth0 10.0.0.1, eth10 10.10.0.1");
    assert_string_equal(exclude("10.0.0.0/8,172.17.0.1,lo,six,eth"), "");
    assert_string_equal(exclude("lo,docker,eth,ib,six"), "");
    assert_string_equal(exclude("lo,docker,eth,ib,"), "six fd06::1");
}

/* The others follow the first one: each interface once, without loopback, all of one IP version. */
static void test_others(void **state)
{
    (void)state;
    const struct iface *chosen[MOST] = {&list.at[9]};
    assert_int_equal(iface_append_others(&list, chosen, MOST), 5);
    assert_string_equal(chosen[1]->name, "docker0");
    assert_string_equal(chosen[2]->text, "10.0.0.1");
    assert_string_equal(chosen[3]->name, "eth1");
    chosen[0] = &list.at[8];
    assert_int_equal(iface_append_others(&list, chosen, MOST), 3);
    assert_string_equal(chosen[2]->text, "fd01::1");
    assert_string_equal(iface_best(&list, true)->name, "docker0");
    list.n = 2;
    assert_null(iface_best(&list, false));
    assert_string_equal(iface_best(&list, true)->text, "127.0.0.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_names, make_list),     cmocka_unit_test_setup(test_prefixes, make_list),
        cmocka_unit_test_setup(test_networks, make_list),  cmocka_unit_test_setup(test_unknown, make_list),
        cmocka_unit_test_setup(test_exclusion, make_list), cmocka_unit_test_setup(test_others, make_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
