/* Messages of the tcp plug-in: those that fit, those that do not, and those that are taken back. */
#ifndef TCP_MESSAGES_H
#define TCP_MESSAGES_H

#include "tcp_ends.h"

/* ---- messages that fit ------------------------------------------------------------------------------------- */

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
#ifndef __SANITIZE_THREAD__ /* which takes minutes for these bytes, and finds in them what it found in fewer */
        (64 << 20) + 13,
#endif
    };
    CHECK(rank_open(self) == TUTTI_OK);
    int32_t other = 1 - self->rank;
    uint64_t tag = 100;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        for (int way = 0; way < 5; way++, tag++) { /* expected or not, receive or send first; a sender who waits */
            size_t n = size[i];
            uint8_t *in = malloc(n + 64), *out = malloc(n + 64);
            struct message send, recv;
            uint32_t flags = way & 1 ? E : 0;
            fill(out, n, (unsigned)(tag + (uint64_t)self->rank));
            memset(in, 0xee, n + 64);
            if (way & 2) start(self, &recv, false, other, tag, in, n, flags);
            start(self, &send, true, other, tag, out, n, way & 4 ? TUTTI_REQUEST_AWAITED : flags);
            if (!(way & 2)) start(self, &recv, false, other, tag, in, n, flags);
            CHECK(wait_for(self, &recv) == TUTTI_OK);
            CHECK(wait_for(self, &send) == TUTTI_OK);
            CHECK(is_filled(in, n, (unsigned)(tag + (uint64_t)other)));
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
    run(sizes, 2);
}

/* Posts all at once, in an order of its own on each side. */
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
        fill(out[k], n, k + (unsigned)self->rank);
        start(self, &send[k], true, other, k, out[k], n, k % 2 ? E : 0);
        start(self, &recv[k], false, other, k, in[k], n, k % 2 ? E : 0);
        if (i % 100 == 0) turn(self);
    }
    for (unsigned k = 0; k < N; k++) {
        CHECK(wait_for(self, &recv[k]) == TUTTI_OK);
        CHECK(wait_for(self, &send[k]) == TUTTI_OK);
        CHECK(is_filled(in[k], size[k % 7], k + (unsigned)other));
        free(in[k]);
        free(out[k]);
    }
    rank_close(self);
    return 0;
}

static void test_a_thousand_at_once(void **state)
{
    (void)state;
    run(many, 2);
}

/* One tag: messages of all sizes meet the receives in order. */
static int order(struct rank *self)
{
    enum { N = 300 };
    static const size_t size[] = {4, 20000, 100, 8192, 300000, 8193};
    static struct message m[N];
    static uint8_t *data[N];
    CHECK(rank_open(self) == TUTTI_OK);
    if (self->rank == 1) turns(self, 100); /* some arrive before their receive */
    for (unsigned i = 0; i < N; i++) {
        data[i] = malloc(size[i % 6]);
        if (self->rank == 0) fill(data[i], size[i % 6], i);
        start(self, &m[i], self->rank == 0, 1 - self->rank, 1, data[i], size[i % 6], 0);
        if (i % 50 == 0) turn(self);
    }
    for (unsigned i = 0; i < N; i++) {
        CHECK(wait_for(self, &m[i]) == TUTTI_OK);
        if (self->rank == 1) CHECK(is_filled(data[i], size[i % 6], i));
        free(data[i]);
    }
    rank_close(self);
    return 0;
}

static void test_order_within_a_tag(void **state)
{
    (void)state;
    run(order, 2);
}

static int any_source(struct rank *self)
{
    enum { N = 20 };
    static uint8_t data[2 * N][20000];
    static struct message m[2 * N];
    CHECK(rank_open(self) == TUTTI_OK);
    if (self->rank == 0) {
        int from[3] = {0};
        for (int i = 0; i < 2 * N; i++) start(self, &m[i], false, TUTTI_ANY_SOURCE, 3, data[i], i % 2 ? 20000 : 50, 0);
        for (int i = 0; i < 2 * N; i++) {
            CHECK(wait_for(self, &m[i]) == TUTTI_OK);
            int32_t source = m[i].request.source;
            CHECK(source == 1 || source == 2);
            CHECK(is_filled(data[i], i % 2 ? 20000 : 50, (unsigned)(source * 1000 + from[source])));
            from[source]++;
            if (i == N - 1) meet(self->shared, "first", 0, 1); /* now rank 2 may begin */
        }
        CHECK(from[1] == N && from[2] == N);
    } else {
        /* rank 2 begins when rank 1's are received, so that receives of alternating sizes meet messages of the same */
        uint8_t byte;
        size_t bytes;
        if (self->rank == 2) store_get((tutti_store *)self->shared, "meet/first/0", &byte, 1, &bytes, WAIT_MS);
        for (int i = 0; i < N; i++) {
            fill(data[i], 20000, (unsigned)(self->rank * 1000 + i));
            start(self, &m[i], true, 0, 3, data[i], i % 2 ? 20000 : 50, 0);
        }
        for (int i = 0; i < N; i++) CHECK(wait_for(self, &m[i]) == TUTTI_OK);
    }
    meet_moving(self, "end");
    rank_close(self);
    return 0;
}

static void test_any_source(void **state)
{
    (void)state;
    run(any_source, 3);
}

/* ---- messages that do not ---------------------------------------------------------------------------------- */

static int mismatch(struct rank *self)
{
    static const struct {
        size_t send, recv;
        uint64_t print_send, print_recv;
    } pair[] = {
        {4, 8, 5, 5},        {8, 4, 5, 5},           {100, 100, 5, 6},      {100000, 100, 5, 5},
        {100, 100000, 5, 5}, {100000, 100001, 5, 5}, {100000, 99999, 5, 5}, {100000, 100000, 5, 6},
        {0, 100000, 5, 5},   {100000, 0, 5, 5},      {0, 0, 5, 6},
    };
    CHECK(rank_open(self) == TUTTI_OK);
    static uint8_t data[100100];
    int32_t other = 1 - self->rank;
    uint64_t tag = 0;
    struct message m, last;
    char name[32];
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        for (int way = 0; way < 4; way++, tag++) { /* expected or not; who is first */
            bool first = (way & 2) == (self->rank == 0 ? 2 : 0);
            snprintf(name, sizeof name, "m%d", (int)tag % 8);
            if (!first) turns(self, 30);
            memset(data, 0xee, sizeof data);
            if (self->rank == 0) {
                start_in(self, self->state, &m, true, other, tag, data, pair[i].send, way & 1 ? E : 0,
                         pair[i].print_send);
                int status = wait_for(self, &m);
                /* a small message is gone before anybody sees that it does not fit */
                if (pair[i].send > 65536) {
                    CHECK(status == TUTTI_ERR_MISMATCH);
                    CHECK(m.request.found_bytes == pair[i].recv);
                    CHECK(m.request.found_fingerprint == pair[i].print_recv);
                } else {
                    CHECK(status == TUTTI_OK || status == TUTTI_ERR_MISMATCH);
                }
            } else {
                start_in(self, self->state, &m, false, other, tag, data, pair[i].recv, way & 1 ? E : 0,
                         pair[i].print_recv);
                CHECK(wait_for(self, &m) == TUTTI_ERR_MISMATCH);
                CHECK(strstr(m.done.text, "rank 0") != NULL);
                CHECK(m.request.found_bytes == pair[i].send);
                CHECK(m.request.found_fingerprint == pair[i].print_send);
                for (size_t k = 0; k < sizeof data; k++) CHECK(data[k] == 0xee);
            }
        }
    }
    /* and the link is as good as before */
    start(self, &last, self->rank == 0, other, 1000, data, 50000, E);
    CHECK(wait_for(self, &last) == TUTTI_OK);
    rank_close(self);
    return 0;
}

static void test_mismatch_on_both_sides(void **state)
{
    (void)state;
    run(mismatch, 2);
}

/* Nobody receives: what the receiver keeps is bounded, and another tag is not held up. */
static int flood(struct rank *self)
{
    enum { N = 20000, BYTES = 4000 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t data[BYTES];
    struct message *m = calloc(N, sizeof *m), other;
    if (self->rank == 0) {
        int done = 0;
        fill(data, BYTES, 1);
        for (int i = 0; i < N; i++) {
            start(self, &m[i], true, 1, 1, data, BYTES, 0);
            done += m[i].done.is;
        }
        CHECK(done < N / 10);
        start(self, &other, true, 1, 2, data, BYTES, 0);
        CHECK(wait_for(self, &other) == TUTTI_OK);
        for (int i = 0; i < N; i++) CHECK(wait_for(self, &m[i]) == TUTTI_OK);
    } else {
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        start(self, &other, false, 0, 2, data, BYTES, 0);
        CHECK(wait_for(self, &other) == TUTTI_OK);
        getrusage(RUSAGE_SELF, &after);
        CHECK(after.ru_maxrss - before.ru_maxrss < 40000); /* KiB; all of it would be 80,000 */
        for (int i = 0; i < N; i++) {
            memset(data, 0, BYTES);
            start(self, &m[0], false, 0, 1, data, BYTES, 0);
            CHECK(wait_for(self, &m[0]) == TUTTI_OK);
            CHECK(is_filled(data, BYTES, 1));
        }
    }
    free(m);
    rank_close(self);
    return 0;
}

static void test_a_flood_is_bounded(void **state)
{
    (void)state;
    run(flood, 2);
}

/* ---- messages that are reduced ----------------------------------------------------------------------------- */

/* sum = addend + what comes, of floats */
static void start_sum(struct rank *self, struct message *m, int32_t peer, uint64_t tag, float *sum, const float *addend,
                      size_t n, uint32_t flags)
{
    *m = (struct message){0};
    m->request = (tutti_request){.peer = peer,
                                 .flags = flags,
                                 .tag = tag,
                                 .fingerprint = 5,
                                 .data = sum,
                                 .addend = addend,
                                 .bytes = n * sizeof *sum,
                                 .dtype = TUTTI_FLOAT32,
                                 .op = TUTTI_SUM,
                                 .owner = &m->done};
    begun(m, self->backend->recv_reduce(self->state, &m->request));
}

static void count_up(float *data, size_t n, size_t from)
{
    for (size_t i = 0; i < n; i++) data[i] = (float)(from + i);
}

/* Element i is i * times + rest. */
static bool is_counted(const float *data, size_t n, size_t times, size_t rest)
{
    for (size_t i = 0; i < n; i++)
        if (data[i] != (float)(times * i + rest)) return false;
    return true;
}

enum { SUM_MOST = 4096 };

/* In place or apart, before the message or after it, asked by a waiting caller or not; from memory that both map. */
static int sums_from(struct rank *self, float *out, uint64_t tag)
{
    static const size_t size[] = {1, 3, 26, 27, 1000, 1024, 1025, SUM_MOST};
    static float own[SUM_MOST], sum[SUM_MOST + 1];
    int32_t other = 1 - self->rank;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        for (int way = 0; way < 8; way++, tag++) {
            size_t n = size[i];
            struct message send, recv;
            uint32_t flags = way & 4 ? TUTTI_REQUEST_AWAITED : E;
            float *addend = way & 1 ? sum : own;
            count_up(addend, n, 2);
            count_up(out, n, 3);
            sum[n] = -1;
            if (way & 2) start_sum(self, &recv, other, tag, sum, addend, n, flags);
            start(self, &send, true, other, tag, out, n * sizeof *out, flags);
            if (!(way & 2)) start_sum(self, &recv, other, tag, sum, addend, n, flags);
            CHECK(wait_for(self, &recv) == TUTTI_OK && wait_for(self, &send) == TUTTI_OK);
            CHECK(is_counted(sum, n, 2, 5) && sum[n] == -1);
            CHECK(addend == sum || is_counted(own, n, 1, 2));
        }
    }
    return 0;
}

static int sums(struct rank *self)
{
    static float out[SUM_MOST];
    void *mapped = NULL;
    struct message m;
    CHECK(rank_open(self) == TUTTI_OK);
    CHECK(self->backend->recv_reduce_most >= (int64_t)sizeof out);
    CHECK(sums_from(self, out, 100) == 0);
    int status = self->backend->alloc(self->state, sizeof out, &mapped);
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_UNSUPPORTED);
    if (status == TUTTI_OK) CHECK(sums_from(self, mapped, 1000) == 0);
    start_sum(self, &m, 1 - self->rank, 1, out, out, (size_t)self->backend->recv_reduce_most, E);
    CHECK(m.done.is && m.done.status == TUTTI_ERR_INVALID_ARGUMENT); /* four times too much */
    meet_moving(self, "summed");
    if (status == TUTTI_OK) CHECK(self->backend->free(self->state, mapped) == TUTTI_OK);
    rank_close(self);
    return 0;
}

static void test_sums(void **state)
{
    (void)state;
    run(sums, 2);
}

/* More than a peer may have sent without a receive: the others ask first, and are then written, or read, or come in
 * parts. */
static int sums_of_a_flood(struct rank *self)
{
    enum { N = 300 };
    static struct message m[N];
    static float data[SUM_MOST], sum[SUM_MOST];
    CHECK(rank_open(self) == TUTTI_OK);
    count_up(data, SUM_MOST, 1);
    if (self->rank == 0) {
        for (int i = 0; i < N; i++) start(self, &m[i], true, 1, 1, data, sizeof data, E);
        CHECK(!m[N - 1].done.is);
        for (int i = 0; i < N; i++) CHECK(wait_for(self, &m[i]) == TUTTI_OK);
    } else {
        for (int i = 0; i < N; i++) {
            start_sum(self, &m[i], 0, 1, sum, i % 2 ? sum : data, SUM_MOST, E);
            CHECK(wait_for(self, &m[i]) == TUTTI_OK);
            CHECK(is_counted(sum, SUM_MOST, i % 2 ? 3 : 2, i % 2 ? 3 : 2));
        }
    }
    rank_close(self);
    return 0;
}

static void test_sums_of_a_flood(void **state)
{
    (void)state;
    run(sums_of_a_flood, 2);
}

/* A sum that its message does not fit, one that is taken back, one whose peer dies: told as of any receive. */
static int sums_that_fail(struct rank *self)
{
    static float data[SUM_MOST], sum[SUM_MOST];
    struct message m, next;
    CHECK(rank_open(self) == TUTTI_OK);
    count_up(data, SUM_MOST, 1);
    if (self->rank == 0) {
        start(self, &m, true, 1, 1, data, sizeof data, E);
        start(self, &next, true, 1, 2, data, sizeof data, E);
        int status = wait_for(self, &m);
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_MISMATCH);
        CHECK(wait_for(self, &next) == TUTTI_OK);
        meet_moving(self, "failed");
        _exit(0);
    }
    start_sum(self, &m, 0, 1, sum, data, SUM_MOST - 1, E);
    CHECK(wait_for(self, &m) == TUTTI_ERR_MISMATCH && m.request.found_bytes == sizeof data);
    start_sum(self, &m, 0, 3, sum, data, SUM_MOST, E);
    CHECK(!m.done.is && self->backend->cancel(self->state, &m.request) == TUTTI_OK);
    start_sum(self, &next, 0, 2, sum, data, SUM_MOST, E);
    CHECK(wait_for(self, &next) == TUTTI_OK && is_counted(sum, SUM_MOST, 2, 2));
    meet_moving(self, "failed");
    start_sum(self, &m, 0, 4, sum, data, SUM_MOST, E);
    CHECK(wait_for(self, &m) == TUTTI_ERR_PEER_LOST);
    rank_close(self);
    return 0;
}

static void test_sums_that_fail(void **state)
{
    (void)state;
    run_until_silent(sums_that_fail, 2, NULL);
}

/* ---- taking back ------------------------------------------------------------------------------------------- */

/* A send that nobody receives: it is back at once, or, where the peer could be reading its memory, when that has
 * answered. */
static bool taken_back(struct rank *self, struct message *m)
{
    if (self->backend->cancel(self->state, &m->request) == TUTTI_OK) return !m->done.is;
    return !m->done.is && wait_for(self, m) == TUTTI_ERR_ABORTED;
}

static int cancels(struct rank *self)
{
    enum { BYTES = 8 << 20 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t *data = calloc(1, BYTES);
    struct message m, last;
    int32_t other = 1 - self->rank;
    const tutti_backend *backend = self->backend;
    /* a link, so that nothing is merely queued */
    start(self, &m, self->rank == 0, other, 1, data, 4, 0);
    CHECK(wait_for(self, &m) == TUTTI_OK);
    meet_moving(self, "linked");
    if (self->rank == 0) {
        start(self, &m, false, 1, 2, data, 4, 0); /* posted only */
        CHECK(backend->cancel(self->state, &m.request) == TUTTI_OK && !m.done.is);
        start(self, &m, true, 1, 3, data, BYTES, E); /* not asked for */
        CHECK(taken_back(self, &m));
        memset(data, 0xee, BYTES);
        start(self, &m, false, 1, 4, data, BYTES, E); /* announced: the peer may be writing */
        int status = backend->cancel(self->state, &m.request);
        if (status != TUTTI_OK) CHECK(wait_for(self, &m) != 1);
        meet_moving(self, "cancelled");
        await_moving(self, "tried", 1); /* the peer sends it, and takes it back */
        if (m.done.status != TUTTI_OK)
            for (size_t i = 0; i < BYTES; i++) CHECK(data[i] == 0xee);
    } else {
        meet_moving(self, "cancelled");
        start(self, &m, true, 0, 4, data, BYTES, E);
        turns(self, 200);
        CHECK(!m.done.is);
        CHECK(taken_back(self, &m));
        say(self, "tried");
    }
    /* the link still serves */
    start(self, &last, self->rank == 0, other, 9, data, 100000, E);
    CHECK(wait_for(self, &last) == TUTTI_OK);
    CHECK(self->told.lost == 0 || self->told.left);
    free(data);
    rank_close(self);
    return 0;
}

static void test_cancel(void **state)
{
    (void)state;
    run(cancels, 2);
}

/* The peer does not answer: the memory is back in time nevertheless. */
static int cancel_silent(struct rank *self)
{
    enum { BYTES = 8 << 20 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t *data = calloc(1, BYTES);
    struct message m;
    start(self, &m, self->rank == 0, 1 - self->rank, 1, data, 4, 0);
    CHECK(wait_for(self, &m) == TUTTI_OK);
    meet_moving(self, "linked");
    if (self->rank == 1) {
        meet(self->shared, "silent", 1, 2); /* as if stopped, until the other has its memory back */
        free(data);
        rank_close(self);
        return 0;
    }
    start(self, &m, false, 1, 2, data, BYTES, E);
    turns(self, 20);
    if (self->backend->cancel(self->state, &m.request) != TUTTI_OK) CHECK(wait_for(self, &m) < 0);
    meet(self->shared, "silent", 0, 2);
    free(data);
    rank_close(self);
    return 0;
}

static void test_cancel_with_a_silent_peer(void **state)
{
    (void)state;
    run(cancel_silent, 2);
}

#endif
