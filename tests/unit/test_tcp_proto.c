/* The message protocol and a peer that has gone wrong: what it may not bring about, whatever it sends.  Links are
 * stubs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stub.h"

#include "../../backends/tcp/p2p/proto.c"
#include "../../backends/tcp/p2p/proto_arrive.c"
#define revoke revoke_memory /* unistd.h has one, too */
#include "../../backends/tcp/base/wire.c"
#include "../../backends/tcp/p2p/proto_post.c"

/* ---- links ------------------------------------------------------------------------------------------------- */

static int dropped; /* links */

void link_drop(struct proto *proto, int32_t rank, const char *why, bool notify)
{
    (void)proto, (void)rank, (void)why, (void)notify;
    dropped++;
}

/* What stubs are asked is nothing to them.  NOLINTBEGIN(misc-unused-parameters) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
STUB(size_t, coll_bytes, int n)
STUB(int, coll_directory_reserve, struct shm *shm, int n)
STUB(int, link_connect, struct proto *proto, int32_t rank)
STUB(bool, link_is_up, const struct proto *proto, int32_t rank)
STUB(bool, link_is_flushed, const struct proto *proto, int32_t rank)
STUB(const char *, link_lost, const struct proto *proto, int32_t rank)
STUB(int, link_send, struct proto *proto, int32_t rank, const struct wire_header *header, const void *payload,
     size_t bytes)
STUB(bool, link_unsend, struct proto *proto, int32_t rank, enum wire_kind kind, uint64_t id)
STUB(bool, link_unwrite, struct proto *proto, struct proto_op *op)
STUB(bool, link_cut, struct proto *proto, struct proto_op *op)
STUB(int, link_expose, struct proto *proto, struct proto_op *op)
STUB(int, link_progress, struct proto *proto)
STUB(void, link_write, struct proto *proto, struct proto_op *op)
STUB(enum proto_way, bulk_way, struct proto *proto, const tutti_request *request, int32_t peer, bool unasked)
STUB(size_t, bulk_unasked, const struct shm *shm)
STUB(int, bulk_copy, struct proto *proto, const tutti_request *request, int32_t peer, struct wire_header *header)
STUB(int, bulk_offer, struct proto *proto, struct proto_op *op)
STUB(int, bulk_pull_now, struct proto *proto, tutti_request *request, int32_t peer, const struct wire_header *offer)
STUB(void, bulk_pull, struct proto *proto, struct proto_op *op, const struct wire_header *offer)
STUB(void, bulk_unoffer, struct proto *proto, const struct wire_header *header)
STUB(void, bulk_fin, struct proto *proto, const struct wire_header *header)
STUB(void, bulk_stream, struct proto *proto, const struct wire_header *header)
STUB(int, shm_open_host, const struct shm_config *config, struct shm **shm)
STUB(void, shm_close, struct shm *shm)
STUB(int, shm_read, struct shm *shm, int local_rank)
STUB(void, shm_affinity_restore, struct shm *shm)
STUB(void, shm_ring_doorbell, struct shm *shm, int local_rank)
STUB(int, fabric_open, const struct fabric_config *config, struct fabric **fabric)
STUB(void, fabric_close, struct fabric *fabric)
STUB(void, fabric_conceal, struct fabric_memory *memory)
STUB(void, coll_close, struct coll_segment *coll)

STUB(int, coll_reserve, struct shm *shm, int32_t n, const int32_t *global_ranks)

int coll_open(struct coll_segment *coll, struct shm *shm, int index, int32_t rank, int32_t n,
              const int32_t *global_ranks)
{
    *coll = (struct coll_segment){.n = n};
    return TUTTI_OK;
}

bool link_is_local(const struct proto *proto, int32_t rank)
{
    return true;
}
#pragma GCC diagnostic pop
/* NOLINTEND(misc-unused-parameters) */

static bool loses; /* the next message's announcement finds no memory, which ends the link */

static struct proto_op *whole; /* a receive whose last bytes are in the window */

void bulk_lost(struct proto *proto, int32_t peer)
{
    if (whole != NULL) proto_finish_recv(proto, whole, peer, TUTTI_OK);
    whole = NULL;
}

void bulk_forget(struct proto *proto, struct proto_op *op)
{
    if (!loses) return;
    loses = false;
    proto_local_events.lost(proto, op->peer, "no memory");
}

/* ---- a rank ------------------------------------------------------------------------------------------------ */

static int64_t now_ns(void)
{
    return 1;
}

static int error(int status, const char *format, ...)
{
    (void)format;
    return status;
}

static void completed(tutti_request *request, int status)
{
    *(int *)request->owner = status == TUTTI_OK ? 1 : status;
}

static void peer_lost(void *core, int32_t rank, bool left, const char *why)
{
    (void)core, (void)rank, (void)left, (void)why;
}

static const tutti_host host = {.abi = TUTTI_BACKEND_ABI,
                                .size = sizeof host,
                                .now_ns = now_ns,
                                .error = error,
                                .complete = completed,
                                .peer_lost = peer_lost};

enum { WORLD = 3, OURS = 5 };

/* Rank 0 of three; ranks 0 and 1 are a group. */
static void open_rank(struct proto *proto, struct proto_group *group)
{
    static const int32_t ranks[] = {0, 1};
    struct fabric_config config = {.world_size = WORLD, .host = &host};
    dropped = 0;
    assert_int_equal(proto_open(proto, &config, NULL), TUTTI_OK);
    *group = (struct proto_group){.id = OURS, .world_size = 2, .global_ranks = ranks};
    proto_add_group(proto, group);
}

static void close_rank(struct proto *proto, struct proto_group *group)
{
    LIST_REMOVE(group, link);
    proto_close(proto);
}

static void bring(struct proto *proto, int32_t from, struct wire_header header, const void *payload)
{
    header.source = (uint32_t)from;
    proto_local_events.message(proto, &header, payload, header.kind == WIRE_EAGER_DATA ? header.bytes : 0);
}

/* ---- what a peer sends ------------------------------------------------------------------------------------- */

/* Who has what it may have here is not dropped, and may have it again; who has more is. */
static void test_more_than_it_may(void **state)
{
    enum { EACH = 1000, MOST = PROTO_WINDOW / (EACH + PROTO_EAGER_COST) };
    static char payload[EACH], data[EACH];
    struct wire_header header = {.kind = WIRE_EAGER_DATA, .group = OURS, .bytes = EACH};
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MOST; i++) bring(&proto, 1, header, payload);
        assert_int_equal(dropped, 0);
        for (int i = 0; i < MOST && round < 2; i++) {
            tutti_request request = {.peer = 1, .data = data, .bytes = EACH};
            assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_DONE);
        }
    }
    bring(&proto, 1, header, payload);
    assert_int_equal(dropped, 1);
    assert_int_equal((int)proto.messages.n_messages, MOST);
    close_rank(&proto, &group);
}

/* An offer that is being taken back stays on the list of those until the peer has said so, whatever else it says. */
static void test_an_answer_to_an_offer(void **state)
{
    static char data[64];
    int ended = 0;
    tutti_request request = {.peer = 1, .data = data, .bytes = sizeof data, .owner = &ended};
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    struct proto_op *op = proto_op_new(&group, &request, 1, PROTO_SEND_WAITING);
    op->offered = true;
    assert_int_equal(proto_cancel(&group, &request), TUTTI_ERR_ABORTED);
    assert_ptr_equal(TAILQ_FIRST(&proto.revoked), op);
    bring(&proto, 1,
          (struct wire_header){.kind = WIRE_CTS, .group = OURS, .bytes = sizeof data, .id = 1, .ref = op->id}, NULL);
    assert_ptr_equal(TAILQ_FIRST(&proto.revoked), op);
    assert_int_equal(op->state, PROTO_SEND_WAITING);
    assert_true(op->is_due);
    proto_finish(&proto, op, TUTTI_ERR_ABORTED);
    assert_true(TAILQ_EMPTY(&proto.revoked));
    close_rank(&proto, &group);
}

/* A receive from any source is not met by what a rank sends that is not in its group, before or after. */
static void test_a_stranger_to_the_group(void **state)
{
    static char payload[8], data[8];
    struct wire_header header = {.kind = WIRE_EAGER_DATA, .group = OURS, .bytes = sizeof data, .fingerprint = 1};
    int ended = 0;
    tutti_request request = {
        .peer = TUTTI_ANY_SOURCE, .data = data, .bytes = sizeof data, .fingerprint = 2, .owner = &ended};
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    bring(&proto, 2, header, payload);
    assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_PENDING);
    bring(&proto, 2, header, payload);
    bring(&proto, 2, (struct wire_header){.kind = WIRE_RTS, .group = OURS, .bytes = sizeof data, .id = 1}, NULL);
    assert_int_equal(ended, 0);
    header.fingerprint = 2;
    bring(&proto, 1, header, payload);
    assert_int_equal(ended, 1);
    assert_int_equal(request.source, 1);
    close_rank(&proto, &group);
}

/* Two sends wait for the window; that the first one ends costs the second one the link, and the first one nothing. */
static void test_an_end_that_ends_the_link(void **state)
{
    int ended[2] = {0};
    tutti_request request[2] = {{.peer = 1, .owner = &ended[0]}, {.peer = 1, .owner = &ended[1]}};
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    struct proto_op *op = proto_op_new(&group, &request[0], 1, PROTO_SEND_WRITING);
    proto_op_new(&group, &request[1], 1, PROTO_SEND_WRITING);
    loses = true;
    proto_finish(&proto, op, TUTTI_OK);
    assert_int_equal(ended[0], 1);
    assert_int_equal(ended[1], TUTTI_ERR_PEER_LOST);
    close_rank(&proto, &group);
}

/* What a peer had put whole before it ended is received. */
static void test_what_lies_in_the_window(void **state)
{
    int ended[2] = {0};
    tutti_request request[2] = {{.peer = 1, .owner = &ended[0]}, {.peer = 1, .owner = &ended[1]}};
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    proto_op_new(&group, &request[0], 1, PROTO_RECV_OPEN);
    whole = proto_op_new(&group, &request[1], 1, PROTO_RECV_OPEN);
    proto_local_events.lost(&proto, 1, "connection closed");
    assert_int_equal(ended[0], TUTTI_ERR_PEER_LOST);
    assert_int_equal(ended[1], 1);
    close_rank(&proto, &group);
}

/* A sender that has asked, and does not wait for the answer, sends its message after all: it goes where the question
 * went, to the receive that has answered, or, until there is one, to where the question lies.  What was refused is not
 * received later. */
static void test_sent_after_all(void **state)
{
    static const char payload[] = "its bytes";
    enum { TEXT = sizeof payload, QUESTION = 77 };
    struct wire_header rts = {.kind = WIRE_RTS, .group = OURS, .bytes = TEXT, .id = QUESTION};
    struct wire_header eager = {.kind = WIRE_EAGER_DATA, .group = OURS, .bytes = TEXT, .ref = QUESTION};
    (void)state;
    for (int posted = 0; posted < 3; posted++) { /* nothing; a receive that fits; one that does not */
        char data[2 * TEXT] = "";
        int ended = 0;
        tutti_request request = {.peer = 1, .data = data, .bytes = posted == 2 ? 2 * TEXT : TEXT, .owner = &ended};
        struct proto proto;
        struct proto_group group;
        open_rank(&proto, &group);
        if (posted > 0) assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_PENDING);
        bring(&proto, 1, rts, NULL);
        assert_int_equal(ended, posted == 2 ? TUTTI_ERR_MISMATCH : 0);
        eager.ref = QUESTION + 1; /* another one, which has met its receive */
        bring(&proto, 1, eager, "not these");
        assert_int_equal(ended, posted == 2 ? TUTTI_ERR_MISMATCH : 0);
        eager.ref = QUESTION;
        bring(&proto, 1, eager, payload);
        assert_int_equal((int)proto.messages.n_messages, posted == 0 ? 1 : 0);
        if (posted == 0) assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_DONE);
        if (posted == 1) assert_int_equal(ended, 1);
        assert_string_equal(data, posted == 2 ? "" : payload);
        assert_int_equal(proto.peer[1].came, 2 * (TEXT + PROTO_EAGER_COST));
        assert_int_equal(proto.peer[1].done, proto.peer[1].came);
        close_rank(&proto, &group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_it_may),        cmocka_unit_test(test_an_answer_to_an_offer),
        cmocka_unit_test(test_a_stranger_to_the_group), cmocka_unit_test(test_an_end_that_ends_the_link),
        cmocka_unit_test(test_what_lies_in_the_window), cmocka_unit_test(test_sent_after_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
