/* backends/tcp/p2p/bulk.c: who has the window, and what is left of a message that ends early.  This rank is both ends:
 * the ring to its peer is the one from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stub.h"

#include "../../backends/tcp/base/cost_model.c"
#include "../../backends/tcp/p2p/bulk.c"
#include "../../backends/tcp/shm/copy_in.c"
#include "../../backends/tcp/shm/fifo.c"

enum { PEER = 1, OPS = 4, SAID = 8, SPAN = 8 << 10, LARGE = SPAN + SPAN / 4, RING = 4 << 10 };

static struct wire_header said[SAID];
static int n_said, dropped;
static struct proto_op op[OPS];
static tutti_request request[OPS];
static char data[OPS][LARGE];
static int ended[OPS];

/* What stubs are asked is nothing to them.  NOLINTBEGIN(misc-unused-parameters) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
STUB(bool, shm_is_shared, const struct shm *shm, const void *memory, size_t bytes)
STUB(bool, shm_fits, struct shm *shm, int local_rank, size_t bytes)
STUB(bool, shm_read_memory, struct shm *shm, int local_rank, void *to, uint64_t from, size_t bytes)
STUB(const void *, shm_arena_at, struct shm *shm, int local_rank, uint64_t from, size_t bytes)
STUB(bool, shm_is_open, struct shm *shm, int local_rank)
STUB(void, shm_unreadable, struct shm *shm, int local_rank)
STUB(void, shm_ring_doorbell, struct shm *shm, int local_rank)
STUB(void, shm_affinity_restore, struct shm *shm)
STUB(void, shm_announce_space, struct shm *shm, int local_rank)
STUB(void, shm_copy_non_temporal, void *to, const void *from, size_t bytes)
STUB(int, proto_lost, struct proto *proto, int32_t peer)
STUB(bool, proto_forget_announced, struct proto *proto, int32_t peer, uint64_t id)

void link_drop(struct proto *proto, int32_t rank, const char *why, bool notify)
{
    dropped++;
}

int proto_say(struct proto *proto, int32_t peer, struct wire_header *header, const void *payload, size_t bytes)
{
    assert_true(n_said < SAID);
    header->source = (uint32_t)peer; /* as it comes back */
    said[n_said++] = *header;
    return TUTTI_OK;
}

struct proto_op *proto_op_find(const struct proto *proto, uint64_t id)
{
    return id >= 1 && id <= OPS && op[id - 1].request != NULL ? &op[id - 1] : NULL;
}
#pragma GCC diagnostic pop
/* NOLINTEND(misc-unused-parameters) */

void proto_finish(struct proto *proto, struct proto_op *one, int status)
{
    ended[one - op] = status == TUTTI_OK ? 1 : status;
    one->request = NULL;
    bulk_forget(proto, one);
}

void proto_finish_recv(struct proto *proto, struct proto_op *one, int32_t peer, int status)
{
    (void)peer;
    proto_finish(proto, one, status);
}

static int64_t now_ns(void)
{
    return 1;
}

static const tutti_host host = {.abi = TUTTI_BACKEND_ABI, .size = sizeof host, .now_ns = now_ns};

/* ---- a rank ------------------------------------------------------------------------------------------------ */

static int16_t seat_of[] = {0, PEER};
static struct shm_peer peers[PEER + 1];
static struct shm shm;
static struct proto proto;

static int open_rank(void **state)
{
    (void)state;
    shm = (struct shm){
        .n = 2, .peer = peers, .local_rank_of = seat_of, .ring_bytes = RING, .fifo_bytes = SPAN, .polls = 1};
    shm.base = calloc(2, sizeof(struct shm_rank));
    struct shm_ring *ring = aligned_alloc(SHM_LINE, sizeof *ring + RING + SPAN);
    if (shm.base == NULL || ring == NULL) return 1;
    memset(ring, 0, sizeof *ring);
    peers[PEER] = (struct shm_peer){.out = ring, .in = ring};
    proto = (struct proto){.host = &host, .shm = &shm};
    TAILQ_INIT(&proto.pulls);
    TAILQ_INIT(&proto.pushes);
    TAILQ_INIT(&proto.streams);
    n_said = dropped = 0;
    for (int i = 0; i < OPS; i++) {
        memset(data[i], i % 2 == 0 ? 'a' + i : 0, sizeof data[i]);
        request[i] = (tutti_request){.data = data[i], .bytes = LARGE};
        op[i] =
            (struct proto_op){.request = &request[i], .peer = PEER, .id = (uint64_t)i + 1, .state = PROTO_RECV_OPEN};
        op[i].write.key = op[i].id + 1; /* what 0 sends 1 receives, what 2 sends 3 */
        ended[i] = 0;
    }
    return 0;
}

static int close_rank(void **state)
{
    (void)state;
    free(shm.base);
    free(peers[PEER].out);
    return 0;
}

static bool came(int receive)
{
    for (int i = 0; i < LARGE; i++)
        if (data[receive][i] != data[receive - 1][i]) return false;
    return ended[receive] == 1;
}

/* ---- turns of the window ----------------------------------------------------------------------------------- */

static void test_one_at_a_time(void **state)
{
    (void)state;
    bulk_push(&proto, &op[0]);
    bulk_push(&proto, &op[2]);
    assert_int_equal(n_said, 1);
    assert_false(copy_in(&proto, &op[2]));
    bulk_stream(&proto, &said[0]);
    while (ended[0] == 0) stream(&proto);
    assert_int_equal(n_said, 2); /* the second one's turn, although not all of the first was read */
    assert_int_equal(said[1].ref, op[2].write.key);
    bulk_stream(&proto, &said[1]);
    while (ended[2] == 0 || ended[3] == 0) assert_int_not_equal(stream(&proto), 0);
    assert_true(came(1) && came(3));
    assert_int_equal(dropped, 0);
}

/* It had no turn yet, so it takes nothing along. */
static void test_one_that_waits_is_taken_back(void **state)
{
    (void)state;
    bulk_push(&proto, &op[0]);
    bulk_push(&proto, &op[2]);
    copy_in(&proto, &op[0]);
    proto_finish(&proto, &op[2], TUTTI_ERR_ABORTED);
    assert_int_equal(n_said, 1);
    bulk_stream(&proto, &said[0]);
    while (ended[1] == 0) assert_int_not_equal(stream(&proto), 0);
    assert_true(came(1));
}

/* The receiver meets the next one's bytes before it has heard of the end: they are not the first one's. */
static void test_one_under_way_is_taken_back(void **state)
{
    (void)state;
    bulk_push(&proto, &op[0]);
    bulk_push(&proto, &op[2]);
    bulk_stream(&proto, &said[0]);
    assert_true(copy_in(&proto, &op[0]));
    assert_true(copy_out(&proto, &op[1]));
    assert_int_equal(op[1].at, SPAN);
    proto_finish(&proto, &op[0], TUTTI_ERR_ABORTED);
    assert_int_equal(n_said, 2);
    assert_false(copy_in(&proto, &op[2]));
    assert_false(copy_out(&proto, &op[1]));
    assert_int_equal(ended[1], 0);
    proto_finish(&proto, &op[1], TUTTI_ERR_ABORTED);
    bulk_stream(&proto, &said[1]);
    while (ended[3] == 0) assert_int_not_equal(stream(&proto), 0);
    assert_true(came(3));
    assert_int_equal(dropped, 0);
}

/* Nothing is due of a receive that was given up: its bytes wake nobody. */
static void test_a_receive_is_given_up(void **state)
{
    size_t bytes;
    (void)state;
    bulk_push(&proto, &op[0]);
    bulk_stream(&proto, &said[0]);
    copy_in(&proto, &op[0]);
    assert_non_null(shm_fifo_peek(&shm, PEER, &bytes));
    proto_finish(&proto, &op[1], TUTTI_ERR_ABORTED);
    assert_null(shm_fifo_peek(&shm, PEER, &bytes));
}

/* All of the message before is in the window when the next one is announced. */
static void test_the_next_one_is_announced(void **state)
{
    (void)state;
    request[0].bytes = request[1].bytes = SPAN;
    bulk_push(&proto, &op[0]);
    bulk_push(&proto, &op[2]);
    bulk_stream(&proto, &said[0]);
    copy_in(&proto, &op[0]);
    assert_int_equal(ended[1], 0);
    bulk_stream(&proto, &said[1]);
    assert_int_equal(ended[1], 1);
    assert_int_equal(dropped, 0);
    while (ended[3] == 0) assert_int_not_equal(stream(&proto), 0);
    assert_true(came(3));
}

/* The peer has received one without bytes, and leaves before this rank has had a turn.  The next one has not been
 * announced, and one with bytes is not whole. */
static void test_one_without_bytes_at_the_end(void **state)
{
    (void)state;
    request[0].bytes = request[1].bytes = request[2].bytes = 0;
    bulk_push(&proto, &op[0]);
    bulk_push(&proto, &op[2]);
    bulk_stream(&proto, &said[0]);
    assert_int_equal(ended[1], 1);
    bulk_lost(&proto, PEER);
    assert_int_equal(ended[0], 1);
    assert_int_equal(ended[2], 0);
}

static void test_one_with_bytes_at_the_end(void **state)
{
    (void)state;
    bulk_push(&proto, &op[0]);
    bulk_stream(&proto, &said[0]);
    copy_in(&proto, &op[0]);
    bulk_lost(&proto, PEER);
    assert_int_equal(ended[0], 0);
    assert_int_equal(ended[1], 0);
}

/* What a peer that has gone wrong announces: two at a time, other bytes, for who did not ask. */
static void test_nonsense(void **state)
{
    (void)state;
    bulk_push(&proto, &op[0]);
    bulk_stream(&proto, &said[0]);
    struct wire_header header = said[0];
    header.ref = op[3].id;
    bulk_stream(&proto, &header);
    assert_int_equal(dropped, 1);
    proto_finish(&proto, &op[1], TUTTI_ERR_ABORTED);
    header.bytes--;
    bulk_stream(&proto, &header);
    assert_int_equal(dropped, 2);
    header.bytes++;
    header.source = 0;
    bulk_stream(&proto, &header);
    header.source = PEER;
    op[3].state = PROTO_SEND_WAITING;
    bulk_stream(&proto, &header);
    assert_true(TAILQ_EMPTY(&proto.streams));
    assert_int_equal(dropped, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_rank, close_rank)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_at_a_time),
        TEST(test_one_that_waits_is_taken_back),
        TEST(test_one_under_way_is_taken_back),
        TEST(test_a_receive_is_given_up),
        TEST(test_the_next_one_is_announced),
        TEST(test_one_without_bytes_at_the_end),
        TEST(test_one_with_bytes_at_the_end),
        TEST(test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
