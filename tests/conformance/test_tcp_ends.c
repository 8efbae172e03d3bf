/* Peers of the tcp plug-in that leave or are killed, also inside a message, and the resources that remain then. */
#include "rank.h"
#include "usage.h"

static int killed(struct rank *self)
{
    CHECK(rank_open(self) == TUTTI_OK);
    static uint8_t data[1 << 20];
    struct message m, pending, large, other;
    int32_t peer = self->rank == 0 ? 1 : 0;
    if (self->rank < 2) {
        (self->rank == 1 ? rank_send : rank_recv)(self, &m, peer, 1, data, 4, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
    }
    if (self->rank == 0) rank_report(self, "linked");
    if (self->rank == 1) {
        rank_await(self, "linked", 0); /* the message waits for the link */
        raise(SIGKILL);
    }
    if (self->rank == 0) {
        rank_recv(self, &pending, 1, 2, data, 4, 0);
        rank_send(self, &large, 1, 3, data, sizeof data, E);
        CHECK(rank_wait(self, &pending) == TUTTI_ERR_PEER_LOST);
        const char *text = pending.done.text;
        CHECK(strstr(text, "rank 1 is lost: ") != NULL);
        /* over datagrams: silence, or the provider's error if something was sent before */
        CHECK(rank_is_rdm() || strstr(text, "connection closed") != NULL);
        CHECK(rank_wait(self, &large) == TUTTI_ERR_PEER_LOST);
        CHECK(self->notified.lost == 1 && self->notified.lost_rank == 1 && !self->notified.left);
        rank_send(self, &m, 1, 4, data, 4, 0);
        CHECK(m.done.is && m.done.status == TUTTI_ERR_PEER_LOST);
    }
    /* the others continue */
    (self->rank == 0 ? rank_send : rank_recv)(self, &other, self->rank == 0 ? 2 : 0, 9, data, 100000, E);
    CHECK(rank_wait(self, &other) == TUTTI_OK);
    rank_close(self);
    return 0;
}

static void test_a_killed_peer_is_named(void **state)
{
    (void)state;
    rank_run_until_silent(killed, 3, (int[]){0, -SIGKILL, 0});
}

/* Rank 1 is killed in the middle of a large message, at many moments. */
static int killed_inside(struct rank *self)
{
    enum { BYTES = 32 << 20 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t *data = calloc(1, BYTES);
    struct message in, out;
    for (uint64_t tag = 0;; tag++) {
        rank_recv(self, &in, 1 - self->rank, tag, data, BYTES / 2, E);
        rank_send(self, &out, 1 - self->rank, tag, data + BYTES / 2, BYTES / 2, E);
        if (self->rank == 1 && tag == 1) { /* the link exists since tag 0 */
            for (int i = 0; i < 20; i++) self->backend->progress(self->state);
            raise(SIGKILL);
        }
        int status = rank_wait(self, &in);
        if (status == TUTTI_OK) status = rank_wait(self, &out);
        if (status == TUTTI_OK) continue;
        CHECK(status == TUTTI_ERR_PEER_LOST);
        break;
    }
    rank_wait(self, &out);
    CHECK(out.done.is && in.done.is);
    free(data);
    rank_close(self);
    return 0;
}

static void test_killed_inside_a_large_message(void **state)
{
    (void)state;
    for (int i = 0; i < (rank_is_rdm() ? 2 : 5); i++) rank_run_until_silent(killed_inside, 2, (int[]){0, -SIGKILL});
}

static int leaves(struct rank *self)
{
    CHECK(rank_open(self) == TUTTI_OK);
    static uint8_t data[400000];
    struct message m, small, pending;
    if (rank_is_rdm()) { /* close waits 0.9 s, which may not suffice to make a datagram link */
        (self->rank == 0 ? rank_send : rank_recv)(self, &m, 1 - self->rank, 9, data, 4, 0);
        CHECK(rank_wait(self, &m) == TUTTI_OK);
        rank_barrier(self, "linked");
    }
    if (self->rank == 1) {
        rank_fill(data, sizeof data, 3);
        rank_send(self, &small, 0, 1, data, 1000, 0); /* queued if there is no link yet */
        int64_t before = monotonic_ns();
        rank_close(self);
        CHECK(monotonic_ns() - before < 10000000000); /* 0.9 s, and some more on a busy machine */
        rank_report(self, "left");
        return 0;
    }
    rank_await(self, "left", 1);
    rank_recv(self, &small, 1, 1, data, 1000, 0); /* the peer has left, but its message has arrived */
    CHECK(rank_wait(self, &small) == TUTTI_OK && rank_is_filled(data, 1000, 3));
    rank_recv(self, &pending, 1, 2, data, 4, 0);
    CHECK(rank_wait(self, &pending) == TUTTI_ERR_PEER_LOST);
    CHECK(strstr(pending.done.text, "rank 1") != NULL && strstr(pending.done.text, "left the group") != NULL);
    CHECK(self->notified.lost == 1 && self->notified.left);
    rank_send(self, &m, 1, 3, data, 4, 0);
    CHECK(m.done.status == TUTTI_ERR_PEER_LOST);
    rank_close(self);
    return 0;
}

static void test_leaving(void **state)
{
    (void)state;
    rank_run(leaves, 2);
}

/* Opens and closes many times, with both ranks connecting at once.  No descriptor leaks. */
static int rounds(struct rank *self)
{
    int before = 0;
    for (int round = 0; round < 12; round++) {
        char name[16];
        uint8_t in[3] = {0}, out[3] = {1, 2, 3};
        struct message a, b;
        snprintf(name, sizeof name, "r%d", round);
        CHECK(rank_open(self) == TUTTI_OK);
        shared_store_barrier(self->shared, name, self->rank, self->world);
        for (int32_t peer = 0; peer < self->world; peer++) {
            if (peer == self->rank) continue;
            rank_send(self, &a, peer, 1, out, 3, 0);
            rank_recv(self, &b, peer, 1, in, 3, 0);
            CHECK(rank_wait(self, &a) == TUTTI_OK && rank_wait(self, &b) == TUTTI_OK && in[2] == 3);
        }
        rank_close(self);
        snprintf(name, sizeof name, "e%d", round);
        shared_store_barrier(self->shared, name, self->rank, self->world);
        if (round == 1) before = usage_fds();
    }
    CHECK(usage_fds() == before);
    return 0;
}

static void test_no_descriptor_is_left(void **state)
{
    (void)state;
    rank_run(rounds, 2);
}

static int unusual_closes(struct rank *self)
{
    void *state = rank_state_new(self->backend);
    self->backend->close(state); /* zeroed */
    free(state);
    setenv("TUTTI_SHM", "0", 1);
    setenv("TUTTI_IFACE", "no-such-interface", 1);
    CHECK(rank_open(self) == TUTTI_ERR_BACKEND);
    CHECK(strstr(rank_last_error, "no-such-interface") != NULL);
    rank_close(self);
    setenv("TUTTI_IFACE", "127.0.0.0/8", 1);
    setenv("TUTTI_FABRIC_PROVIDER", "no-such-provider", 1);
    CHECK(rank_open(self) == TUTTI_ERR_BACKEND);
    CHECK(strstr(rank_last_error, "no-such-provider") != NULL);
    rank_close(self);
    unsetenv("TUTTI_FABRIC_PROVIDER");
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t data[100];
    struct message m;
    rank_recv(self, &m, 1, 1, data, sizeof data, 0); /* nobody will answer */
    rank_close(self);
    CHECK(!m.done.is);
    return 0;
}

static void test_closing_after_failures(void **state)
{
    (void)state;
    struct shared_store *shared = shared_store_new();
    (void)shared;
    rank_run(unusual_closes, 1 + 1);
}

/* The requests of ranks 0 and 1 cross, so rank 1 closes its own and waits for that of rank 0.  The only descriptor of
 * rank 1 then goes to rank 2, whose request came first. */
static int crossed_without_descriptor(struct rank *self)
{
    static uint8_t data[4], in[4];
    struct message m, answer;
    CHECK(rank_open(self) == TUTTI_OK);
    shared_store_barrier(self->shared, "open", self->rank, self->world);
    if (self->rank == 1) {
        usage_leave_fds(1);
        rank_send(self, &m, 0, 1, data, sizeof data, 0);
        rank_recv(self, &answer, 0, 1, in, sizeof in, 0);
    }
    if (self->rank == 2) rank_send(self, &m, 1, 1, data, sizeof data, 0);
    shared_store_barrier(self->shared, "first two", self->rank, self->world);
    if (self->rank == 0) rank_send(self, &m, 1, 1, data, sizeof data, 0);
    shared_store_barrier(self->shared, "all", self->rank, self->world);
    if (self->rank == 1) {
        rank_await(self, "refused", 0);
        int64_t begin = monotonic_ns();
        CHECK(rank_wait(self, &answer) == TUTTI_ERR_PEER_LOST);
        const char *why = "rank 1 cannot accept the connection: Too many open files";
        CHECK(strstr(answer.done.text, why) != NULL && strstr(self->notified.why, why) != NULL);
        CHECK(self->notified.lost == 1 && self->notified.lost_rank == 0);
        CHECK(monotonic_ns() - begin < INT64_C(10000000000));
    } else {
        if (self->rank == 0) rank_progress_ms(self, 300); /* refuses the request of rank 1 */
        rank_report(self, "refused");
        CHECK(rank_wait(self, &m) == TUTTI_OK || self->rank == 0);
    }
    rank_barrier(self, "end");
    rank_close(self);
    return 0;
}

static void test_no_descriptor_for_a_crossed_request(void **state)
{
    (void)state;
    if (rank_is_rdm()) {
        print_message("skipped: only connected endpoints accept connections\n");
        skip();
    }
    rank_run(crossed_without_descriptor, 3);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_peer_is_named),
        cmocka_unit_test(test_killed_inside_a_large_message),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_no_descriptor_is_left),
    };
    static const struct CMUnitTest network_tests[] = {
        cmocka_unit_test(test_closing_after_failures),
        cmocka_unit_test(test_no_descriptor_for_a_crossed_request),
    };
    return rank_tests_main(argc, argv,
                           &(struct rank_tests){.all = tests,
                                                .n_all = sizeof tests / sizeof *tests,
                                                .network = network_tests,
                                                .n_network = sizeof network_tests / sizeof *network_tests});
}
