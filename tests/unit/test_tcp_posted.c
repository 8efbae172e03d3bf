/* Receives and probes of the message protocol that wait for their message, and how they get an operation. */
#include "proto_rank.h"

enum { NAMED, ANY, PROBE, OTHERS, POSTED };

/* A receive from rank 1, one from any rank, a probe, and a receive from rank 1 in another group with the same ranks.
 * They take no operations. */
struct posted {
    int ended[POSTED];
    char data[POSTED];
    tutti_request request[POSTED];
    struct proto_group other;
};

static void post_all(struct posted *posted, struct proto *proto, const struct proto_group *group)
{
    *posted = (struct posted){.other = *group};
    posted->other.id = OURS + 1;
    proto_add_group(proto, &posted->other);
    for (int i = 0; i < POSTED; i++) {
        tutti_request *request = &posted->request[i];
        *request = (tutti_request){.peer = 1, .tag = (uint64_t)i, .data = &posted->data[i], .bytes = 1};
        request->owner = &posted->ended[i];
        if (i == ANY) request->peer = TUTTI_ANY_SOURCE;
        if (i == PROBE) request->flags = TUTTI_REQUEST_PEEK;
        assert_int_equal(proto_recv(i == OTHERS ? &posted->other : (struct proto_group *)(uintptr_t)group, request),
                         TUTTI_REQUEST_PENDING);
    }
    assert_int_equal(proto->n_slots, 0);
}

static void bring_byte(struct proto *proto, uint64_t group, uint64_t tag)
{
    bring(proto, 1, (struct transport_header){.kind = KIND_EAGER, .group = group, .tag = tag, .bytes = 1}, "x");
}

/* The loss of a rank ends what waits for its messages, and nothing else. */
static void test_posted_of_a_lost_rank(void **state)
{
    struct posted posted;
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    post_all(&posted, &proto, &group);
    proto_events.lost(&proto, 2, "it exited");
    for (int i = 0; i < POSTED; i++) assert_int_equal(posted.ended[i], 0);
    proto_events.lost(&proto, 1, "it exited");
    for (int i = 0; i < POSTED; i++) {
        assert_int_equal(posted.ended[i], i == ANY ? 0 : TUTTI_ERR_PEER_LOST);
        assert_int_equal(proto_cancel(&group, &posted.request[i]), i == ANY ? TUTTI_OK : TUTTI_ERR_NOT_FOUND);
        if (i != ANY) assert_int_equal(posted.request[i].source, 1);
    }
    assert_int_equal(proto.messages.n_receives + proto.messages.n_probes, 0);
    close_rank(&proto, &posted.other);
}

/* A closed group's requests are not touched any more, and the sender gets an answer.  Other groups are not affected. */
static void test_posted_in_a_closed_group(void **state)
{
    struct posted posted;
    struct proto proto;
    struct proto_group group;
    (void)state;
    for (int closing = 0; closing < 2; closing++) { /* the whole tree */
        open_rank(&proto, &group);
        post_all(&posted, &proto, &group);
        proto.closing = closing;
        proto_remove_group(&group);
        memset(posted.request, 0xff, sizeof *posted.request * OTHERS);
        memset(&group, 0xff, sizeof group);
        for (uint64_t i = 0; i < OTHERS; i++) bring_byte(&proto, OURS, i);
        bring_byte(&proto, posted.other.id, OTHERS);
        for (int i = 0; i < POSTED; i++) {
            assert_int_equal(posted.ended[i], i == OTHERS);
            assert_int_equal(posted.data[i], i == OTHERS ? 'x' : 0);
        }
        assert_int_equal(proto.peer[1].eager_matched == proto.peer[1].eager_received, !closing);
        close_rank(&proto, &posted.other);
    }
}

/* The groups that were closed last are known. */
static void test_many_closed_groups(void **state)
{
    enum { N = PROTO_CLOSED_MOST + 1000 };
    struct proto proto;
    struct proto_group group, other;
    (void)state;
    open_rank(&proto, &group);
    for (uint64_t i = 1; i <= N; i++) {
        other = group;
        other.id = OURS + i;
        proto_add_group(&proto, &other);
        proto_remove_group(&other);
    }
    for (uint64_t i = 1; i <= N; i++) assert_int_equal(proto_is_closed(&proto, OURS + i), i > N - PROTO_CLOSED_MOST);
    close_rank(&proto, &group);
}

/* A cancelled receive takes no message.  It cannot be cancelled twice, nor after it has ended. */
static void test_posted_and_cancelled(void **state)
{
    struct posted posted;
    struct proto proto;
    struct proto_group group;
    (void)state;
    open_rank(&proto, &group);
    post_all(&posted, &proto, &group);
    for (int i = 0; i < POSTED; i++) {
        struct proto_group *its_group = i == OTHERS ? &posted.other : &group;
        if (i == NAMED) bring_byte(&proto, OURS, NAMED);
        assert_int_equal(proto_cancel(its_group, &posted.request[i]), i == NAMED ? TUTTI_ERR_NOT_FOUND : TUTTI_OK);
        assert_int_equal(proto_cancel(its_group, &posted.request[i]), TUTTI_ERR_NOT_FOUND);
        bring_byte(&proto, its_group->id, (uint64_t)i);
        assert_int_equal(posted.ended[i], i == NAMED);
        assert_int_equal(posted.data[i], i == NAMED ? 'x' : 0);
    }
    assert_int_equal(proto.messages.n_messages, POSTED);
    close_rank(&proto, &posted.other);
}

/* Without memory for the operation of a large message, its receive fails and the sender gets an answer. */
static void test_no_memory_for_an_operation(void **state)
{
    static char data[64];
    struct transport_header rts = {.kind = KIND_RTS, .group = OURS, .bytes = sizeof data, .id = 77};
    (void)state;
    for (int arrived = 0; arrived < 2; arrived++)
        for (int reads = 0; reads < 2; reads++) {
            int ended = 0;
            tutti_request request = {.peer = 1, .data = data, .bytes = sizeof data, .owner = &ended};
            struct proto proto;
            struct proto_group group;
            open_rank(&proto, &group);
            rts.kind = reads ? KIND_RTS_READ : KIND_RTS;
            rts.ref = reads ? 4096 : 0;
            is_starved = true;
            if (arrived) bring(&proto, 1, rts, NULL);
            assert_int_equal(proto_recv(&group, &request), arrived ? TUTTI_ERR_NO_MEMORY : TUTTI_REQUEST_PENDING);
            if (!arrived) bring(&proto, 1, rts, NULL);
            is_starved = false;
            assert_int_equal(ended, arrived ? 0 : TUTTI_ERR_NO_MEMORY);
            assert_int_equal(last_sent.kind, reads ? KIND_FIN : KIND_NACK_SEND);
            assert_int_equal(last_sent.ref, rts.id);
            assert_int_equal(last_sent.flags, KIND_WITHDRAWN);
            assert_int_equal(proto_cancel(&group, &request), TUTTI_ERR_NOT_FOUND);
            close_rank(&proto, &group);
        }
}

/* A receive that has sent its CTS early ignores its RTS, or fails if that differs.  It is not posted without memory. */
static void test_an_early_cts(void **state)
{
    enum { LARGE = TRANSPORT_PAYLOAD_MAX + 1, STARVED = 2 };
    static char data[LARGE];
    (void)state;
    stub.early_cts = true;
    for (int differs = 0; differs <= STARVED; differs++) {
        struct transport_header rts = {.kind = KIND_RTS, .group = OURS, .bytes = LARGE, .id = 77};
        int ended = 0;
        tutti_request request = {
            .peer = 1, .flags = TUTTI_REQUEST_EXPECTED, .data = data, .bytes = LARGE, .owner = &ended};
        struct proto proto;
        struct proto_group group;
        open_rank(&proto, &group);
        is_starved = differs == STARVED;
        assert_int_equal(proto_recv(&group, &request), is_starved ? TUTTI_ERR_NO_MEMORY : TUTTI_REQUEST_PENDING);
        if (!is_starved) {
            uint64_t id = last_sent.id;
            rts.bytes -= (uint64_t)differs;
            assert_int_equal(last_sent.kind, KIND_CTS);
            bring(&proto, 1, rts, NULL);
            assert_int_equal(last_sent.kind, differs ? KIND_NACK_SEND : KIND_CTS);
            assert_int_equal(ended, differs ? TUTTI_ERR_MISMATCH : 0);
            proto_events.written(&proto, id);
            assert_int_equal(ended, differs ? TUTTI_ERR_MISMATCH : 1);
        }
        assert_int_equal(proto.messages.n_receives, 0);
        is_starved = false;
        close_rank(&proto, &group);
    }
    stub.early_cts = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posted_of_a_lost_rank), cmocka_unit_test(test_posted_in_a_closed_group),
        cmocka_unit_test(test_many_closed_groups),    cmocka_unit_test(test_many_closed_groups),
        cmocka_unit_test(test_posted_and_cancelled),  cmocka_unit_test(test_no_memory_for_an_operation),
        cmocka_unit_test(test_an_early_cts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
