/* Memory order in backends/tcp/shm_ring.c: two ranks as threads over one mapping of the segment, so that a thread
 * sanitizer sees every access of both.  Without it, the processor's own reordering of a store and a later load shows: a
 * sleeper that is not woken. */
#include "shm_ends.h"

/* ---- rings ------------------------------------------------------------------------------------------------- */

/* Sleeps until woken.  Who sleeps long and then finds something was not woken for it. */
static bool sleep_on(struct shm *shm, bool ready)
{
    int descriptors[2];
    int n = shm_arm(shm, descriptors);
    struct pollfd polled[2] = {{descriptors[0], POLLIN, 0}, {descriptors[1], POLLIN, 0}};
    if (n == 0 || ready) return true;
    return poll(polled, 2, SILENCE_MS) > 0;
}

static void send_one(struct end *end, uint64_t message)
{
    uint8_t header[WIRE_HEADER] = {0}, payload[SIZE_MOST + SHM_INLINE];
    memcpy(header, &message, sizeof message);
    for (size_t i = 0; i < size_of(message); i++) payload[i] = byte_of(message, i);
    shm_send(&end->shm, 1 - end->shm.seat, header, payload, size_of(message));
}

enum { STREAM = 20000, TURNS = 5000, MOMENTS = 100000 };

/* Both send all at once; the ring is full most of the time. */
static void *stream(void *argument)
{
    struct end *end = argument;
    struct shm *shm = &end->shm;
    uint64_t sent = 0;
    while (end->lost == 0 && (sent < STREAM || end->got < STREAM || !STAILQ_EMPTY(&shm->peer[1 - shm->seat].waiting))) {
        for (int i = 0; i < 50 && sent < STREAM; i++) send_one(end, sent++);
        if (shm_progress(shm) == 0 && sent == STREAM && !sleep_on(shm, false)) end->lost++;
    }
    return NULL;
}

static void test_streams(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, stream);
}

/* In turns, and asleep in between: each message has to wake its reader. */
static void *turns(void *argument)
{
    struct end *end = argument;
    for (uint64_t i = 0; i < TURNS && end->lost == 0; i++) {
        if (end->shm.seat == 0) send_one(end, i);
        while (end->got <= i && end->lost == 0)
            if (shm_progress(&end->shm) == 0 && !sleep_on(&end->shm, false)) end->lost++;
        if (end->shm.seat == 1) send_one(end, i);
    }
    return NULL;
}

static void test_turns(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, turns);
}

/* One sends at the very moment at which the other one is about to sleep: that one sees the message, or is woken. */
static atomic_int gate[2];

static void pass_gate(int i, int round)
{
    atomic_store_explicit(&gate[i], round, memory_order_seq_cst);
    for (int spins = 0; atomic_load_explicit(&gate[1 - i], memory_order_seq_cst) < round; spins++)
        if (spins > 1000) sched_yield();
}

static void *moments(void *argument)
{
    struct end *end = argument;
    for (int i = 0; i < MOMENTS; i++) {
        int descriptors[2], armed = 0;
        pass_gate(end->shm.seat, 2 * i + 1);
        for (volatile int late = end->shm.seat == 0 ? i % 300 : 200; late > 0; late--) continue; /* at many distances */
        if (end->shm.seat == 0)
            send_one(end, 5 * (uint64_t)i + 1); /* small ones */
        else
            armed = shm_arm(&end->shm, descriptors);
        pass_gate(end->shm.seat, 2 * i + 2);
        if (end->shm.seat == 0) continue;
        struct pollfd bell = {end->shm.bell, POLLIN, 0};
        if (armed > 0 && poll(&bell, 1, 0) == 0) end->lost++;
        end->got = 5 * (uint64_t)i + 1;
        shm_progress(&end->shm);
    }
    return NULL;
}

static void test_moments(void **state)
{
    struct end end[2];
    (void)state;
    gate[0] = gate[1] = 0;
    run_two(end, moments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
