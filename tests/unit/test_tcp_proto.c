/* The message protocol and a faulty peer: whatever the peer sends, it does no harm beyond its own link. */
#include "proto_rank.h"

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
    proto_finish(&proto, op->request, TUTTI_ERR_ABORTED);
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

/* Begins two writes to rank 1.  The end of the first one breaks the link. */
static struct proto_op *begin_two_writes(struct proto_group *group, tutti_request request[2], int ended[2])
{
    struct proto_op *op[2];
    for (int i = 0; i < 2; i++) {
        ended[i] = 0;
        request[i] = (tutti_request){.peer = 1, .owner = &ended[i]};
        op[i] = proto_op_new(group, &request[i], 1, PROTO_SEND_WRITING);
    }
    op[0]->write.queued = true;
    loses = true;
    return op[0];
}

/* Two sends wait for the FIFO.  The end of the first one breaks the link of the second one, and does not affect the
 * first. */
static void test_an_end_that_ends_the_link(void **state)
{
    int ended[2];
    tutti_request request[2];
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    struct proto_op *op = begin_two_writes(&group, request, ended);
    proto_finish(&proto, op->request, TUTTI_OK);
    assert_int_equal(ended[0], 1);
    assert_int_equal(ended[1], TUTTI_ERR_PEER_LOST);
    close_rank(&proto, &group);
}

/* A peer withdraws its receive from the first of two writes, and the second one breaks the link when it starts. */
static void test_a_revocation_that_ends_the_link(void **state)
{
    enum { KEY = 9 };
    int ended[2];
    tutti_request request[2];
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    begin_two_writes(&group, request, ended)->write.key = KEY;
    bring(&proto, 1, (struct transport_header){.kind = KIND_REVOKE, .ref = KEY}, NULL);
    assert_int_equal(ended[0], TUTTI_ERR_PEER_LOST);
    assert_int_equal(ended[1], TUTTI_ERR_PEER_LOST);
    close_rank(&proto, &group);
}

/* The report of a completed read breaks the link, and the message has been received. */
static void test_a_report_that_ends_the_link(void **state)
{
    static char data[64];
    int ended = 0;
    tutti_request request = {.peer = 1, .data = data, .bytes = sizeof data, .owner = &ended};
    struct transport_header rts = {
        .kind = KIND_RTS_READ, .group = OURS, .bytes = sizeof data, .id = 1, .ref = (uintptr_t)data};
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_PENDING);
    bring(&proto, 1, rts, NULL);
    loses_sending = true;
    assert_true(proto_progress(&proto) > 0);
    assert_int_equal(last_sent.kind, KIND_FIN);
    assert_int_equal(ended, 1);
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
    struct proto_op *op = proto_pending(&out)->op;
    cts.ref = op->id;
    bring(&proto, 1, cts, NULL);
    assert_int_equal(op->state, PROTO_SEND_WRITING);
    assert_int_equal(op->write.parts, 3);
    assert_int_equal(op->write.key, 5);
    proto_events.write_done(&proto, &op->write);
    assert_int_equal(sent, 1);
    close_rank(&proto, &group);
}

/* What a poll brings, one message each time, in this order. */
static struct transport_header arriving[4];
static int n_arriving, n_brought;

static bool bring_next(struct transport *transport, int32_t rank, bool waits)
{
    (void)transport, (void)waits;
    assert_int_equal(rank, TUTTI_ANY_SOURCE);
    if (n_brought == n_arriving) return false;
    struct transport_header header = arriving[n_brought++];
    bring(protocol, (int32_t)header.source, header, "payload");
    return true;
}

/* A receive from any source that polls takes a member's message with its tag, and leaves later ones where they are. */
static void test_polls_for_any(void **state)
{
    char data[8] = "";
    struct transport_header ours = {.kind = KIND_EAGER, .source = 1, .group = OURS, .tag = 3, .bytes = sizeof data};
    tutti_request request = {
        .peer = TUTTI_ANY_SOURCE, .tag = 3, .data = data, .bytes = sizeof data, .flags = TUTTI_REQUEST_AWAITED};
    struct transport_ops ops = stub_ops;
    struct transport polled = {.ops = &ops};
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    ops.poll = bring_next;
    proto.transport[0] = &polled;
    for (int i = 0; i < 4; i++) arriving[i] = ours;
    arriving[0].source = 2; /* not a member */
    arriving[1].tag = 4;
    n_arriving = 4;
    n_brought = 0;
    assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_DONE);
    assert_int_equal(n_brought, 3);
    assert_int_equal(request.source, 1);
    assert_string_equal(data, "payload");
    assert_int_equal(proto.messages.n_messages, 2);

    proto.polls_for_any = PROTO_ANY_TURN - 1; /* now all transports must make progress */
    request.flags = TUTTI_REQUEST_AT_ONCE;
    assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_ABSENT);
    assert_int_equal(n_brought, 3);
    request.flags = TUTTI_REQUEST_AWAITED;

    int ended = 0; /* an RTS is the oldest message, and is answered */
    request.owner = &ended;
    arriving[0] = (struct transport_header){
        .kind = KIND_RTS_READ, .source = 1, .group = OURS, .tag = 3, .bytes = sizeof data, .id = 1, .ref = 1};
    n_arriving = 2;
    n_brought = 0;
    assert_int_equal(proto_recv(&group, &request), TUTTI_REQUEST_DONE);
    assert_int_equal(n_brought, 1);
    assert_int_equal(last_sent.kind, KIND_FIN);
    close_rank(&proto, &group);
}

static enum transport_path choose_offer(struct transport *transport, int32_t rank, const tutti_request *request,
                                        bool may_eager, bool blocked, const tutti_path_row *row)
{
    (void)transport, (void)rank, (void)request, (void)may_eager, (void)blocked, (void)row;
    return TRANSPORT_OFFER;
}

static bool prefers_reads;

static bool reads_offer(struct transport *transport, int32_t rank, const tutti_request *request)
{
    (void)transport, (void)rank, (void)request;
    return prefers_reads;
}

/* A receiver answers an offer as its transport prefers, and reads if it cannot wait. */
static void test_offered(void **state)
{
    enum { LARGE = TRANSPORT_PAYLOAD_MAX + 1, QUESTION = 7 };
    static char data[LARGE];
    struct transport_header rts = {
        .kind = KIND_RTS_READ, .group = OURS, .bytes = LARGE, .id = QUESTION, .ref = 1, .flags = KIND_OFFER};
    (void)state;
    struct transport_ops ops = stub_ops;
    struct transport choosing = {.ops = &ops, .copies_out = true};
    ops.reads = reads_offer;
    for (int i = 0; i < 4; i++) {
        bool now = (i & 1) != 0, reads = i > 0;
        int ended = 0;
        tutti_request request = {.peer = 1, .data = data, .bytes = LARGE, .owner = &ended};
        prefers_reads = (i & 2) != 0;
        struct proto proto;
        struct proto_group group;
        request.flags = TUTTI_REQUEST_AWAITED | (now ? TUTTI_REQUEST_NOW : 0);
        open_rank(&proto, &group);
        proto.peer[1].transport = &choosing;
        bring(&proto, 1, rts, NULL);
        assert_int_equal(proto_recv(&group, &request), reads ? TUTTI_REQUEST_DONE : TUTTI_REQUEST_PENDING);
        assert_int_equal(last_sent.kind, reads ? KIND_FIN : KIND_CTS);
        assert_int_equal(last_sent.ref, QUESTION);
        if (!reads) { /* the sender withdraws the message, and waits for the answer */
            bring(&proto, 1, (struct transport_header){.kind = KIND_CANCEL_READ, .ref = QUESTION}, NULL);
            assert_int_equal(ended, TUTTI_ERR_ABORTED);
            assert_int_equal(last_sent.kind, KIND_FIN);
            assert_int_equal(last_sent.flags, KIND_WITHDRAWN);
        }
        close_rank(&proto, &group);
    }
}

/* A sender that offers writes once the receiver asks, or ends when it has read.  One that has been asked to take back
 * its memory waits for the receiver's FIN, and a CTS on the way changes nothing. */
static void test_offers(void **state)
{
    enum { LARGE = TRANSPORT_PAYLOAD_MAX + 1, EXPOSED = 5, ASKS = 0, READS = 1, CANCELS = 2 };
    static char data[LARGE];
    struct transport_header cts = {.kind = KIND_CTS, .group = OURS, .bytes = LARGE, .id = EXPOSED};
    struct transport_ops ops = stub_ops;
    struct transport offering = {.ops = &ops, .copies_out = true};
    (void)state;
    ops.choose = choose_offer;
    for (int peer_does = ASKS; peer_does <= CANCELS; peer_does++) {
        int ended = 0;
        tutti_request request = {.peer = 1, .data = data, .bytes = LARGE, .owner = &ended};
        struct proto proto;
        struct proto_group group;
        open_rank(&proto, &group);
        proto.peer[1].transport = &offering;
        assert_int_equal(proto_send(&group, &request), TUTTI_REQUEST_PENDING);
        assert_int_equal(last_sent.kind, KIND_RTS_READ);
        assert_int_equal(last_sent.flags, KIND_OFFER);
        struct proto_op *op = proto_pending(&request)->op;
        struct transport_header fin = {.kind = KIND_FIN, .ref = op->id};
        cts.ref = op->id;
        if (peer_does == CANCELS) {
            assert_int_equal(proto_cancel(&group, &request), TUTTI_ERR_ABORTED);
            assert_int_equal(last_sent.kind, KIND_CANCEL_READ);
            bring(&proto, 1, cts, NULL); /* it crossed the CANCEL_READ */
            assert_int_equal(op->state, PROTO_SEND_WAITING);
            assert_int_equal(last_sent.kind, KIND_NACK_RECV);
            assert_int_equal(ended, 0);
        }
        if (peer_does == ASKS) {
            bring(&proto, 1, cts, NULL);
            assert_int_equal(op->state, PROTO_SEND_WRITING);
            assert_int_equal(op->write.key, EXPOSED);
            bring(&proto, 1, fin, NULL); /* a faulty peer: it reads no more */
            assert_int_equal(ended, 0);
            proto_events.write_done(&proto, &op->write);
        } else {
            fin.flags = peer_does == CANCELS ? KIND_WITHDRAWN : 0;
            bring(&proto, 1, fin, NULL);
        }
        assert_int_equal(ended, peer_does == CANCELS ? TUTTI_ERR_ABORTED : 1);
        close_rank(&proto, &group);
    }
}

static int n_heard;
static enum transport_path heard;

static void hear(struct transport *transport, int32_t rank, size_t bytes, enum transport_path path)
{
    (void)transport;
    assert_int_equal(rank, 1);
    assert_int_equal(bytes, 6);
    heard = path;
    n_heard++;
}

/* The transport learns by which path a message comes, unless every message of that size takes it, or the sender did not
 * wait for an answer to its RTS. */
static void test_tells_paths(void **state)
{
    static const struct {
        struct transport_header header;
        int n_heard;
        enum transport_path path;
    } cases[] = {{{.kind = KIND_EAGER, .bytes = 6}, 1, TRANSPORT_EAGER},
                 {{.kind = KIND_EAGER, .bytes = 5}, 0, 0},
                 {{.kind = KIND_RTS, .bytes = 6, .id = 1}, 1, TRANSPORT_WRITE},
                 {{.kind = KIND_EAGER, .bytes = 6, .ref = 1}, 0, 0},
                 {{.kind = KIND_RTS_READ, .bytes = 6, .id = 2, .ref = 1}, 1, TRANSPORT_READ},
                 {{.kind = KIND_RTS_READ, .bytes = 6, .id = 3, .ref = 1, .flags = KIND_OFFER}, 1, TRANSPORT_OFFER},
                 {{.kind = KIND_CTS, .bytes = 6, .id = 4}, 0, 0}};
    struct transport_ops ops = stub_ops;
    struct transport hearing = {.ops = &ops, .copies_out = true, .eager_certain = 5};
    struct proto proto;
    struct proto_group group;
    (void)state;
    ops.hear = hear;
    open_rank(&proto, &group);
    proto.peer[1].transport = &hearing;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct transport_header header = cases[i].header;
        header.source = 1;
        header.group = OURS;
        n_heard = 0;
        assert_true(
            proto_events.message(&proto, &hearing, &header, "data6", header.kind == KIND_EAGER ? header.bytes : 0));
        assert_int_equal(n_heard, cases[i].n_heard);
        if (n_heard > 0) assert_int_equal(heard, cases[i].path);
    }
    close_rank(&proto, &group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_an_answer_to_a_withdrawn_rts),
        cmocka_unit_test(test_a_non_member),
        cmocka_unit_test(test_an_end_that_ends_the_link),
        cmocka_unit_test(test_a_revocation_that_ends_the_link),
        cmocka_unit_test(test_a_report_that_ends_the_link),
        cmocka_unit_test(test_a_read_without_reads),
        cmocka_unit_test(test_sent_after_all),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_polls_for_any),
        cmocka_unit_test(test_offered),
        cmocka_unit_test(test_offers),
        cmocka_unit_test(test_tells_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
