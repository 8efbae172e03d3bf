/* The message protocol and a faulty peer: whatever the peer sends, it does no harm beyond its own link.  The transport
 * is a stub. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../backends/tcp/p2p/kinds.c"
#include "../../backends/tcp/p2p/proto.c"
#include "../../backends/tcp/p2p/proto_arrive.c"
#include "../../backends/tcp/p2p/proto_cancel.c"
#include "../../backends/tcp/p2p/proto_group.c"
#include "../../backends/tcp/p2p/proto_op.c"
#include "../../backends/tcp/p2p/proto_read.c"
#define take_eager take_arrived /* proto_arrive.c has the same name */
#include "../../backends/tcp/p2p/proto_recv.c"
#include "../../backends/tcp/p2p/proto_send.c"
#include "../../backends/tcp/p2p/proto_talk.c"

/* ---- a transport ------------------------------------------------------------------------------------------- */

static int dropped;            /* links */
static bool loses;             /* the next unwrite finds no memory to start the next write, which ends the link */
static struct proto *protocol; /* the user of the transport */

/* Stubs ignore their parameters.  NOLINTBEGIN(misc-unused-parameters) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
static bool reaches(const struct transport *transport, int32_t rank)
{
    return true;
}

static int connect_rank(struct transport *transport, int32_t rank)
{
    return TUTTI_OK;
}

static const char *lost(const struct transport *transport, int32_t rank)
{
    return NULL;
}

static bool is_down(const struct transport *transport, int32_t rank)
{
    return false;
}

static bool is_flushed(const struct transport *transport, int32_t rank)
{
    return true;
}

static void drop(struct transport *transport, int32_t rank, const char *why, bool notify)
{
    dropped += notify;
}

static struct transport_header last_sent;
static int record_message(struct transport *transport, int32_t rank, const struct transport_header *header,
                          const void *payload, size_t bytes)
{
    last_sent = *header;
    return TUTTI_OK;
}

static bool has_left(struct transport *transport, int32_t rank, uint8_t kind, uint64_t id)
{
    return false;
}

static uint8_t parts = 1; /* of the next writes */
static int expose(struct transport *transport, int32_t rank, struct transport_memory *memory)
{
    memory->transport = transport;
    memory->parts = parts;
    return TUTTI_OK;
}

static void conceal(struct transport_memory *memory)
{
    memory->transport = NULL;
}

static bool unwrite(struct transport *transport, int32_t rank, struct transport_write *write)
{
    write->queued = false;
    if (!loses) return true;
    loses = false;
    proto_events.lost(protocol, rank, "no memory");
    return true;
}

static enum transport_path choose_write(struct transport *transport, int32_t rank, const tutti_request *request,
                                        bool may_eager, bool blocked, const tutti_path_row *row)
{
    return TRANSPORT_WRITE;
}

static void write_nothing(struct transport *transport, int32_t rank, struct transport_write *write)
{
}

static bool read_nothing(struct transport *transport, int32_t rank, tutti_request *one, size_t at, uint64_t from,
                         size_t bytes)
{
    return true;
}

static void close_nothing(struct transport *transport)
{
}

static int no_progress(struct transport *transport)
{
    return 0;
}
#pragma GCC diagnostic pop
/* NOLINTEND(misc-unused-parameters) */

static const struct transport_ops stub_ops = {.reaches = reaches,
                                              .connect = connect_rank,
                                              .is_up = is_down,
                                              .lost = lost,
                                              .is_flushed = is_flushed,
                                              .drop = drop,
                                              .send = record_message,
                                              .unsend = has_left,
                                              .expose = expose,
                                              .conceal = conceal,
                                              .choose = choose_write,
                                              .write = write_nothing,
                                              .unwrite = unwrite,
                                              .read = read_nothing,
                                              .progress = no_progress,
                                              .close = close_nothing};
static struct transport stub = {.ops = &stub_ops, .copies_out = true};

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

/* Opens rank 0 of three.  Ranks 0 and 1 are a group. */
static void open_rank(struct proto *proto, struct proto_group *group)
{
    static const int32_t ranks[] = {0, 1};
    struct proto_config config = {.world_size = WORLD, .host = &host};
    dropped = 0;
    protocol = proto;
    assert_int_equal(proto_open(proto, &config), TUTTI_OK);
    assert_true(proto_add_transport(proto, &stub));
    *group = (struct proto_group){.id = OURS, .world_size = 2, .global_ranks = ranks};
    proto_add_group(proto, group);
}

static void close_rank(struct proto *proto, struct proto_group *group)
{
    LIST_REMOVE(group, link);
    proto_close(proto);
}

static void bring(struct proto *proto, int32_t from, struct transport_header header, const void *payload)
{
    header.source = (uint32_t)from;
    assert_true(proto_events.message(proto, &stub, &header, payload, header.kind == KIND_EAGER ? header.bytes : 0));
}

/* ---- what a peer sends ------------------------------------------------------------------------------------- */

/* A peer within its limits is not dropped, and may use them again.  A peer beyond them is dropped. */
static void test_limits(void **state)
{
    enum { EACH = 1000, MOST = PROTO_CREDIT / (EACH + PROTO_EAGER_COST) };
    static char payload[EACH], data[EACH];
    struct transport_header header = {.kind = KIND_EAGER, .group = OURS, .bytes = EACH};
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
    assert_int_equal(proto.messages.n_messages, MOST);
    close_rank(&proto, &group);
}

/* A withdrawn RTS stays on the list until the peer has confirmed the withdrawal, whatever else it sends. */
static void test_an_answer_to_a_withdrawn_rts(void **state)
{
    static char data[64];
    int ended = 0;
    tutti_request request = {.peer = 1, .data = data, .bytes = sizeof data, .owner = &ended};
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    struct proto_op *op = proto_op_new(&group, &request, 1, PROTO_SEND_WAITING);
    op->is_readable = true;
    assert_int_equal(proto_cancel(&group, &request), TUTTI_ERR_ABORTED);
    assert_ptr_equal(TAILQ_FIRST(&proto.revoked), op);
    bring(&proto, 1,
          (struct transport_header){.kind = KIND_CTS, .group = OURS, .bytes = sizeof data, .id = 1, .ref = op->id},
          NULL);
    assert_ptr_equal(TAILQ_FIRST(&proto.revoked), op);
    assert_int_equal(op->state, PROTO_SEND_WAITING);
    assert_true(op->is_timed);
    proto_finish(&proto, op, TUTTI_ERR_ABORTED);
    assert_true(TAILQ_EMPTY(&proto.revoked));
    close_rank(&proto, &group);
}

/* A receive from any source does not match messages of a rank outside the group, before or after. */
static void test_a_non_member(void **state)
{
    static char payload[8], data[8];
    struct transport_header header = {.kind = KIND_EAGER, .group = OURS, .bytes = sizeof data, .fingerprint = 1};
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
    bring(&proto, 2, (struct transport_header){.kind = KIND_RTS, .group = OURS, .bytes = sizeof data, .id = 1}, NULL);
    assert_int_equal(ended, 0);
    header.fingerprint = 2;
    bring(&proto, 1, header, payload);
    assert_int_equal(ended, 1);
    assert_int_equal(request.source, 1);
    close_rank(&proto, &group);
}

/* Two sends wait for the FIFO.  The end of the first one breaks the link of the second one, and does not affect the
 * first. */
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
    op->write.queued = true;
    loses = true;
    proto_finish(&proto, op, TUTTI_OK);
    assert_int_equal(ended[0], 1);
    assert_int_equal(ended[1], TUTTI_ERR_PEER_LOST);
    close_rank(&proto, &group);
}

/* A transport without single-copy reads accepts none of their messages. */
static void test_a_read_without_reads(void **state)
{
    struct transport_header header = {
        .kind = KIND_RTS_READ, .source = 1, .group = OURS, .bytes = 8, .id = 1, .ref = 4096};
    struct transport_ops ops = stub_ops;
    struct transport other = {.ops = &ops};
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    assert_true(proto_events.message(&proto, &stub, &header, NULL, 0));
    ops.read = NULL;
    assert_false(proto_events.message(&proto, &other, &header, NULL, 0));
    header = (struct transport_header){.kind = KIND_EAGER, .source = WORLD, .group = OURS};
    assert_false(proto_events.message(&proto, &stub, &header, NULL, 0));
    assert_int_equal(proto.messages.n_messages, 1);
    close_rank(&proto, &group);
}

/* A sender that has sent an RTS, and does not wait for the CTS, sends its message after all.  The message goes to the
 * receive that has answered.  If none has, it takes the place of the RTS.  A refused message is not received later. */
static void test_sent_after_all(void **state)
{
    static const char payload[] = "its bytes";
    enum { TEXT = sizeof payload, QUESTION = 77 };
    struct transport_header rts = {.kind = KIND_RTS, .group = OURS, .bytes = TEXT, .id = QUESTION};
    struct transport_header eager = {.kind = KIND_EAGER, .group = OURS, .bytes = TEXT, .ref = QUESTION};
    (void)state;
    for (int posted = 0; posted < 3; posted++) { /* none; a receive that fits; one that does not */
        char data[2 * TEXT] = "";
        int ended = 0;
        tutti_request request = {.peer = 1, .data = data, .bytes = posted == 2 ? 2 * TEXT : TEXT, .owner = &ended};
        struct proto proto;
        struct proto_group group;
        open_rank(&proto, &group);
        if (posted > 0) assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_PENDING);
        bring(&proto, 1, rts, NULL);
        assert_int_equal(ended, posted == 2 ? TUTTI_ERR_MISMATCH : 0);
        eager.ref = QUESTION + 1; /* another RTS, which has matched its receive */
        bring(&proto, 1, eager, "not these");
        assert_int_equal(ended, posted == 2 ? TUTTI_ERR_MISMATCH : 0);
        eager.ref = QUESTION;
        bring(&proto, 1, eager, payload);
        assert_int_equal(proto.messages.n_messages, posted == 0 ? 1 : 0);
        if (posted == 0) assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_DONE);
        if (posted == 1) assert_int_equal(ended, 1);
        assert_string_equal(data, posted == 2 ? "" : payload);
        assert_int_equal(proto.peer[1].eager_received, 2 * (TEXT + PROTO_EAGER_COST));
        assert_int_equal(proto.peer[1].eager_matched, proto.peer[1].eager_received);
        close_rank(&proto, &group);
    }
}

/* A large message that comes in three parts is complete after the third. */
static void test_parts(void **state)
{
    enum { LARGE = TRANSPORT_PAYLOAD_MAX + 1, QUESTION = 77 };
    static char data[LARGE];
    struct transport_header rts = {.kind = KIND_RTS, .group = OURS, .bytes = LARGE, .id = QUESTION};
    struct transport_header cts = {.kind = KIND_CTS, .group = OURS, .bytes = LARGE, .id = 5, .flags = 2};
    int received = 0, sent = 0;
    tutti_request in = {.peer = 1, .data = data, .bytes = LARGE, .owner = &received}, out = in;
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    parts = 3;
    assert_int_equal(proto_recv(&group, &in), TUTTI_REQUEST_PENDING);
    bring(&proto, 1, rts, NULL);
    parts = 1;
    assert_int_equal(last_sent.kind, KIND_CTS);
    assert_int_equal(last_sent.flags, 2);
    for (int part = 1; part <= 4; part++) { /* a peer may also notify once too often */
        assert_int_equal(received, part > 3);
        proto_events.written(&proto, last_sent.id);
    }
    assert_int_equal(received, 1);

    out.owner = &sent;
    assert_int_equal(proto_send(&group, &out), TUTTI_REQUEST_PENDING);
    struct proto_op *op = out.priv[0];
    cts.ref = op->id;
    bring(&proto, 1, cts, NULL);
    assert_int_equal(op->state, PROTO_SEND_WRITING);
    assert_int_equal(op->write.parts, 3);
    assert_int_equal(op->write.key, 5);
    proto_events.write_done(&proto, &op->write);
    assert_int_equal(sent, 1);
    close_rank(&proto, &group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_an_answer_to_a_withdrawn_rts),
        cmocka_unit_test(test_a_non_member),
        cmocka_unit_test(test_an_end_that_ends_the_link),
        cmocka_unit_test(test_a_read_without_reads),
        cmocka_unit_test(test_sent_after_all),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
