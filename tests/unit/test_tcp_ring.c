/* Memory order in backends/tcp/shm/ring.c: two ranks as threads over one mapping of the segment, so that a thread
 * sanitizer sees every access of both.  Without it, the processor's own reordering of a store and a later load shows: a
 * sleeper that is not woken. */
#include "shm_ends.h"

/* ---- rings ------------------------------------------------------------------------------------------------- */

/* Sleeps until woken.  Who sleeps long and then finds something was not woken for it. */
static bool sleep_on(struct end *end)
{
    struct pollfd doorbell = {end->shm.doorbell_fd, POLLIN, 0};
    return !finds_nothing(end, NULL) || poll(&doorbell, 1, SILENCE_MS) > 0;
}

static void send_one(struct end *end, uint64_t message)
{
    struct transport_header header = {.group = message};
    uint8_t payload[SIZE_MOST + SHM_INLINE];
    for (size_t i = 0; i < size_of(message); i++) payload[i] = byte_of(message, i);
    shm_send(&end->shm, 1 - end->shm.local_rank, &header, payload, size_of(message));
}

enum { STREAM = 20000, TURNS = 5000 };

static bool has_streamed(const struct end *end, uint64_t sent)
{
    const struct shm *shm = &end->shm;
    return sent == STREAM && end->got >= STREAM && STAILQ_EMPTY(&shm->peer[1 - shm->local_rank].waiting);
}

/* Both send all at once; the ring is full most of the time.  Who has done, with the last that it sent, has nobody left
 * to be woken by. */
static void *stream(void *argument)
{
    struct end *end = argument;
    uint64_t sent = 0;
    while (end->lost == 0 && !has_streamed(end, sent)) {
        for (int i = 0; i < 50 && sent < STREAM; i++) send_one(end, sent++);
        if (shm_progress(&end->shm) > 0 || sent < STREAM || has_streamed(end, sent)) continue;
        if (!sleep_on(end)) end->lost++;
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
        if (end->shm.local_rank == 0) send_one(end, i);
        while (end->got <= i && end->lost == 0)
            if (shm_progress(&end->shm) == 0 && !sleep_on(end)) end->lost++;
        if (end->shm.local_rank == 1) send_one(end, i);
    }
    return NULL;
}

static void test_turns(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, turns);
}

static void send_small(struct end *end, int i)
{
    send_one(end, 5 * (uint64_t)i + 1);
}

static void read_small(struct end *end, int i)
{
    end->got = 5 * (uint64_t)i + 1;
    shm_progress(&end->shm);
}

static void test_moments(void **state)
{
    struct end end[2];
    (void)state;
    pair_open(end);
    run_moments(end, &(struct moment){.bring = send_small, .finds_nothing = finds_no_message, .after = read_small});
    pair_close(end);
}

/* The same where a writer sleeps until there is room: its ring holds one message, and a second one waits. */
static uint64_t second_of(int i)
{
    return 5 * (uint64_t)i + 2;
}

static void fill(struct end *end, int i)
{
    if (end->shm.local_rank == 0) {
        end->got = second_of(i - 1);
        while (i > 0 && end->got == second_of(i - 1)) shm_progress(&end->shm);
        return;
    }
    while (!shm_fits(&end->shm, 0, 0)) sched_yield();
    send_small(end, i);
    send_one(end, second_of(i));
    end->wrong += STAILQ_EMPTY(&end->shm.peer[0].waiting);
}

static void find_room(struct end *end, int i)
{
    (void)i;
    shm_progress(&end->shm);
    end->wrong += !STAILQ_EMPTY(&end->shm.peer[0].waiting);
}

static void test_moments_of_room(void **state)
{
    struct end end[2];
    (void)state;
    pair_open(end);
    end[0].shm.slots = end[1].shm.slots = 1;
    run_moments(end, &(struct moment){
                         .before = fill, .bring = read_small, .finds_nothing = finds_no_message, .after = find_room});
    pair_close(end);
}

/* Who took the flag down may have been kept from ringing until the next sleep, whose flag is still up. */
static void test_late_ring(void **state)
{
    struct end end[2];
    int descriptors[2];
    (void)state;
    pair_open(end);
    struct shm *shm = &end[0].shm;
    uint64_t one = 1;
    assert_int_equal(shm_arm(shm, descriptors), 2);
    assert_int_equal(write(shm->doorbell_fd, &one, sizeof one), sizeof one);
    for (int i = 0; i < 2; i++) { /* that ends this sleep, and no other one */
        struct pollfd doorbell = {shm->doorbell_fd, POLLIN, 0};
        assert_int_equal(poll(&doorbell, 1, 0), 1 - i);
        shm_progress(shm);
        assert_int_equal(shm_rank_at(shm, 0)->asleep, 0);
        assert_int_equal(shm_arm(shm, descriptors), 2);
    }
    pair_close(end);
}

/* ---- headers ----------------------------------------------------------------------------------------------- */

/* Whatever is in a header comes out of a slot again: with names or without, with a size that is not the payload's. */
static void test_headers(void **state)
{
    enum { FROM = 5, TIMES = 4096 };
    uint64_t random = 1;
    (void)state;
    for (int i = 0; i < TIMES; i++) {
        struct transport_header header, found;
        uint32_t bytes = (uint32_t)i * 7;
        struct shm_slot slot;
        for (size_t k = 0; k < sizeof header; k++)
            ((uint8_t *)&header)[k] = (uint8_t)((random = random * 6364136223846793005 + 1) >> 40);
        header.source = FROM;
        if (i & 1) header.bytes = bytes;
        if (i & 2) header.id = 0;
        if (i & 4) header.ref = 0;
        memset(&slot, 0x5a, sizeof slot);
        found = header; /* what lies between the fields; they themselves are other ones */
        found.kind = found.flags = (uint8_t)~header.kind;
        found.group = found.tag = found.bytes = found.fingerprint = found.id = found.ref = found.credit = random;
        shm_slot_pack(&slot, &header, bytes);
        assert_int_equal(shm_slot_unpack(&slot, FROM, &found), bytes);
        assert_memory_equal(&found, &header, sizeof header);
    }
    assert_int_equal(offsetof(struct shm_slot, size), 64); /* a short message is one line */
}

/* ---- nonsense ---------------------------------------------------------------------------------------------- */

/* A message for which the peer writes the next one before it has been read to its end. */
static bool on_message_of_many(void *user, const struct transport *from, const struct transport_header *header,
                               const void *payload, size_t bytes)
{
    (void)from;
    struct end *end = user;
    struct shm *shm = &end->shm;
    (void)header;
    (void)payload;
    (void)bytes;
    uint64_t turn = ++end->got + 1;
    if (end->got < STREAM) atomic_store(&shm->peer[1].in->slot[(turn - 1) % shm->slots].turn, turn);
    return true;
}

static void on_lost_one(void *user, int32_t rank, const char *why)
{
    (void)rank;
    (void)why;
    ((struct end *)user)->lost++;
}

/* A rank that says that it has ended, and goes on sending, is heard of no more than its ring holds. */
static void test_ends_and_goes_on(void **state)
{
    static const struct transport_events of_many = {.message = on_message_of_many, .lost = on_lost_one};
    struct end end[2];
    (void)state;
    pair_open(end);
    struct shm *shm = &end[0].shm;
    shm->config.events = &of_many;
    atomic_store(&shm->peer[1].in->slot[0].turn, 1);
    atomic_store(&shm->peer[1].in->closed, 1);
    shm_check_liveness(shm);
    assert_int_equal(end[0].lost, 1);
    assert_int_equal(end[0].got, shm->slots);
    pair_close(end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),          cmocka_unit_test(test_turns),     cmocka_unit_test(test_moments),
        cmocka_unit_test(test_moments_of_room),  cmocka_unit_test(test_late_ring), cmocka_unit_test(test_headers),
        cmocka_unit_test(test_ends_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
