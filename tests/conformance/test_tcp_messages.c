/* Messages of the tcp plug-in: matching ones, mismatched ones, and cancelled ones. */
#include "rank.h"

#include <sys/mman.h>

/* ---- matching messages ------------------------------------------------------------------------------------- */

static int sizes(struct rank *self)
{
    static const size_t size[] = {
        0,
        1,
        4,
        63,
        64,
        65,
        1000,
        8191,
        8192,
        8193,
        65536,
        65537,
        1 << 20,
        (1 << 20) + 1,
        3 * (1 << 20) + 17,
#ifndef __SANITIZE_THREAD__ /* TSan takes minutes for this size and finds nothing more than with smaller ones */
        (64 << 20) + 13,
#endif
    };
    CHECK(rank_open(self) == TUTTI_OK);
    int32_t other = 1 - self->rank;
    uint64_t tag = 100;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        for (int way = 0; way < 5; way++, tag++) { /* expected or not, receive or send first; a blocking sender */
            size_t n = size[i];
            uint8_t *in = malloc(n + 64), *out = malloc(n + 64);
            struct message send, recv;
            uint32_t flags = way & 1 ? E : 0;
            rank_fill(out, n, (unsigned)(tag + (uint64_t)self->rank));
            memset(in, 0xee, n + 64);
            if (way & 2) rank_recv(self, &recv, other, tag, in, n, flags);
            rank_send(self, &send, other, tag, out, n, way & 4 ? TUTTI_REQUEST_AWAITED : flags);
            if (!(way & 2)) rank_recv(self, &recv, other, tag, in, n, flags);
            CHECK(rank_wait(self, &recv) == TUTTI_OK);
            CHECK(rank_wait(self, &send) == TUTTI_OK);
            CHECK(rank_is_filled(in, n, (unsigned)(tag + (uint64_t)other)));
            for (size_t k = n; k < n + 64; k++) CHECK(in[k] == 0xee);
            CHECK(recv.request.source == other);
            free(in);
            free(out);
        }
    }
    rank_close(self);
    return 0;
}

static void test_sizes_both_send_first(void **state)
{
    (void)state;
    rank_run(sizes, 2);
}

/* Posts all at once, each side in its own order. */
static int many(struct rank *self)
{
    enum { N = 1000 };
    static const size_t size[] = {0, 4, 100, 5000, 8192, 9000, 70000};
    static struct message send[N], recv[N];
    static uint8_t *in[N], *out[N];
    CHECK(rank_open(self) == TUTTI_OK);
    int32_t other = 1 - self->rank;
    for (unsigned i = 0; i < N; i++) {
        unsigned k = (i * (self->rank == 0 ? 7u : 13u)) % N;
        size_t n = size[k % 7];
        in[k] = malloc(n + 1);
        out[k] = malloc(n + 1);
        rank_fill(out[k], n, k + (unsigned)self->rank);
        rank_send(self, &send[k], other, k, out[k], n, k % 2 ? E : 0);
        rank_recv(self, &recv[k], other, k, in[k], n, k % 2 ? E : 0);
        if (i % 100 == 0) rank_progress(self);
    }
    for (unsigned k = 0; k < N; k++) {
        CHECK(rank_wait(self, &recv[k]) == TUTTI_OK);
        CHECK(rank_wait(self, &send[k]) == TUTTI_OK);
        CHECK(rank_is_filled(in[k], size[k % 7], k + (unsigned)other));
        free(in[k]);
        free(out[k]);
    }
    rank_close(self);
    return 0;
}

static void test_a_thousand_at_once(void **state)
{
    (void)state;
    rank_run(many, 2);
}

/* With one tag, messages of all sizes match the receives in order. */
static int order(struct rank *self)
{
    enum { N = 300 };
    static const size_t size[] = {4, 20000, 100, 8192, 300000, 8193};
    static struct message m[N];
    static uint8_t *data[N];
    CHECK(rank_open(self) == TUTTI_OK);
    if (self->rank == 1) rank_progress_ms(self, 100); /* some arrive before their receive */
    for (unsigned i = 0; i < N; i++) {
        data[i] = malloc(size[i % 6]);
        if (self->rank == 0) rank_fill(data[i], size[i % 6], i);
        (self->rank == 0 ? rank_send : rank_recv)(self, &m[i], 1 - self->rank, 1, data[i], size[i % 6], 0);
        if (i % 50 == 0) rank_progress(self);
    }
    for (unsigned i = 0; i < N; i++) {
        CHECK(rank_wait(self, &m[i]) == TUTTI_OK);
        if (self->rank == 1) CHECK(rank_is_filled(data[i], size[i % 6], i));
        free(data[i]);
    }
    rank_close(self);
    return 0;
}

static void test_order_within_a_tag(void **state)
{
    (void)state;
    rank_run(order, 2);
}

static int any_source(struct rank *self)
{
    enum { N = 20 };
    static uint8_t data[2 * N][20000];
    static struct message m[2 * N];
    CHECK(rank_open(self) == TUTTI_OK);
    if (self->rank == 0) {
        int from[3] = {0};
        for (int i = 0; i < 2 * N; i++) rank_recv(self, &m[i], TUTTI_ANY_SOURCE, 3, data[i], i % 2 ? 20000 : 50, 0);
        for (int i = 0; i < 2 * N; i++) {
            CHECK(rank_wait(self, &m[i]) == TUTTI_OK);
            int32_t source = m[i].request.source;
            CHECK(source == 1 || source == 2);
            CHECK(rank_is_filled(data[i], i % 2 ? 20000 : 50, (unsigned)(source * 1000 + from[source])));
            from[source]++;
            if (i == N - 1) shared_store_barrier(self->shared, "first", 0, 1); /* rank 2 may begin */
        }
        CHECK(from[1] == N && from[2] == N);
    } else {
        /* rank 2 begins when rank 1's messages are received, so receives of alternating sizes match messages of the
         * same sizes */
        uint8_t byte;
        size_t bytes;
        if (self->rank == 2) shared_store_get((tutti_store *)self->shared, "meet/first/0", &byte, 1, &bytes, WAIT_MS);
        for (int i = 0; i < N; i++) {
            rank_fill(data[i], 20000, (unsigned)(self->rank * 1000 + i));
            rank_send(self, &m[i], 0, 3, data[i], i % 2 ? 20000 : 50, 0);
        }
        for (int i = 0; i < N; i++) CHECK(rank_wait(self, &m[i]) == TUTTI_OK);
    }
    rank_barrier(self, "end");
    rank_close(self);
    return 0;
}

static void test_any_source(void **state)
{
    (void)state;
    rank_run(any_source, 3);
}

/* ---- mismatched messages ---------------------------------------------------------------------------------- */

/* Sizes and fingerprints of a send and its receive. */
struct mismatch {
    size_t send, recv;
    uint64_t print_send, print_recv;
};

static int mismatched_send(struct rank *self, const struct mismatch *pair, tutti_request request)
{
    struct message m;
    request.bytes = pair->send;
    request.fingerprint = pair->print_send;
    rank_start(self, self->state, &m, true, &request);
    int status = rank_wait(self, &m);
    /* a small message is sent before the mismatch is noticed */
    if (pair->send > 65536) {
        CHECK(status == TUTTI_ERR_MISMATCH);
        CHECK(m.request.found_bytes == pair->recv);
        CHECK(m.request.found_fingerprint == pair->print_recv);
    } else {
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_MISMATCH);
    }
    return 0;
}

static int mismatched_receive(struct rank *self, const struct mismatch *pair, tutti_request request)
{
    struct message m;
    request.bytes = pair->recv;
    request.fingerprint = pair->print_recv;
    rank_start(self, self->state, &m, false, &request);
    CHECK(rank_wait(self, &m) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(m.done.text, "rank 0") != NULL);
    CHECK(m.request.found_bytes == pair->send);
    CHECK(m.request.found_fingerprint == pair->print_send);
    return 0;
}

static int mismatch(struct rank *self)
{
    static const struct mismatch pair[] = {
        {4, 8, 5, 5},        {8, 4, 5, 5},           {100, 100, 5, 6},      {100000, 100, 5, 5},
        {100, 100000, 5, 5}, {100000, 100001, 5, 5}, {100000, 99999, 5, 5}, {100000, 100000, 5, 6},
        {0, 100000, 5, 5},   {100000, 0, 5, 5},      {0, 0, 5, 6},
    };
    CHECK(rank_open(self) == TUTTI_OK);
    static uint8_t data[100100];
    int32_t other = 1 - self->rank;
    uint64_t tag = 0;
    struct message last;
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        for (int way = 0; way < 4; way++, tag++) { /* expected or not; which side is first */
            bool first = (way & 2) == (self->rank == 0 ? 2 : 0);
            tutti_request request = {.peer = other, .flags = way & 1 ? E : 0, .tag = tag, .data = data};
            if (!first) rank_progress_ms(self, 30);
            memset(data, 0xee, sizeof data);
            if (self->rank == 0) {
                CHECK(mismatched_send(self, &pair[i], request) == 0);
            } else {
                CHECK(mismatched_receive(self, &pair[i], request) == 0);
                for (size_t k = 0; k < sizeof data; k++) CHECK(data[k] == 0xee);
            }
        }
    }
    /* and the link is usable */
    (self->rank == 0 ? rank_send : rank_recv)(self, &last, other, 1000, data, 50000, E);
    CHECK(rank_wait(self, &last) == TUTTI_OK);
    rank_close(self);
    return 0;
}

static void test_mismatch_on_both_sides(void **state)
{
    (void)state;
    rank_run(mismatch, 2);
}

/* Nobody receives.  The receiver keeps a bounded amount, and another tag is not delayed. */
static int flood(struct rank *self)
{
    enum { N = 20000, BYTES = 4000 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t data[BYTES];
    struct message *m = calloc(N, sizeof *m), other;
    if (self->rank == 0) {
        int done = 0;
        rank_fill(data, BYTES, 1);
        for (int i = 0; i < N; i++) {
            rank_send(self, &m[i], 1, 1, data, BYTES, 0);
            done += m[i].done.is;
        }
        CHECK(done < N / 10);
        rank_send(self, &other, 1, 2, data, BYTES, 0);
        CHECK(rank_wait(self, &other) == TUTTI_OK);
        for (int i = 0; i < N; i++) CHECK(rank_wait(self, &m[i]) == TUTTI_OK);
    } else {
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        rank_recv(self, &other, 0, 2, data, BYTES, 0);
        CHECK(rank_wait(self, &other) == TUTTI_OK);
        getrusage(RUSAGE_SELF, &after);
        CHECK(after.ru_maxrss - before.ru_maxrss < 40000); /* in KiB; everything would be 80,000 */
        for (int i = 0; i < N; i++) {
            memset(data, 0, BYTES);
            rank_recv(self, &m[0], 0, 1, data, BYTES, 0);
            CHECK(rank_wait(self, &m[0]) == TUTTI_OK);
            CHECK(rank_is_filled(data, BYTES, 1));
        }
    }
    free(m);
    rank_close(self);
    return 0;
}

static void test_a_flood_is_bounded(void **state)
{
    (void)state;
    rank_run(flood, 2);
}

/* ---- cancelling -------------------------------------------------------------------------------------------- */

/* Cancels a send that nobody receives.  It is returned at once, or, if the peer could be reading its memory, when the
 * peer has answered. */
static bool cancel_send(struct rank *self, struct message *m)
{
    if (self->backend->cancel(self->state, &m->request) == TUTTI_OK) return !m->done.is;
    return !m->done.is && rank_wait(self, m) == TUTTI_ERR_ABORTED;
}

static int cancels(struct rank *self)
{
    enum { BYTES = 8 << 20 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t *data = calloc(1, BYTES);
    struct message m, last;
    int32_t other = 1 - self->rank;
    const tutti_backend *backend = self->backend;
    /* makes a link, so that later messages are not merely queued */
    (self->rank == 0 ? rank_send : rank_recv)(self, &m, other, 1, data, 4, 0);
    CHECK(rank_wait(self, &m) == TUTTI_OK);
    rank_barrier(self, "linked");
    if (self->rank == 0) {
        rank_recv(self, &m, 1, 2, data, 4, 0); /* posted only */
        CHECK(backend->cancel(self->state, &m.request) == TUTTI_OK && !m.done.is);
        rank_send(self, &m, 1, 3, data, BYTES, E); /* no CTS yet */
        CHECK(cancel_send(self, &m));
        memset(data, 0xee, BYTES);
        rank_recv(self, &m, 1, 4, data, BYTES, E); /* RTS sent: the peer may be writing */
        int status = backend->cancel(self->state, &m.request);
        if (status != TUTTI_OK) CHECK(rank_wait(self, &m) != 1);
        rank_barrier(self, "cancelled");
        rank_await(self, "tried", 1); /* the peer sends it, and cancels it */
        if (m.done.status != TUTTI_OK)
            for (size_t i = 0; i < BYTES; i++) CHECK(data[i] == 0xee);
    } else {
        rank_barrier(self, "cancelled");
        rank_send(self, &m, 0, 4, data, BYTES, E);
        rank_progress_ms(self, 200);
        CHECK(!m.done.is);
        CHECK(cancel_send(self, &m));
        rank_report(self, "tried");
    }
    /* the link is still usable */
    (self->rank == 0 ? rank_send : rank_recv)(self, &last, other, 9, data, 100000, E);
    CHECK(rank_wait(self, &last) == TUTTI_OK);
    CHECK(self->notified.lost == 0);
    rank_barrier(self, "link is usable"); /* nobody closes before */
    free(data);
    rank_close(self);
    return 0;
}

static void test_cancel(void **state)
{
    (void)state;
    rank_run(cancels, 2);
}

/* The peer does not answer.  The memory is still returned in time. */
static int cancel_silent(struct rank *self)
{
    enum { BYTES = 8 << 20 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t *data = calloc(1, BYTES);
    struct message m;
    (self->rank == 0 ? rank_send : rank_recv)(self, &m, 1 - self->rank, 1, data, 4, 0);
    CHECK(rank_wait(self, &m) == TUTTI_OK);
    rank_barrier(self, "linked");
    if (self->rank == 1) {
        shared_store_barrier(self->shared, "silent", 1,
                             2); /* as if stopped, until the other rank has its memory back */
        free(data);
        rank_close(self);
        return 0;
    }
    rank_recv(self, &m, 1, 2, data, BYTES, E);
    rank_progress_ms(self, 20);
    if (self->backend->cancel(self->state, &m.request) != TUTTI_OK) CHECK(rank_wait(self, &m) < 0);
    shared_store_barrier(self->shared, "silent", 0, 2);
    free(data);
    rank_close(self);
    return 0;
}

static void test_cancel_with_a_silent_peer(void **state)
{
    (void)state;
    rank_run(cancel_silent, 2);
}

/* Two ranks that are threads of one process. */
struct thread {
    pthread_t thread;
    struct shared_store *shared;
    int rank, result;
};

static void *thread_main(void *argument)
{
    struct thread *thread = argument;
    thread->result = rank_main(sizes, thread->shared, thread->rank, 2);
    return NULL;
}

static void test_ranks_as_threads(void **state)
{
    (void)state;
    struct shared_store *shared = shared_store_new();
    struct thread thread[2] = {{.shared = shared, .rank = 0}, {.shared = shared, .rank = 1}};
    for (int i = 0; i < 2; i++) pthread_create(&thread[i].thread, NULL, thread_main, &thread[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i].thread, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(thread[i].result, 0);
    munmap(shared, sizeof *shared);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_both_send_first),
        cmocka_unit_test(test_a_thousand_at_once),
        cmocka_unit_test(test_order_within_a_tag),
        cmocka_unit_test(test_any_source),
        cmocka_unit_test(test_mismatch_on_both_sides),
        cmocka_unit_test(test_a_flood_is_bounded),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_cancel_with_a_silent_peer),
        cmocka_unit_test(test_ranks_as_threads),
    };
    return rank_tests_main(argc, argv, &(struct rank_tests){.all = tests, .n_all = sizeof tests / sizeof *tests});
}
