/* The tcp plug-in, driven through its table by two or three processes without the core. */
#include "rank.h"
#include "usage.h"

/* ---- groups and control messages
 * -------------------------------------------------------------------------------------- */

/* A subgroup of ranks 2 and 0, in this order. */
struct subgroup {
    void *state;
    int32_t rank, other; /* this rank in it; the other member in the world */
    struct notified notified;
};

static int open_subgroup(struct rank *self, struct subgroup *sub)
{
    static const int32_t members[] = {2, 0};
    *sub = (struct subgroup){.state = rank_state_new(self->backend), .rank = self->rank == 2 ? 0 : 1};
    sub->other = members[1 - sub->rank];
    tutti_group_info info = {.size = sizeof info,
                             .rank = sub->rank,
                             .world_size = 2,
                             .global_ranks = members,
                             .id = 78,
                             .parent = self->state,
                             .core = &sub->notified,
                             .store = (tutti_store *)self->shared,
                             .timeout_ms = 10000};
    CHECK(self->backend->open(sub->state, &info, &rank_host) == TUTTI_OK);
    return 0;
}

/* Exchanges messages with the same tag in both groups. */
static int exchange_in_both(struct rank *self, struct subgroup *sub)
{
    struct message m, n;
    uint8_t a = 0, b = 0;
    if (self->rank == 2) {
        a = 11;
        b = 22;
        rank_send(self, &m, sub->other, 5, &a, 1, 0);
        rank_start(self, sub->state, &n, true,
                   &(tutti_request){.peer = 1, .tag = 5, .data = &b, .bytes = 1, .fingerprint = 5});
    } else {
        rank_start(self, sub->state, &n, false,
                   &(tutti_request){.peer = TUTTI_ANY_SOURCE, .tag = 5, .data = &b, .bytes = 1, .fingerprint = 5});
        rank_recv(self, &m, sub->other, 5, &a, 1, 0);
    }
    CHECK(rank_wait(self, &m) == TUTTI_OK && rank_wait(self, &n) == TUTTI_OK);
    CHECK(a == 11 && b == 22);
    if (self->rank == 0) CHECK(n.request.source == 0);
    return 0;
}

/* A control message uses an existing link, and does not make one. */
static int notify(struct rank *self, struct subgroup *sub)
{
    const struct notified *notified = &sub->notified;
    rank_report(self, "linked");
    rank_await(self, "linked", sub->other);
    CHECK(self->backend->notify(sub->state, 1 - sub->rank, "hello", 5) == TUTTI_OK);
    for (int64_t end = monotonic_ns() + (int64_t)WAIT_MS * 1000000; notified->messages == 0 && monotonic_ns() < end;)
        rank_progress(self);
    CHECK(notified->messages == 1 && notified->message_from == 1 - sub->rank && notified->message_bytes == 5);
    CHECK(memcmp(notified->message, "hello", 5) == 0 && self->notified.messages == 0);
    uint8_t large[TUTTI_NOTIFY_MAX + 1] = {3};
    CHECK(self->backend->notify(sub->state, 1 - sub->rank, large, sizeof large) == TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(self->backend->notify(self->state, 1, "nobody", 6) == TUTTI_OK); /* no link yet: dropped */
    return 0;
}

/* Closes the subgroup, which drops its pending operations. */
static int close_subgroup(struct rank *self, struct subgroup *sub)
{
    struct message pending;
    uint8_t b = 0;
    rank_start(self, sub->state, &pending, false,
               &(tutti_request){.peer = 1 - sub->rank, .tag = 99, .data = &b, .bytes = 1, .fingerprint = 5});
    self->backend->close(sub->state);
    free(sub->state);
    CHECK(!pending.done.is);
    return 0;
}

static int groups(struct rank *self)
{
    struct subgroup sub;
    CHECK(rank_open(self) == TUTTI_OK);
    if (self->rank != 1 && (open_subgroup(self, &sub) != 0 || exchange_in_both(self, &sub) != 0 ||
                            notify(self, &sub) != 0 || close_subgroup(self, &sub) != 0))
        return 1;
    shared_store_barrier(self->shared, "closed", self->rank, self->world);
    for (int32_t peer = 0; peer < 3; peer++) { /* the first group still works */
        if (peer == self->rank) continue;
        struct message in, out;
        uint8_t x = (uint8_t)self->rank, y = 9;
        rank_recv(self, &in, peer, 8, &y, 1, 0);
        rank_send(self, &out, peer, 8, &x, 1, 0);
        CHECK(rank_wait(self, &in) == TUTTI_OK && rank_wait(self, &out) == TUTTI_OK && y == peer);
    }
    rank_close(self);
    return 0;
}

static void test_groups_and_control_messages(void **state)
{
    (void)state;
    rank_run(groups, 3);
}

/* ---- idle -------------------------------------------------------------------------------------------------- */

/* True if for a second no descriptor is ready and almost no CPU time is used. */
static bool is_idle_for_a_second(struct rank *self)
{
    struct rusage before, after;
    int descriptors[TUTTI_ARM_MAX], wakes = 0;
    getrusage(RUSAGE_SELF, &before);
    for (int64_t end = monotonic_ns() + 1000000000; monotonic_ns() < end; wakes++) {
        while (self->backend->progress(self->state) != 0) continue;
        int n = self->backend->arm(self->state, descriptors);
        struct pollfd polled[TUTTI_ARM_MAX];
        for (int i = 0; i < n; i++) polled[i] = (struct pollfd){descriptors[i], POLLIN, 0};
        if (n > 0) poll(polled, (nfds_t)n, 250);
    }
    getrusage(RUSAGE_SELF, &after);
    double cpu = rank_cpu_ms(&before, &after);
#ifdef __SANITIZE_THREAD__
    cpu = 0; /* TSan's own thread uses more */
#endif
    if (wakes < 20 && cpu < 20) return true;
    fprintf(stderr, "rank %d: %d wakes and %.1f ms of CPU in a second\n", self->rank, wakes, cpu);
    return false;
}

static int manners(struct rank *self)
{
    struct sigaction was[32], is;
    for (int s = 1; s < 32; s++) sigaction(s, NULL, &was[s]);
    CHECK(rank_open(self) == TUTTI_OK);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP) CHECK(sigaction(s, NULL, &is) == 0 && is.sa_handler == was[s].sa_handler);
    uint8_t data[4];
    struct message m;
    (self->rank == 0 ? rank_send : rank_recv)(self, &m, 1 - self->rank, 1, data, 4, 0);
    CHECK(rank_wait(self, &m) == TUTTI_OK);
    rank_barrier(self, "linked");
    bool idle = false; /* idle once the work after a handshake is done, which takes time on a slow machine */
    for (int i = 0; i < 5 && !idle; i++) idle = is_idle_for_a_second(self);
    CHECK(idle);
    shared_store_barrier(self->shared, "end", self->rank, self->world);
    rank_close(self);
    return 0;
}

static void test_signal_handlers_and_idleness(void **state)
{
    (void)state;
    rank_run(manners, 2);
}

/* ---- links ----------------------------------------------------------------------------------------------------- */

/* Reports that no rank shares memory, because the others do not exist. */
static int gather_nothing(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                          int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms)
{
    (void)store, (void)key, (void)part, (void)entry, (void)entry_bytes, (void)n, (void)all, (void)capacity;
    (void)timeout_ms;
    *bytes = 0;
    return TUTTI_OK;
}

/* Opens a group of n ranks in which no other rank exists.  Returns the bytes that the plug-in has allocated for it, or
 * 0 if something is wrong. */
static size_t bytes_of_group(struct rank *self, int32_t n)
{
    char text[1024] = "", connected[64];
    int32_t *ranks = malloc((size_t)n * sizeof *ranks);
    for (int32_t i = 0; i < n; i++) ranks[i] = i;
    void *state = rank_state_new(self->backend);
    tutti_host alone = rank_host;
    alone.store_gather = gather_nothing;
    tutti_group_info info = {.size = sizeof info,
                             .world_size = n,
                             .global_ranks = ranks,
                             .id = 77,
                             .core = &self->notified,
                             .store = (tutti_store *)self->shared,
                             .device = {TUTTI_CPU, 0},
                             .timeout_ms = 10000,
                             .local_world_size = 1,
                             .name = "test"};
    size_t before = usage_bytes();
    bool is_good = self->backend->open(state, &info, &alone) == TUTTI_OK;
    /* none of these calls makes a link */
    is_good = is_good && self->backend->notify(state, n - 1, "nobody", 6) == TUTTI_OK;
    is_good = is_good && self->backend->progress(state) == 0 && self->backend->drain(state) == -1;
    snprintf(connected, sizeof connected, "connected to 0 of %d ranks", n - 1);
    is_good = is_good && self->backend->describe(&alone, state, text, sizeof text) == TUTTI_OK;
    is_good = is_good && strstr(text, connected) != NULL;
    size_t bytes = usage_bytes() - before;
    if (!is_good) fprintf(stderr, "a group of %d ranks: %s; %s\n", n, rank_last_error, text);
    self->backend->close(state);
    free(state);
    free(ranks);
    return is_good ? bytes : 0;
}

/* Checks that a rank keeps an address and a few counters for each other rank, and nothing for an unused link. */
static int cost_of_peers(struct rank *self)
{
    enum { FEW = 2, MANY = 20000, MOST = 160 };
    CHECK(bytes_of_group(self, FEW) > 0); /* includes what libfabric allocates once */
    size_t few = bytes_of_group(self, FEW), many = bytes_of_group(self, MANY);
    CHECK(few > 0 && many > few);
    size_t each = (many - few) / (MANY - FEW);
    if (each > MOST) fprintf(stderr, "%zu bytes for each rank before any link; at most %d\n", each, MOST);
    CHECK(each <= MOST);
    return 0;
}

static void test_links_cost_nothing_before_they_are_made(void **state)
{
    (void)state;
    rank_run(cost_of_peers, 1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_and_control_messages),
        cmocka_unit_test(test_signal_handlers_and_idleness),
    };
    static const struct CMUnitTest network_tests[] = {
        cmocka_unit_test(test_links_cost_nothing_before_they_are_made),
    };
    return rank_tests_main(argc, argv,
                           &(struct rank_tests){.all = tests,
                                                .n_all = sizeof tests / sizeof *tests,
                                                .network = network_tests,
                                                .n_network = sizeof network_tests / sizeof *network_tests});
}
