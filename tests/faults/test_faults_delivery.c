/* Data of a completed send or collective arrive, however long the receiver is stopped, and even if the sender destroys
 * its group or exits. */
#include "procs.h"

enum {
    HELD_MS = 2500,  /* how long the receiver is stopped */
    SMALL = 10000,   /* bytes: sent eagerly */
    LARGE = 3 << 20, /* bytes: sent after an RTS */
    SOON_S = PROCS_SOON_S,
    TIMEOUT_MS = 30000
};

struct delivery {
    const char *shm;      /* TUTTI_SHM */
    const char *provider; /* TUTTI_FABRIC_PROVIDER, or NULL */
    int messages;         /* small ones; 0: a broadcast instead */
    bool large;           /* followed by a large one */
    bool exits;           /* the senders exit without destroying their group */
};

static void set_up(const struct delivery *delivery)
{
    setenv("TUTTI_SHM", delivery->shm, 1);
    if (delivery->provider != NULL) setenv("TUTTI_FABRIC_PROVIDER", delivery->provider, 1);
}

static bool holds(const uint8_t *data, size_t bytes, int value)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (uint8_t)value) return false;
    return true;
}

static int send_all(const struct delivery *delivery, int to)
{
    static uint8_t data[LARGE];
    for (int i = 0; i < delivery->messages; i++) {
        memset(data, i + 1, SMALL);
        EXPECT(tutti_send(tutti_view(data, SMALL), to, NULL) == TUTTI_OK);
    }
    memset(data, 99, sizeof data);
    if (delivery->large) EXPECT(tutti_send(tutti_view(data, LARGE), to, NULL) == TUTTI_OK);
    return 0;
}

static int receive_all(const struct delivery *delivery, int from)
{
    static uint8_t data[LARGE];
    for (int i = 0; i < delivery->messages; i++) {
        EXPECT(tutti_recv(tutti_view(data, SMALL), from, NULL) == TUTTI_OK);
        EXPECT(holds(data, SMALL, i + 1));
    }
    if (!delivery->large) return 0;
    EXPECT(tutti_recv(tutti_view(data, LARGE), from, NULL) == TUTTI_OK);
    EXPECT(holds(data, LARGE, 99));
    return 0;
}

static int broadcast(int rank)
{
    static uint8_t data[SMALL];
    memset(data, rank == 0 ? 7 : 0, sizeof data);
    EXPECT(tutti_broadcast(tutti_view(data, SMALL), 0, NULL) == TUTTI_OK);
    EXPECT(holds(data, SMALL, 7));
    return 0;
}

/* Receives on the last rank from the first one. */
static int rank_of_delivery(int rank, int size, void *argument)
{
    const struct delivery *delivery = argument;
    set_up(delivery);
    EXPECT(proc_init(TIMEOUT_MS) == TUTTI_OK);
    if (rank == size - 1) {
        proc_set_step(1);
        raise(SIGSTOP);
    } else {
        proc_wait_for_go(1);
    }
    int result = delivery->messages == 0 ? broadcast(rank) : 0;
    if (result == 0 && rank == 0) result = send_all(delivery, size - 1);
    if (result == 0 && rank == size - 1) result = receive_all(delivery, 0);
    if (result != 0) return result;
    if (delivery->exits && rank != size - 1) exit(0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* Releases the senders once the last rank is stopped. */
static void begin_with_the_last_stopped(struct procs *procs)
{
    if (!procs_wait_for_step(procs, 1)) return;
    procs_wait_until_stopped(procs, procs->size - 1);
    procs_release(procs, 1);
}

static void hold_the_last(struct procs *procs, void *argument)
{
    (void)argument;
    begin_with_the_last_stopped(procs);
    procs_sleep_ms(HELD_MS);
    procs_signal(procs, procs->size - 1, SIGCONT);
}

static void run_delivery(int size, struct delivery delivery)
{
    procs_run_with(size, rank_of_delivery, hold_the_last, &delivery);
}

static void test_broadcast_over_the_wire(void **state)
{
    (void)state;
    run_delivery(4, (struct delivery){.shm = "0"});
}

static void test_broadcast_in_shared_memory(void **state)
{
    (void)state;
    run_delivery(4, (struct delivery){.shm = "1"});
}

static void test_messages_over_the_wire(void **state)
{
    (void)state;
    run_delivery(2, (struct delivery){.shm = "0", .messages = 60});
    run_delivery(2, (struct delivery){.shm = "0", .messages = 3, .large = true});
}

static void test_messages_in_shared_memory(void **state)
{
    (void)state;
    run_delivery(2, (struct delivery){.shm = "1", .messages = 60});
    run_delivery(2, (struct delivery){.shm = "1", .messages = 3, .large = true});
}

static void test_messages_of_datagrams(void **state)
{
    (void)state;
    run_delivery(2, (struct delivery){.shm = "0", .provider = "tcp;ofi_rxm", .messages = 20});
    run_delivery(2, (struct delivery){.shm = "0", .provider = "tcp;ofi_rxm", .messages = 3, .large = true});
}

static void test_exit_after_sending(void **state)
{
    (void)state;
    run_delivery(2, (struct delivery){.shm = "0", .messages = 20, .exits = true});
    run_delivery(2, (struct delivery){.shm = "1", .messages = 60, .exits = true});
}

/* ---- bounds ------------------------------------------------------------------------------------------------- */

/* delivery_ms bounds the wait. */
static int destroy_within(void)
{
    EXPECT_ERROR(tutti_destroy_process_group_within(NULL, -1), TUTTI_ERR_INVALID_ARGUMENT, "delivery_ms is -1");
    int64_t begin = monotonic_ns();
    EXPECT(tutti_destroy_process_group_within(NULL, 1500) == TUTTI_OK);
    EXPECT_WITHIN(begin, 1.4, 1.5 + SOON_S);
    return 0;
}

/* A failed group ends soon, although a peer has not received everything. */
static int abort_and_destroy(void)
{
    EXPECT(tutti_abort(NULL, "enough") == TUTTI_OK);
    int64_t begin = monotonic_ns();
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    EXPECT_WITHIN(begin, 0, SOON_S);
    return 0;
}

struct ending {
    int (*end)(void);
};

/* The receiver stays stopped until the sender has ended its group. */
static int rank_of_ending(int rank, int size, void *argument)
{
    const struct ending *ending = argument;
    uint8_t data[SMALL] = {0};
    (void)size;
    setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_init(TIMEOUT_MS) == TUTTI_OK);
    if (rank == 1) {
        proc_set_step(1);
        raise(SIGSTOP);
        return 0;
    }
    proc_wait_for_go(1);
    EXPECT(tutti_send(tutti_view(data, SMALL), 1, NULL) == TUTTI_OK);
    int result = ending->end();
    proc_set_step(2);
    return result;
}

static void end_the_wait(struct procs *procs, void *argument)
{
    (void)argument;
    begin_with_the_last_stopped(procs);
    while (atomic_load(&procs->shared->step[0]) < 2 && !atomic_load(&procs->shared->broken)) procs_sleep_ms(1);
    procs_signal(procs, 1, SIGCONT);
}

static void test_the_wait_is_bounded(void **state)
{
    (void)state;
    procs_run_with(2, rank_of_ending, end_the_wait, &(struct ending){destroy_within});
}

static void test_a_failed_group_ends_soon(void **state)
{
    (void)state;
    procs_run_with(2, rank_of_ending, end_the_wait, &(struct ending){abort_and_destroy});
}

/* The receiver dies while the sender waits for delivery.  The wait ends. */
static void kill_the_receiver(struct procs *procs, void *argument)
{
    (void)argument;
    begin_with_the_last_stopped(procs);
    procs_sleep_ms(1000);
    procs_signal(procs, 1, SIGKILL);
}

static int rank_of_death(int rank, int size, void *argument)
{
    int64_t begin = monotonic_ns();
    int result = rank_of_delivery(rank, size, argument);
    EXPECT_WITHIN(begin, 0, 3 + SOON_S);
    return result;
}

static void test_a_dead_receiver_ends_the_wait(void **state)
{
    (void)state;
    procs_run_with(2, rank_of_death, kill_the_receiver, &(struct delivery){.shm = "0", .messages = 3});
    procs_run_with(2, rank_of_death, kill_the_receiver, &(struct delivery){.shm = "1", .messages = 60});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcast_over_the_wire),       cmocka_unit_test(test_broadcast_in_shared_memory),
        cmocka_unit_test(test_messages_over_the_wire),        cmocka_unit_test(test_messages_in_shared_memory),
        cmocka_unit_test(test_messages_of_datagrams),         cmocka_unit_test(test_exit_after_sending),
        cmocka_unit_test(test_the_wait_is_bounded),           cmocka_unit_test(test_a_failed_group_ends_soon),
        cmocka_unit_test(test_a_dead_receiver_ends_the_wait),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
