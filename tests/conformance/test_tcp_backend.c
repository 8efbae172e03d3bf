/* The tcp plug-in, driven through its table by two or three processes without the core. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tcp_ends.h"
#include "tcp_links.h"
#include "tcp_messages.h"
#include "tcp_ranks.h"
#include "tcp_strangers.h"

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

/* ---- manners ----------------------------------------------------------------------------------------------- */

/* A second in which the descriptors stay quiet, and which costs next to nothing. */
static bool is_idle_for_a_second(struct rank *self)
{
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
#ifdef __SANITIZE_THREAD__
    cpu = 0; /* it has a thread of its own, which takes more */
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
    start(self, &m, self->rank == 0, 1 - self->rank, 1, data, 4, 0);
    CHECK(wait_for(self, &m) == TUTTI_OK);
    meet_moving(self, "linked");
    bool idle = false; /* once what follows a handshake has ended, which takes its time on a slow machine */
    for (int i = 0; i < 5 && !idle; i++) idle = is_idle_for_a_second(self);
    CHECK(idle);
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
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_sums_of_a_flood),
        cmocka_unit_test(test_sums_that_fail),
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
        cmocka_unit_test(test_a_rank_held_up_in_its_handshake),
        cmocka_unit_test(test_a_flood_before_the_first_link),
        cmocka_unit_test(test_wrong_secret),
        cmocka_unit_test(test_links_cost_nothing_before_they_are_made),
    };
    setenv("TUTTI_SHM", "0", 1);
    cmocka_set_test_filter(getenv("TCP_ONLY"));
    int failed = cmocka_run_group_tests_name("over libfabric", tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("libfabric's own", network_tests, NULL, NULL);
    if (is_rdm()) return failed; /* what does not use the provider was tested without it */
    setenv("TUTTI_SHM", "1", 1);
    failed += cmocka_run_group_tests_name("over shared memory", tests, NULL, NULL);
    setenv("TUTTI_SHM_CMA", "0", 1); /* as where process_vm_readv is refused */
    failed += cmocka_run_group_tests_name("over shared memory, copied", tests, NULL, NULL);
    return failed;
}
