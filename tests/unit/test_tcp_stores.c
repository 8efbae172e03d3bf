/* backends/tcp/shm/stores.c: copies to a peer take non-temporal stores where these are far faster. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "../../backends/tcp/shm/stores.c"

enum { BYTES = 40000 };

/* A clock by which a copy of BYTES takes cost_ns, by its stores. */
static int64_t clock_ns, cost_ns[2];
static size_t copied;
static bool is_running, was_non_temporal;
static int n_non_temporal;

/* Of the first non-temporal copies in a row, whose lines are still in caches. */
static int64_t first_cost_ns;
static int n_first, in_a_row;

static int64_t cost_of_copy(void)
{
    return was_non_temporal && in_a_row <= n_first ? first_cost_ns : cost_ns[was_non_temporal];
}

static int64_t made_up_ns(void)
{
    if (is_running) clock_ns += cost_of_copy() * (int64_t)copied / BYTES;
    is_running = !is_running;
    was_non_temporal = false;
    return clock_ns;
}

void shm_copy_non_temporal(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    was_non_temporal = true;
    n_non_temporal++;
    in_a_row++;
}

static const tutti_host timed_host = {.now_ns = made_up_ns};
static struct shm_peer peers[2];
static struct shm shm = {.peer = peers, .n = 2, .config.host = &timed_host};

static void start(int64_t usual_ns, int64_t non_temporal_ns)
{
    for (int i = 0; i < 2; i++) {
        free(peers[i].stores);
        peers[i].stores = NULL;
    }
    cost_ns[USUAL] = usual_ns;
    cost_ns[NON_TEMPORAL] = non_temporal_ns;
    n_first = 0;
}

/* Copies n times to a peer.  Returns how often the stores were non-temporal. */
static int copy(int n, int local_rank, size_t bytes)
{
    static char from[2 * BYTES], to[2 * BYTES];
    n_non_temporal = 0;
    copied = bytes;
    for (int i = 0; i < n; i++) {
        int before = n_non_temporal;
        from[0] = from[bytes - 1] = (char)i;
        shm_store(&shm, local_rank, to, from, bytes);
        if (n_non_temporal == before) in_a_row = 0;
        assert_int_equal(to[0], (char)i);
        assert_int_equal(to[bytes - 1], (char)i);
    }
    return n_non_temporal;
}

static void test_takes_the_faster(void **state)
{
    (void)state;
    start(9000, 1000);
    assert_in_range(copy(1000, 0, BYTES), 900, 1000);
    start(7000, 1000); /* the peer reads the data from memory */
    assert_in_range(copy(1000, 0, BYTES), SPAN, 5 * SPAN);
}

/* The first pass through the memory does not count. */
static void test_first_copies_of_a_way(void **state)
{
    (void)state;
    start(9000, 1000);
    n_first = 9;
    first_cost_ns = 3000;
    assert_in_range(copy(1000, 0, BYTES), 900, 1000);
    start(9000, 1000);
}

static void test_a_change(void **state)
{
    (void)state;
    start(1000, 2000);
    copy(1000, 0, BYTES);
    cost_ns[USUAL] = 28000;
    copy(2000, 0, BYTES);
    assert_in_range(copy(1000, 0, BYTES), 900, 1000);
    cost_ns[USUAL] = 1000;
    copy(200000, 0, BYTES);
    assert_in_range(copy(1000, 0, BYTES), 0, 5 * SPAN);
}

/* Copies of all sizes count alike. */
static void test_sizes(void **state)
{
    (void)state;
    start(7000, 1000);
    for (int i = 0; i < 1000; i++) {
        copy(1, 0, BYTES / 5);
        copy(1, 0, 2 * BYTES);
    }
    assert_in_range(copy(1000, 0, BYTES), 0, 5 * SPAN);
    start(9000, 1000);
    for (int i = 0; i < 1000; i++) {
        copy(1, 0, 2 * BYTES);
        copy(1, 0, BYTES / 5);
    }
    assert_in_range(copy(1000, 0, BYTES), 900, 1000);
}

static void test_peers_differ(void **state)
{
    int of_peer[2] = {0};
    (void)state;
    start(0, 1000);
    for (int i = 0; i < 4000; i++) {
        cost_ns[USUAL] = i % 2 == 0 ? 1000 : 28000;
        of_peer[i % 2] += copy(1, i % 2, BYTES);
    }
    assert_in_range(of_peer[0], 0, 10 * SPAN);
    assert_in_range(of_peer[1], 1800, 2000);
}

static void test_small_ones_are_not_timed(void **state)
{
    (void)state;
    start(28000, 1000);
    assert_int_equal(copy(1000, 0, SHM_STORES_MIN - 1), 0);
    assert_null(peers[0].stores);
}

static void test_prints(void **state)
{
    char text[CHOICE_TEXT] = "";
    (void)state;
    start(1000 * BYTES / MOVE_UNIT, 2000 * BYTES / MOVE_UNIT);
    shm_print_stores(&shm, 0, text, sizeof text);
    assert_string_equal(text, "");
    copy(1, 0, BYTES);
    shm_print_stores(&shm, 0, text, sizeof text);
    assert_string_equal(text, "; not measured for copies of 64 KiB yet");
    copy(1000, 0, BYTES);
    shm_print_stores(&shm, 0, text, sizeof text);
    assert_string_equal(text,
                        "; measured for copies of 64 KiB: usual stores 1.0 us, non-temporal stores (times 8) 16.0 us");
    start(0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_the_faster),
        cmocka_unit_test(test_first_copies_of_a_way),
        cmocka_unit_test(test_a_change),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_peers_differ),
        cmocka_unit_test(test_prints),
        cmocka_unit_test(test_small_ones_are_not_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
