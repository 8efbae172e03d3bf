/* backends/tcp/shm/stream.c: which write has the FIFO, and what remains of a write that ends early.  This rank is both
 * ends, because the ring to its peer is also the ring from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../../backends/tcp/shm/fifo.c"
#include "../../backends/tcp/shm/stream.c"

enum { PEER = 1, WRITES = 2, SENT_MAX = 8, SPAN = 8 << 10, LARGE = SPAN + SPAN / 4, RING = 4 << 10 };

static struct transport_header sent[SENT_MAX];
static int n_sent, dropped;
static struct transport_write writes[WRITES]; /* write i targets memory i */
static struct transport_memory memories[WRITES];
static tutti_request request[WRITES];
static char from[WRITES][LARGE], to[WRITES][LARGE];
static bool write_ended[WRITES], received[WRITES];

/* Defines a function that ignores its parameters and returns 0. */
#define STUB(type, name, ...)                                                                                          \
    type name(__VA_ARGS__)                                                                                             \
    {                                                                                                                  \
        return (type)0;                                                                                                \
    }

/* Stubs ignore their parameters.  NOLINTBEGIN(misc-unused-parameters) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
STUB(bool, shm_ring_doorbell, struct shm *shm, int local_rank)
STUB(void, shm_affinity_restore, struct shm *shm)
STUB(void, shm_affinity_spread, struct shm *shm)
STUB(void, shm_wake_writer, struct shm *shm, int local_rank)
STUB(void, shm_settle_all, struct shm *shm)
STUB(void, shm_copy_non_temporal, void *copy, const void *data, size_t bytes)

void shm_drop(struct shm *shm, int local_rank, const char *why, bool notify)
{
    dropped++;
}

int shm_drop_starved(struct shm *shm, int local_rank)
{
    dropped++;
    return TUTTI_ERR_NO_MEMORY;
}

int shm_send(struct shm *shm, int local_rank, const struct transport_header *header, const void *payload, size_t bytes)
{
    assert_true(n_sent < SENT_MAX);
    assert_int_equal(header->kind, SHM_STREAM);
    sent[n_sent++] = *header;
    return TUTTI_OK;
}

static void on_written(void *user, uint64_t key)
{
    received[key - 1] = true;
}

static void on_write_done(void *user, struct transport_write *write)
{
    write_ended[write - writes] = true;
}
#pragma GCC diagnostic pop
/* NOLINTEND(misc-unused-parameters) */

static int64_t now_ns(void)
{
    return 1;
}

static const tutti_host host = {.abi = TUTTI_BACKEND_ABI, .size = sizeof host, .now_ns = now_ns};
static const struct transport_events events = {.written = on_written, .write_done = on_write_done};

/* ---- a rank ------------------------------------------------------------------------------------------------ */

static int16_t local_rank_of[] = {0, PEER};
static struct shm_peer peers[PEER + 1];
static struct shm shm;

static int open_rank(void **state)
{
    (void)state;
    shm = (struct shm){.config = {.host = &host, .events = &events},
                       .n = 2,
                       .peer = peers,
                       .local_rank_of = local_rank_of,
                       .ring_bytes = RING,
                       .fifo_bytes = SPAN,
                       .polls = 1};
    TAILQ_INIT(&shm.writes);
    TAILQ_INIT(&shm.exposed);
    TAILQ_INIT(&shm.incoming);
    shm.base = calloc(2, sizeof(struct shm_rank));
    struct shm_ring *ring = aligned_alloc(SHM_LINE, sizeof *ring);
    char *areas = malloc(RING + SPAN);
    if (shm.base == NULL || ring == NULL || areas == NULL) return 1;
    memset(ring, 0, sizeof *ring);
    peers[PEER] = (struct shm_peer){.out = ring, .in = ring, .out_bytes = areas, .in_bytes = areas, .out_fifo = SPAN};
    n_sent = dropped = 0;
    for (int i = 0; i < WRITES; i++) {
        memset(from[i], 'a' + i, LARGE);
        memset(to[i], 0, LARGE);
        request[i] = (tutti_request){.data = to[i], .bytes = LARGE};
        memories[i] = (struct transport_memory){.request = &request[i], .key = (uint64_t)i + 1};
        writes[i] = (struct transport_write){.data = from[i], .bytes = LARGE, .key = (uint64_t)i + 1};
        shm_expose(&shm, PEER, &memories[i]);
        write_ended[i] = received[i] = false;
    }
    return 0;
}

static int close_rank(void **state)
{
    (void)state;
    free(shm.base);
    free(peers[PEER].out_bytes);
    free(peers[PEER].out);
    return 0;
}

static bool is_received(int i)
{
    return received[i] && memcmp(from[i], to[i], LARGE) == 0;
}

static void write_both(void)
{
    shm_write(&shm, PEER, &writes[0]);
    shm_write(&shm, PEER, &writes[1]);
}

/* ---- turns of the FIFO ------------------------------------------------------------------------------------- */

static void test_one_write_has_the_fifo(void **state)
{
    (void)state;
    write_both();
    assert_int_equal(n_sent, 1);
    assert_false(copy_in(&shm, &writes[1]));
    shm_stream_begin(&shm, PEER, &sent[0]);
    while (!write_ended[0]) move_all(&shm);
    assert_int_equal(n_sent, 2); /* the second write's turn, although the first has not been read completely */
    assert_int_equal(sent[1].ref, writes[1].key);
    shm_stream_begin(&shm, PEER, &sent[1]);
    while (!write_ended[1] || !received[1]) assert_int_not_equal(move_all(&shm), 0);
    assert_true(is_received(0) && is_received(1));
    assert_int_equal(dropped, 0);
}

/* The write had no turn yet, so nothing is left in the FIFO. */
static void test_a_waiting_write_is_withdrawn(void **state)
{
    (void)state;
    write_both();
    copy_in(&shm, &writes[0]);
    assert_true(shm_unwrite(&shm, &writes[1]));
    assert_int_equal(n_sent, 1);
    shm_stream_begin(&shm, PEER, &sent[0]);
    while (!received[0]) assert_int_not_equal(move_all(&shm), 0);
    assert_true(is_received(0));
}

/* The next write's bytes arrive before the receiver knows that the first write has ended.  They do not belong to the
 * first one. */
static void test_a_running_write_is_withdrawn(void **state)
{
    (void)state;
    write_both();
    shm_stream_begin(&shm, PEER, &sent[0]);
    assert_true(copy_in(&shm, &writes[0]));
    assert_true(copy_out(&shm, &memories[0]));
    assert_int_equal(memories[0].received, SPAN);
    assert_true(shm_unwrite(&shm, &writes[0]));
    assert_false(shm_unwrite(&shm, &writes[0]));
    assert_int_equal(n_sent, 2);
    assert_false(copy_in(&shm, &writes[1]));
    assert_false(copy_out(&shm, &memories[0]));
    assert_false(received[0]);
    shm_conceal(&shm, &memories[0]);
    shm_stream_begin(&shm, PEER, &sent[1]);
    while (!received[1]) assert_int_not_equal(move_all(&shm), 0);
    assert_true(is_received(1));
    assert_false(write_ended[0]);
    assert_int_equal(dropped, 0);
}

/* Nothing is expected for concealed memory, so its bytes notify nobody. */
static void test_memory_is_concealed(void **state)
{
    size_t bytes;
    (void)state;
    shm_write(&shm, PEER, &writes[0]);
    shm_stream_begin(&shm, PEER, &sent[0]);
    copy_in(&shm, &writes[0]);
    assert_non_null(shm_fifo_peek(&shm, PEER, &bytes));
    shm_conceal(&shm, &memories[0]);
    assert_null(shm_fifo_peek(&shm, PEER, &bytes));
}

/* All of the first write is in the FIFO when the next one is announced. */
static void test_the_next_write_is_announced(void **state)
{
    (void)state;
    writes[0].bytes = request[0].bytes = SPAN;
    write_both();
    shm_stream_begin(&shm, PEER, &sent[0]);
    copy_in(&shm, &writes[0]);
    assert_false(received[0]);
    shm_stream_begin(&shm, PEER, &sent[1]);
    assert_true(received[0]);
    assert_int_equal(dropped, 0);
    while (!received[1]) assert_int_not_equal(move_all(&shm), 0);
    assert_true(is_received(1));
}

/* The peer has received an empty write, and leaves before this rank has made progress.  The next write has not been
 * announced, and a write with bytes is not complete. */
static void test_an_empty_write_at_the_end(void **state)
{
    (void)state;
    writes[0].bytes = writes[1].bytes = request[0].bytes = 0;
    write_both();
    shm_stream_begin(&shm, PEER, &sent[0]);
    assert_true(received[0]);
    shm_stream_finish(&shm, PEER);
    assert_true(write_ended[0]);
    assert_false(write_ended[1]);
}

static void test_a_write_with_bytes_at_the_end(void **state)
{
    (void)state;
    shm_write(&shm, PEER, &writes[0]);
    shm_stream_begin(&shm, PEER, &sent[0]);
    copy_in(&shm, &writes[0]);
    shm_stream_finish(&shm, PEER);
    assert_false(write_ended[0]);
    assert_false(received[0]);
}

/* Only a write that has bytes needs memory for the FIFO. */
static void test_no_memory_for_the_fifo(void **state)
{
    (void)state;
    peers[PEER].out_fifo = 0;
    shm.disowned = true; /* as if there were none */
    writes[0].bytes = 0;
    shm_write(&shm, PEER, &writes[0]);
    assert_int_equal(n_sent, 1);
    assert_int_equal(dropped, 0);
    shm_stream_progress(&shm);
    assert_true(write_ended[0]);
    shm_write(&shm, PEER, &writes[1]);
    assert_int_equal(n_sent, 1);
    assert_int_equal(dropped, 1);
}

/* Announcements of a faulty peer: two at a time, other bytes, memory that was not exposed to it. */
static void test_invalid_announcements(void **state)
{
    (void)state;
    shm_write(&shm, PEER, &writes[0]);
    shm_stream_begin(&shm, PEER, &sent[0]);
    struct transport_header header = sent[0];
    header.ref = memories[1].key;
    shm_stream_begin(&shm, PEER, &header);
    assert_int_equal(dropped, 1);
    shm_conceal(&shm, &memories[0]);
    header.bytes--;
    shm_stream_begin(&shm, PEER, &header);
    assert_int_equal(dropped, 2);
    header.bytes++;
    shm_stream_begin(&shm, 0, &header);
    shm_conceal(&shm, &memories[1]);
    shm_stream_begin(&shm, PEER, &header);
    assert_true(TAILQ_EMPTY(&shm.incoming));
    assert_int_equal(dropped, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_rank, close_rank)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_write_has_the_fifo),        TEST(test_a_waiting_write_is_withdrawn),
        TEST(test_a_running_write_is_withdrawn),  TEST(test_memory_is_concealed),
        TEST(test_the_next_write_is_announced),   TEST(test_an_empty_write_at_the_end),
        TEST(test_a_write_with_bytes_at_the_end), TEST(test_invalid_announcements),
        TEST(test_no_memory_for_the_fifo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
