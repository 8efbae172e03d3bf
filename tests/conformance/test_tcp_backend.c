/* The tcp plug-in, driven through its table by two or three processes without the core. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tcp_ranks.h"

enum { E = TUTTI_REQUEST_EXPECTED };

/* The ranks talk over a provider's datagram endpoints, not over connected ones. */
static bool is_rdm(void)
{
    const char *provider = getenv("TUTTI_FABRIC_PROVIDER");
    return provider != NULL && strchr(provider, ';') != NULL;
}

/* How long a peer may be silent over datagrams: long, as a rank of a busy machine may not run for seconds; short for
 * run_until_silent alone, which runs what waits for that silence. */
#define PATIENT_MS "20000"
#define SILENT_MS "3000"

static void run_until_silent(scenario *body, int world, const int *expected)
{
    if (is_rdm()) setenv("TUTTI_SILENT_MS", SILENT_MS, 1);
    run_expecting(body, world, expected);
    if (is_rdm()) setenv("TUTTI_SILENT_MS", PATIENT_MS, 1);
}

/* ---- messages that fit ------------------------------------------------------------------------------------- */

static int sizes(struct rank *self)
{
    static const size_t size[] = {0,
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
                                  (64 << 20) + 13};
    CHECK(rank_open(self) == TUTTI_OK);
    int32_t other = 1 - self->rank;
    uint64_t tag = 100;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        for (int way = 0; way < 4; way++, tag++) { /* expected or not, receive or send first */
            size_t n = size[i];
            uint8_t *in = malloc(n + 64), *out = malloc(n + 64);
            struct message send, recv;
            uint32_t flags = way & 1 ? E : 0;
            fill(out, n, (unsigned)(tag + (uint64_t)self->rank));
            memset(in, 0xee, n + 64);
            if (way & 2) start(self, &recv, false, other, tag, in, n, flags);
            start(self, &send, true, other, tag, out, n, flags);
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

/* ---- groups and notes -------------------------------------------------------------------------------------- */

static int groups(struct rank *self)
{
    CHECK(rank_open(self) == TUTTI_OK);
    int32_t members[] = {2, 0}; /* rank 2 is 0 there */
    struct told told = {0};
    struct message m, n;
    uint8_t a = 0, b = 0;
    void *child = NULL;
    if (self->rank != 1) {
        int32_t mine = self->rank == 2 ? 0 : 1;
        child = state_new(self->backend);
        tutti_group_info info = {.size = sizeof info,
                                 .rank = mine,
                                 .world_size = 2,
                                 .global_ranks = members,
                                 .id = 78,
                                 .parent = self->state,
                                 .core = &told,
                                 .store = (tutti_store *)self->shared,
                                 .timeout_ms = 10000};
        CHECK(self->backend->open(child, &info, &host) == TUTTI_OK);
        /* the same ranks and the same tag in both groups */
        int32_t other = self->rank == 2 ? 0 : 2;
        if (self->rank == 2) {
            a = 11;
            b = 22;
            start(self, &m, true, other, 5, &a, 1, 0);
            start_in(self, child, &n, true, 1, 5, &b, 1, 0, 5);
        } else {
            start_in(self, child, &n, false, TUTTI_ANY_SOURCE, 5, &b, 1, 0, 5);
            start(self, &m, false, other, 5, &a, 1, 0);
        }
        CHECK(wait_for(self, &m) == TUTTI_OK && wait_for(self, &n) == TUTTI_OK);
        CHECK(a == 11 && b == 22);
        if (self->rank == 0) CHECK(n.request.source == 0);
        say(self, "linked"); /* notes need a link, and do not make one */
        await_moving(self, "linked", other);
        CHECK(self->backend->notify(child, 1 - mine, "hello", 5) == TUTTI_OK);
        for (int64_t end = now_ns() + (int64_t)WAIT_MS * 1000000; told.notes == 0 && now_ns() < end;) turn(self);
        CHECK(told.notes == 1 && told.note_from == 1 - mine && told.note_bytes == 5);
        CHECK(memcmp(told.note, "hello", 5) == 0 && self->told.notes == 0);
        uint8_t large[TUTTI_NOTIFY_MAX + 1] = {3};
        CHECK(self->backend->notify(child, 1 - mine, large, sizeof large) == TUTTI_ERR_INVALID_ARGUMENT);
        CHECK(self->backend->notify(self->state, 1, "nobody", 6) == TUTTI_OK); /* no link yet: dropped */
        /* what is pending is dropped; the family goes on */
        start_in(self, child, &n, false, 1 - mine, 99, &b, 1, 0, 5);
        self->backend->close(child);
        free(child);
        CHECK(!n.done.is);
    }
    meet(self->shared, "closed", self->rank, self->world);
    for (int32_t peer = 0; peer < 3; peer++) {
        if (peer == self->rank) continue;
        struct message in, out;
        uint8_t x = (uint8_t)self->rank, y = 9;
        start(self, &in, false, peer, 8, &y, 1, 0);
        start(self, &out, true, peer, 8, &x, 1, 0);
        CHECK(wait_for(self, &in) == TUTTI_OK && wait_for(self, &out) == TUTTI_OK && y == peer);
    }
    rank_close(self);
    return 0;
}

static void test_groups_and_notes(void **state)
{
    (void)state;
    run(groups, 3);
}

/* ---- ends -------------------------------------------------------------------------------------------------- */

static int killed(struct rank *self)
{
    CHECK(rank_open(self) == TUTTI_OK);
    static uint8_t data[1 << 20];
    struct message m, pending, large, other;
    int32_t peer = self->rank == 0 ? 1 : 0;
    if (self->rank < 2) {
        start(self, &m, self->rank == 1, peer, 1, data, 4, 0);
        CHECK(wait_for(self, &m) == TUTTI_OK);
    }
    if (self->rank == 0) say(self, "linked");
    if (self->rank == 1) {
        await_moving(self, "linked", 0); /* the message waits for the link */
        raise(SIGKILL);
    }
    if (self->rank == 0) {
        start(self, &pending, false, 1, 2, data, 4, 0);
        start(self, &large, true, 1, 3, data, sizeof data, E);
        CHECK(wait_for(self, &pending) == TUTTI_ERR_PEER_LOST);
        const char *text = pending.done.text;
        CHECK(strstr(text, "rank 1 is lost: ") != NULL);
        /* over datagrams: the silence, or the provider's word for it, if something is sent before */
        CHECK(is_rdm() || strstr(text, "connection closed") != NULL);
        CHECK(wait_for(self, &large) == TUTTI_ERR_PEER_LOST);
        CHECK(self->told.lost == 1 && self->told.lost_rank == 1 && !self->told.left);
        start(self, &m, true, 1, 4, data, 4, 0);
        CHECK(m.done.is && m.done.status == TUTTI_ERR_PEER_LOST);
    }
    /* the others go on */
    start(self, &other, self->rank == 0, self->rank == 0 ? 2 : 0, 9, data, 100000, E);
    CHECK(wait_for(self, &other) == TUTTI_OK);
    rank_close(self);
    return 0;
}

static void test_a_killed_peer_is_named(void **state)
{
    (void)state;
    run_until_silent(killed, 3, (int[]){0, -SIGKILL, 0});
}

/* Killed in the middle of a large message, at many moments. */
static int killed_inside(struct rank *self)
{
    enum { BYTES = 32 << 20 };
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t *data = calloc(1, BYTES);
    struct message in, out;
    for (uint64_t tag = 0;; tag++) {
        start(self, &in, false, 1 - self->rank, tag, data, BYTES / 2, E);
        start(self, &out, true, 1 - self->rank, tag, data + BYTES / 2, BYTES / 2, E);
        if (self->rank == 1 && tag == 1) { /* the link stands since tag 0 */
            for (int i = 0; i < 20; i++) self->backend->progress(self->state);
            raise(SIGKILL);
        }
        int status = wait_for(self, &in);
        if (status == TUTTI_OK) status = wait_for(self, &out);
        if (status == TUTTI_OK) continue;
        CHECK(status == TUTTI_ERR_PEER_LOST);
        break;
    }
    wait_for(self, &out);
    CHECK(out.done.is && in.done.is);
    free(data);
    rank_close(self);
    return 0;
}

static void test_killed_inside_a_large_message(void **state)
{
    (void)state;
    for (int i = 0; i < (is_rdm() ? 2 : 5); i++) run_until_silent(killed_inside, 2, (int[]){0, -SIGKILL});
}

static int leaves(struct rank *self)
{
    CHECK(rank_open(self) == TUTTI_OK);
    static uint8_t data[400000];
    struct message m, small, pending;
    if (is_rdm()) { /* close waits 0.9 s, in which a datagram link is not made for sure */
        start(self, &m, self->rank == 0, 1 - self->rank, 9, data, 4, 0);
        CHECK(wait_for(self, &m) == TUTTI_OK);
        meet_moving(self, "linked");
    }
    if (self->rank == 1) {
        fill(data, sizeof data, 3);
        start(self, &small, true, 0, 1, data, 1000, 0); /* queued, where there is no link yet */
        int64_t before = now_ns();
        rank_close(self);
        CHECK(now_ns() - before < 10000000000); /* 0.9 s, and what a busy machine adds */
        say(self, "left");
        return 0;
    }
    await_moving(self, "left", 1);
    start(self, &small, false, 1, 1, data, 1000, 0); /* it has left, but its message is here */
    CHECK(wait_for(self, &small) == TUTTI_OK && is_filled(data, 1000, 3));
    start(self, &pending, false, 1, 2, data, 4, 0);
    CHECK(wait_for(self, &pending) == TUTTI_ERR_PEER_LOST);
    CHECK(strstr(pending.done.text, "rank 1") != NULL && strstr(pending.done.text, "left the group") != NULL);
    CHECK(self->told.lost == 1 && self->told.left);
    start(self, &m, true, 1, 3, data, 4, 0);
    CHECK(m.done.status == TUTTI_ERR_PEER_LOST);
    rank_close(self);
    return 0;
}

static void test_leaving(void **state)
{
    (void)state;
    run(leaves, 2);
}

/* Opened and closed again and again, with both ranks calling each other at once: no descriptor is left. */
static int rounds(struct rank *self)
{
    int before = 0;
    for (int round = 0; round < 12; round++) {
        char name[16];
        uint8_t in[3] = {0}, out[3] = {1, 2, 3};
        struct message a, b;
        snprintf(name, sizeof name, "r%d", round);
        CHECK(rank_open(self) == TUTTI_OK);
        meet(self->shared, name, self->rank, self->world);
        for (int32_t peer = 0; peer < self->world; peer++) {
            if (peer == self->rank) continue;
            start(self, &a, true, peer, 1, out, 3, 0);
            start(self, &b, false, peer, 1, in, 3, 0);
            CHECK(wait_for(self, &a) == TUTTI_OK && wait_for(self, &b) == TUTTI_OK && in[2] == 3);
        }
        rank_close(self);
        snprintf(name, sizeof name, "e%d", round);
        meet(self->shared, name, self->rank, self->world);
        if (round == 1) before = count_fds();
    }
    CHECK(count_fds() == before);
    return 0;
}

static void test_no_descriptor_is_left(void **state)
{
    (void)state;
    run(rounds, 2);
}

static int odd_closes(struct rank *self)
{
    void *state = state_new(self->backend);
    self->backend->close(state); /* zeroed */
    free(state);
    setenv("TUTTI_SHM", "0", 1);
    setenv("TUTTI_IFACE", "no-such-interface", 1);
    CHECK(rank_open(self) == TUTTI_ERR_BACKEND);
    CHECK(strstr(last_error, "no-such-interface") != NULL);
    rank_close(self);
    setenv("TUTTI_IFACE", "127.0.0.0/8", 1);
    setenv("TUTTI_FABRIC_PROVIDER", "no-such-provider", 1);
    CHECK(rank_open(self) == TUTTI_ERR_BACKEND);
    CHECK(strstr(last_error, "no-such-provider") != NULL);
    rank_close(self);
    unsetenv("TUTTI_FABRIC_PROVIDER");
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t data[100];
    struct message m;
    start(self, &m, false, 1, 1, data, sizeof data, 0); /* nobody will ever answer */
    rank_close(self);
    CHECK(!m.done.is);
    return 0;
}

static void test_closing_after_failures(void **state)
{
    (void)state;
    struct shared *shared = shared_new();
    (void)shared;
    run(odd_closes, 1 + 1);
}

/* ---- strangers --------------------------------------------------------------------------------------------- */

static int wrong_token(struct rank *self)
{
    if (self->rank == 1) token[0] = 99;
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t data[4] = {0};
    struct message m;
    if (self->rank == 1) start(self, &m, true, 0, 1, data, 4, 0);
    meet_moving(self, "called");
    if (self->rank == 0) start(self, &m, false, 1, 1, data, 4, 0);
    CHECK(wait_for(self, &m) == (self->rank == 1 && m.done.status == TUTTI_OK ? TUTTI_OK : TUTTI_ERR_PEER_LOST));
    for (int64_t end = now_ns() + (int64_t)WAIT_MS * 1000000; self->told.lost == 0 && now_ns() < end;) turn(self);
    CHECK(self->told.lost == 1);
    CHECK(strstr(self->told.why, "token") != NULL);
    meet_moving(self, "end"); /* one that left early is lost for another reason */
    rank_close(self);
    return 0;
}

static void test_wrong_token(void **state)
{
    (void)state;
    run_until_silent(wrong_token, 2, NULL);
}

/* A rank whose greetings are right, but not what marks its messages: none of them counts. */
static int wrong_secret(struct rank *self)
{
    spoils_secrets = self->rank == 1;
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t data[4] = {0};
    struct message m;
    start(self, &m, self->rank == 1, self->rank == 1 ? 0 : TUTTI_ANY_SOURCE, 1, data, 4, 0);
    if (self->rank == 0) {
        for (int64_t end = now_ns() + (int64_t)WAIT_MS * 1000000; dropped < 2 && now_ns() < end;) turn(self);
        CHECK(dropped >= 2); /* a heartbeat and the message */
        CHECK(!m.done.is);
    }
    meet_moving(self, "end");
    rank_close(self);
    return 0;
}

static void test_wrong_secret(void **state)
{
    (void)state;
    if (!is_rdm()) skip(); /* a connected endpoint's messages need no secret */
    run(wrong_secret, 2);
}

/* The entry of the address book has an address of our own format, or the name of an endpoint: here a sockaddr. */
static int knock(const uint8_t *address, const void *data, size_t bytes)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(address[16] | address[17] << 8))};
    memcpy(&to.sin_addr, address + 24, 4);
    if (is_rdm()) memcpy(&to, address + 56, sizeof to);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) perror("knock");
    if (bytes > 0 && send(fd, data, bytes, MSG_NOSIGNAL) < 0) perror("knock: send");
    return fd;
}

static int strangers(struct rank *self)
{
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t address[256], data[1000] = {0};
    size_t bytes;
    struct message m;
    if (self->rank == 0) {
        store_get((tutti_store *)self->shared, "tcp/1", address, sizeof address, &bytes, 5000);
        uint8_t half[32] = {3, 0, 0, 10}, request[32 + 104] = {3, 0, 0, 104};
        int fd[64], n = 0;
        for (int i = 0; i < 40; i++) fd[n++] = knock(address, NULL, 0);
        fd[n++] = knock(address, "GET / HTTP/1.0\r\n\r\nand some more bytes", 38);
        fd[n++] = knock(address, half, sizeof half);
        fd[n++] = knock(address, request, sizeof request);
        request[40] ^= 1;
        memcpy(request + 32, "TUTTItcp", 8);
        fd[n++] = knock(address, request, sizeof request);
        close(fd[0]);
        meet(self->shared, "knocked", 0, 2);
        start(self, &m, true, 1, 1, data, sizeof data, 0);
        CHECK(wait_for(self, &m) == TUTTI_OK);
        start(self, &m, false, 1, 2, data, sizeof data, 0);
        CHECK(wait_for(self, &m) == TUTTI_OK);
        for (int i = 1; i < n; i++) close(fd[i]);
    } else {
        meet(self->shared, "knocked", 1, 2);
        int64_t before = now_ns();
        start(self, &m, false, 0, 1, data, sizeof data, 0);
        CHECK(wait_for(self, &m) == TUTTI_OK);
        CHECK(now_ns() - before < 10000000000); /* a call that nobody answers ends after 15 s */
        start(self, &m, true, 0, 2, data, sizeof data, 0);
        CHECK(wait_for(self, &m) == TUTTI_OK);
    }
    rank_close(self);
    return 0;
}

static void test_strangers_at_the_listener(void **state)
{
    (void)state;
    run(strangers, 2);
}

/* Silent connections are ended after a while; one that finds no descriptor left does not make us spin. */
static int crowd(struct rank *self)
{
    CHECK(rank_open(self) == TUTTI_OK);
    uint8_t address[256];
    size_t bytes;
    struct message m;
    start(self, &m, self->rank == 0, 1 - self->rank, 1, address, 4, 0);
    CHECK(wait_for(self, &m) == TUTTI_OK);
    meet_moving(self, "linked");
    if (self->rank == 0) {
        int fd[50];
        CHECK(store_get((tutti_store *)self->shared, "tcp/1", address, sizeof address, &bytes, 5000) == TUTTI_OK);
        for (int i = 0; i < 50; i++) fd[i] = knock(address, NULL, 0);
        meet(self->shared, "came", 0, 2);
        meet(self->shared, "ended", 0, 2);
        for (int i = 0; i < 50; i++) close(fd[i]);
        fd[0] = knock(address, NULL, 0);
        meet(self->shared, "full", 0, 2);
        meet(self->shared, "end", 0, 2);
        close(fd[0]);
    } else {
        int before = count_fds();
        meet(self->shared, "came", 1, 2);
        turns(self, 100);
        CHECK(count_fds() == before + 50);
        turns(self, 3000);
        CHECK(count_fds() == before);
        struct rlimit limit = {(rlim_t)before, (rlim_t)before};
        while (fcntl((int)limit.rlim_cur - 1, F_GETFD) < 0) limit.rlim_cur--;
        int filler = dup(0); /* the lowest that is free */
        while (filler >= 0 && filler < (int)limit.rlim_cur) filler = dup(0);
        if (filler >= 0) close(filler);
        setrlimit(RLIMIT_NOFILE, &limit);
        meet(self->shared, "ended", 1, 2);
        meet(self->shared, "full", 1, 2);
        struct rusage start_usage, end_usage;
        getrusage(RUSAGE_SELF, &start_usage);
        turns(self, 1000);
        getrusage(RUSAGE_SELF, &end_usage);
        CHECK(cpu_ms(&start_usage, &end_usage) < 200);
        meet(self->shared, "end", 1, 2);
    }
    rank_close(self);
    return 0;
}

static void test_a_crowd_at_the_listener(void **state)
{
    (void)state;
    if (is_rdm()) { /* it would have to tell its peers' sockets from strangers', which the provider does not show */
        print_message("skipped: the provider keeps its own connections\n");
        skip();
    }
    run(crowd, 2);
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

/* ---- manners ----------------------------------------------------------------------------------------------- */

static int manners(struct rank *self)
{
    struct sigaction was[32], is;
    for (int s = 1; s < 32; s++) sigaction(s, NULL, &was[s]);
    CHECK(rank_open(self) == TUTTI_OK);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP) CHECK(sigaction(s, NULL, &is) == 0 && is.sa_handler == was[s].sa_handler);
    uint8_t data[4];
    struct message m;
    start(self, &m, self->rank == 0, 1 - self->rank, 1, data, 4, 0);
    CHECK(wait_for(self, &m) == TUTTI_OK);
    meet_moving(self, "linked");
    turns(self, 100); /* what follows a handshake */
    /* idle: the descriptors stay quiet, and it costs next to nothing */
    struct rusage before, after;
    int descriptors[TUTTI_ARM_MAX], wakes = 0;
    getrusage(RUSAGE_SELF, &before);
    for (int64_t end = now_ns() + 1000000000; now_ns() < end; wakes++) {
        while (self->backend->progress(self->state) != 0) continue;
        int n = self->backend->arm(self->state, descriptors);
        struct pollfd polled[TUTTI_ARM_MAX];
        for (int i = 0; i < n; i++) polled[i] = (struct pollfd){descriptors[i], POLLIN, 0};
        if (n > 0) poll(polled, (nfds_t)n, 250);
    }
    getrusage(RUSAGE_SELF, &after);
    double cpu = cpu_ms(&before, &after);
    CHECK(wakes < 20 && cpu < 20);
    meet(self->shared, "end", self->rank, self->world);
    rank_close(self);
    return 0;
}

static void test_signal_handlers_and_idleness(void **state)
{
    (void)state;
    run(manners, 2);
}

/* Two ranks that are threads of one process. */
struct thread {
    pthread_t thread;
    struct shared *shared;
    int rank, result;
};

static void *thread_main(void *argument)
{
    struct thread *thread = argument;
    thread->result = run_rank(sizes, thread->shared, thread->rank, 2);
    return NULL;
}

static void test_ranks_as_threads(void **state)
{
    (void)state;
    struct shared *shared = shared_new();
    struct thread thread[2] = {{.shared = shared, .rank = 0}, {.shared = shared, .rank = 1}};
    for (int i = 0; i < 2; i++) pthread_create(&thread[i].thread, NULL, thread_main, &thread[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i].thread, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(thread[i].result, 0);
    munmap(shared, sizeof *shared);
}

/* test_tcp_backend [rdm]: over connected endpoints and shared memory, or over TUTTI_FABRIC_PROVIDER's datagrams. */
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "rdm") == 0) {
        setenv("TUTTI_FABRIC_PROVIDER", "tcp;ofi_rxm", 0);
        setenv("TUTTI_SILENT_MS", PATIENT_MS, 1);
    }
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    token_init();
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_both_send_first),
        cmocka_unit_test(test_a_thousand_at_once),
        cmocka_unit_test(test_order_within_a_tag),
        cmocka_unit_test(test_any_source),
        cmocka_unit_test(test_mismatch_on_both_sides),
        cmocka_unit_test(test_a_flood_is_bounded),
        cmocka_unit_test(test_groups_and_notes),
        cmocka_unit_test(test_a_killed_peer_is_named),
        cmocka_unit_test(test_killed_inside_a_large_message),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_no_descriptor_is_left),
        cmocka_unit_test(test_wrong_token),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_cancel_with_a_silent_peer),
        cmocka_unit_test(test_signal_handlers_and_idleness),
        cmocka_unit_test(test_ranks_as_threads),
    };
    const struct CMUnitTest network_tests[] = {
        cmocka_unit_test(test_closing_after_failures),
        cmocka_unit_test(test_strangers_at_the_listener),
        cmocka_unit_test(test_a_crowd_at_the_listener),
        cmocka_unit_test(test_wrong_secret),
    };
    setenv("TUTTI_SHM", "0", 1);
    int failed = cmocka_run_group_tests_name("over libfabric", tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("libfabric's own", network_tests, NULL, NULL);
    if (is_rdm()) return failed; /* what does not use the provider was tested without it */
    setenv("TUTTI_SHM", "1", 1);
    failed += cmocka_run_group_tests_name("over shared memory", tests, NULL, NULL);
    setenv("TUTTI_SHM_CMA", "0", 1); /* as where process_vm_readv is refused */
    failed += cmocka_run_group_tests_name("over shared memory, copied", tests, NULL, NULL);
    return failed;
}
