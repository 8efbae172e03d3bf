/* backends/tcp/shm/offers.c: a receiver reads the messages that a peer offers, or takes them through the FIFO. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../backends/tcp/shm/offers.c"

enum { BYTES = 100000, PARTS = 4 };

static int64_t clock_ns;

static int64_t made_up_ns(void)
{
    return clock_ns;
}

static const tutti_host timed_host = {.now_ns = made_up_ns};
static struct shm_peer peers[2] = {{.rank = 7}, {.rank = 8}};
static struct shm shm = {.peer = peers, .n = 2, .config.host = &timed_host};

static void start(void)
{
    clock_ns = 1;
    for (int i = 0; i < 2; i++) {
        free(peers[i].offers);
        peers[i].offers = NULL;
    }
}

/* Moves a message of BYTES in parts, for which one way takes this long. */
static void move(int local_rank, const tutti_request *request, enum shm_offer_way way, int64_t cost_ns)
{
    for (int i = 0; i < PARTS; i++) {
        int64_t begin_ns = shm_offer_begin(&shm, local_rank, request, way);
        clock_ns += cost_ns / PARTS;
        shm_offer_end(&shm, local_rank, way, begin_ns, BYTES / PARTS);
    }
}

/* Takes n messages.  cost_ns: of a copy, and of a read.  Returns how many were read. */
static int take(int n, int local_rank, const int64_t cost_ns[2])
{
    const tutti_request request = {.bytes = BYTES};
    int n_read = 0;
    for (int i = 0; i < n; i++) {
        bool reads = shm_reads_offer(&shm, local_rank, &request);
        move(local_rank, &request, reads ? SHM_OFFER_READ : SHM_OFFER_FIFO, cost_ns[reads]);
        n_read += reads;
    }
    return n_read;
}

/* A read takes the place of two copies. */
static void test_takes_less_work(void **state)
{
    static const int64_t reads_pay[] = {10000, 18000}, copies_pay[] = {10000, 22000};
    (void)state;
    start();
    assert_int_equal(take(4, 0, reads_pay), 0); /* the usual way first */
    assert_true(take(1000, 0, reads_pay) > 900);
    start();
    assert_true(take(1000, 0, copies_pay) < 100);
    start();
}

/* Messages from each peer have a choice of their own. */
static void test_each_peer(void **state)
{
    static const int64_t reads_pay[] = {10000, 10000}, copies_pay[] = {10000, 30000};
    (void)state;
    start();
    take(500, 0, reads_pay);
    take(500, 1, copies_pay);
    assert_true(shm_prefers_reads(&shm, 0));
    assert_false(shm_prefers_reads(&shm, 1));
    start();
}

/* A change of the machine is noticed. */
static void test_changes(void **state)
{
    static const int64_t reads_pay[] = {10000, 15000}, copies_pay[] = {10000, 40000};
    (void)state;
    start();
    take(1000, 0, reads_pay);
    assert_true(shm_prefers_reads(&shm, 0));
    take(1000, 0, copies_pay);
    assert_false(shm_prefers_reads(&shm, 0));
    start();
}

/* Messages may be answered long before they move.  A span without times says nothing, and is made longer.  Times of the
 * other way, whose messages have been answered before, do not count. */
static void test_moves_late(void **state)
{
    static const int64_t cost_ns[] = {10000, 5000};
    const tutti_request request = {.bytes = BYTES};
    (void)state;
    start();
    for (int i = 0; i < 100; i++) assert_false(shm_reads_offer(&shm, 0, &request));
    move(0, &request, SHM_OFFER_READ, 1);
    assert_int_equal(peers[0].offers->measured.times, 0);
    assert_true(take(200, 0, cost_ns) > 100);
    start();
    take(1, 0, cost_ns); /* a span of four, and windows of four that all end with its untimed message */
    for (int window = 0; window < 100; window++) {
        bool reads[4];
        for (int i = 0; i < 4; i++) reads[i] = shm_reads_offer(&shm, 0, &request);
        for (int i = 0; i < 4; i++) move(0, &request, reads[i] ? SHM_OFFER_READ : SHM_OFFER_FIFO, cost_ns[reads[i]]);
    }
    assert_true(shm_prefers_reads(&shm, 0));
    start();
}

/* Data that are reduced on their way have no choice. */
static void test_reduced(void **state)
{
    static const int64_t reads_pay[] = {10000, 10000};
    const tutti_request request = {.bytes = BYTES, .addend = &request};
    (void)state;
    start();
    assert_false(shm_reads_offer(&shm, 0, &request));
    assert_null(peers[0].offers);
    take(500, 0, reads_pay);
    assert_false(shm_reads_offer(&shm, 0, &request));
    while (!peers[0].offers->is_timed) take(1, 0, reads_pay);
    assert_int_equal(shm_offer_begin(&shm, 0, &request, peers[0].offers->measured.way), 0);
    start();
}

/* A faulty peer may offer nothing. */
static void test_no_bytes(void **state)
{
    static const int64_t cost_ns[] = {10000, 10000};
    (void)state;
    start();
    while (peers[0].offers == NULL || !peers[0].offers->is_timed) take(1, 0, cost_ns);
    int times = peers[0].offers->measured.times;
    shm_offer_end(&shm, 0, SHM_OFFER_FIFO, clock_ns, 0);
    assert_int_equal(peers[0].offers->measured.times, times);
    start();
}

static void test_prints(void **state)
{
    static const int64_t cost_ns[] = {4000 * (int64_t)BYTES / MOVE_UNIT, 9000 * (int64_t)BYTES / MOVE_UNIT};
    char text[CHOICE_TEXT] = "";
    (void)state;
    start();
    shm_print_offers(&shm, 0, text, sizeof text);
    assert_string_equal(text, "");
    take(1, 0, cost_ns);
    shm_print_offers(&shm, 0, text, sizeof text);
    assert_string_equal(text, "; not measured for 64 KiB from rank 7 yet");
    take(1000, 0, cost_ns);
    shm_print_offers(&shm, 0, text, sizeof text);
    assert_string_equal(text, "; measured for 64 KiB from rank 7: fifo (both copies) 8.0 us, read 9.0 us");
    start();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_less_work), cmocka_unit_test(test_each_peer), cmocka_unit_test(test_changes),
        cmocka_unit_test(test_moves_late),      cmocka_unit_test(test_reduced),   cmocka_unit_test(test_no_bytes),
        cmocka_unit_test(test_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
