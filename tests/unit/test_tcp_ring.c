/* Memory order in backends/tcp/shm/ring.c: two ranks as threads over one mapping of the segment, so that a thread
 * sanitizer sees every access of both.  Without a sanitizer, a processor's reordering of a store and a later load shows
 * as a sleeper that is not woken. */
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "tcp/shm/stores.h"
#include "unit/shm_ends.h"

/* ---- rings ------------------------------------------------------------------------------------------------- */

/* Sleeps until woken.  Returns false if nobody woke the rank in time. */
static bool sleep_on(struct end *end)
{
    struct pollfd doorbell = {end->shm.doorbell_fd, POLLIN, 0};
    return !ends_find_nothing(end, NULL) || poll(&doorbell, 1, ENDS_SILENCE_MS) > 0;
}

static void send_one(struct end *end, uint64_t message)
{
    struct transport_header header = {.group = message};
    uint8_t payload[ENDS_BYTES_MOST + SHM_INLINE];
    for (size_t i = 0; i < ends_bytes(message); i++) payload[i] = ends_byte(message, i);
    shm_send(&end->shm, 1 - end->shm.local_rank, &header, payload, ends_bytes(message));
}

enum { STREAM = 20000, TURNS = 5000 };

static bool has_streamed(const struct end *end, uint64_t sent)
{
    const struct shm *shm = &end->shm;
    return sent == STREAM && end->got >= STREAM && STAILQ_EMPTY(&shm->peer[1 - shm->local_rank].waiting);
}

/* Both ranks send everything at once, so the ring is full most of the time.  A rank that has received and sent
 * everything has nobody left to wake it. */
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
    ends_open_and_run(end, stream);
}

/* The ranks take turns and sleep in between, so each message has to wake its reader. */
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
    ends_open_and_run(end, turns);
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

static void test_races(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    ends_run_races(end, &(struct race){.post = send_small, .find_nothing = ends_find_no_message, .after = read_small});
    ends_close(end, 2);
}

/* Returns the number of the message that waits until there is space, while the ring holds another one. */
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
    const struct shm_peer *peer = &end->shm.peer[0];
    while (!STAILQ_EMPTY(&peer->waiting) || peer->slots_written - atomic_load(&peer->out->slots_read) >= end->shm.slots)
        sched_yield();
    send_small(end, i);
    send_one(end, second_of(i));
    end->wrong += STAILQ_EMPTY(&end->shm.peer[0].waiting);
}

static void find_space(struct end *end, int i)
{
    (void)i;
    shm_progress(&end->shm);
    end->wrong += !STAILQ_EMPTY(&end->shm.peer[0].waiting);
}

static void test_races_for_space(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    end[0].shm.slots = end[1].shm.slots = 1;
    ends_run_races(
        end,
        &(struct race){.before = fill, .post = read_small, .find_nothing = ends_find_no_message, .after = find_space});
    ends_close(end, 2);
}

/* A rank that only sends also sends what waits, as soon as there is space. */
static void test_sends_move_what_waits(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    end[0].shm.slots = end[1].shm.slots = 1;
    for (uint64_t i = 0; i < 3; i++) send_one(&end[0], i); /* the first one takes the slot */
    for (uint64_t i = 3; i < 6; i++) {
        assert_int_equal(shm_progress(&end[1].shm), 1);
        send_one(&end[0], i);
    }
    assert_int_equal(shm_progress(&end[1].shm), 1);
    assert_int_equal(end[1].got, 4);
    assert_int_equal(end[1].wrong, 0);
    shm_drop(&end[0].shm, 1, "closed", false); /* frees what still waits */
    ends_close(end, 2);
}

/* A rank that shares its core yields before it queues a message, but not behind one that is queued. */
static void test_yields_for_space(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    end[0].shm.slots = end[1].shm.slots = 1;
    end[0].shm.shares_cores = true;
    send_one(&end[0], 0);
    assert_int_equal(end[0].shm.pauses, 0);
    send_one(&end[0], 1);
    unsigned pauses = end[0].shm.pauses;
    assert_int_not_equal(pauses, 0);
    send_one(&end[0], 2);
    assert_int_equal(end[0].shm.pauses, pauses);
    for (uint64_t i = 1; i <= 3; i++, shm_progress(&end[0].shm)) {
        shm_progress(&end[1].shm);
        assert_int_equal(end[1].got, i);
    }
    assert_int_equal(end[1].wrong, 0);
    ends_close(end, 2);
}

/* Sends many messages to a reader that stays `unread` messages behind.  Returns the highest position in the byte area.
 */
static uint64_t find_highest(int unread)
{
    enum { MANY = 2000 };
    struct end end[2];
    uint64_t highest = 0;
    ends_open(end, 2);
    const struct shm_peer *peer = &end[0].shm.peer[1];
    for (uint64_t i = 0; i < MANY; i++) {
        send_one(&end[0], i);
        uint64_t at = peer->bytes_written % end[0].shm.ring_bytes;
        if (at > highest) highest = at;
        if (i >= (uint64_t)unread) assert_int_equal(shm_read(&end[1].shm, 0, 1), 1);
    }
    assert_int_equal(shm_read(&end[1].shm, 0, MANY), unread);
    assert_int_equal(end[1].got, MANY);
    assert_int_equal(end[1].wrong, 0);
    ends_close(end, 2);
    return highest;
}

/* The stores of larger copies are chosen (stores.c). */
static void test_chooses_stores(void **state)
{
    static const char zeros[SHM_STORES_MIN];
    struct transport_header header = {0};
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    const struct shm_peer *peer = &end[0].shm.peer[1];
    shm_send(&end[0].shm, 1, &header, zeros, sizeof zeros - 1);
    assert_null(peer->stores);
    shm_send(&end[0].shm, 1, &header, zeros, sizeof zeros);
    assert_non_null(peer->stores);
    assert_int_equal(peer->stores->count, 1);
    ends_close(end, 2);
}

/* A writer begins anew at the start of the byte area if the reader has read all, and only then. */
static void test_begins_anew(void **state)
{
    (void)state;
    assert_true(find_highest(0) < 32 << 10);
    assert_true(find_highest(1) > 200 << 10);
    assert_true(find_highest(3) > 200 << 10);
}

/* The last messages of a peer whose memory is gone may carry the cause. */
static void test_reads_before_an_unreadable_peer_is_lost(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    send_one(&end[0], 0);
    shm_unreadable(&end[1].shm, 0);
    assert_int_equal(end[1].got, 1);
    assert_true(end[1].shm.peer[0].lost);
    ends_close(end, 2);
}

/* A writer that has cleared the flag may ring as late as in the next sleep, whose flag is still set. */
static void test_late_ring(void **state)
{
    struct end end[2];
    int descriptors[2];
    (void)state;
    ends_open(end, 2);
    struct shm *shm = &end[0].shm;
    uint64_t one = 1;
    assert_int_equal(shm_arm(shm, descriptors), 2);
    assert_int_equal(write(shm->doorbell_fd, &one, sizeof one), sizeof one);
    for (int i = 0; i < 2; i++) { /* ends this sleep, and no other one */
        struct pollfd doorbell = {shm->doorbell_fd, POLLIN, 0};
        assert_int_equal(poll(&doorbell, 1, 0), 1 - i);
        shm_progress(shm);
        assert_int_equal(shm_rank_at(shm, 0)->asleep, 0);
        assert_int_equal(shm_arm(shm, descriptors), 2);
    }
    ends_close(end, 2);
}

/* ---- headers ----------------------------------------------------------------------------------------------- */

/* A header comes out of a slot unchanged: with id and ref or without, with a size that is not the payload's. */
static void test_headers(void **state)
{
    enum { FROM = 5, TIMES = 4096 };
    uint64_t random = 1;
    (void)state;
    for (int i = 0; i < TIMES; i++) {
        struct transport_header header, found;
        uint32_t bytes = (uint32_t)i * 7;
        bool at_start;
        struct shm_slot slot;
        for (size_t k = 0; k < sizeof header; k++)
            ((uint8_t *)&header)[k] = (uint8_t)((random = random * 6364136223846793005 + 1) >> 40);
        header.source = FROM;
        if (i & 1) header.bytes = bytes;
        if (i & 2) header.id = 0;
        if (i & 4) header.ref = 0;
        memset(&slot, 0x5a, sizeof slot);
        found = header; /* keeps the padding between fields; the fields get other values */
        found.kind = found.flags = (uint8_t)~header.kind;
        found.group = found.tag = found.bytes = found.fingerprint = found.id = found.ref = found.credit = random;
        shm_slot_pack(&slot, &header, bytes);
        if (i & 8) slot.bytes |= SHM_AT_START;
        assert_int_equal(shm_slot_unpack(&slot, FROM, &found, &at_start), bytes);
        assert_int_equal(at_start, (i & 8) != 0);
        assert_memory_equal(&found, &header, sizeof header);
    }
    assert_int_equal(offsetof(struct shm_slot, size), 64); /* a short message takes one cache line */
}

/* ---- a faulty peer ------------------------------------------------------------------------------------------- */

/* Handles a message.  The peer then writes the next one before this one has been read to its end. */
static bool on_endless_message(void *user, const struct transport *from, const struct transport_header *header,
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

/* A peer has announced its end and continues to send.  At most one ring of its messages is handled. */
static void test_ends_and_continues(void **state)
{
    static const struct transport_events endless = {.message = on_endless_message, .lost = on_lost_one};
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm *shm = &end[0].shm;
    shm->config.events = &endless;
    atomic_store(&shm->peer[1].in->slot[0].turn, 1);
    atomic_store(&shm->peer[1].in->closed, 1);
    shm_check_liveness(shm);
    assert_int_equal(end[0].lost, 1);
    assert_int_equal(end[0].got, shm->slots);
    ends_close(end, 2);
}

/* A rank that can take no memory because its descriptors are closed says that. */
static void test_says_why_it_has_no_memory(void **state)
{
    static const struct transport_events loses = {.lost = on_lost_one};
    static const char payload[1000];
    struct transport_header header = {.kind = 1};
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm *shm = &end[0].shm;
    shm->config.events = &loses;
    shm->disowned = true;
    assert_int_equal(shm_send(shm, 1, &header, payload, SHM_INLINE), TUTTI_OK);
    assert_int_equal(shm_send(shm, 1, &header, payload, sizeof payload), TUTTI_ERR_PEER_LOST);
    assert_int_equal(end[0].lost, 1);
    assert_string_equal(shm->peer[1].why, "the program closed this process's descriptors");
    ends_close(end, 2);
}

/* The byte area gets memory with the first message that needs it, not when a path is considered. */
static void test_asks_without_taking_memory(void **state)
{
    static const char payload[1000];
    struct transport_header header = {.kind = 1};
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm *shm = &end[0].shm;
    size_t before = ends_memory(&end[0]);
    assert_true(shm_fits(shm, 1, sizeof payload));
    assert_true(shm_fits(shm, 1, shm->ring_bytes));
    assert_false(shm_fits(shm, 1, shm->ring_bytes + 1));
    assert_int_equal(ends_memory(&end[0]), before);
    assert_int_equal(shm_send(shm, 1, &header, payload, sizeof payload), TUTTI_OK);
    assert_true(ends_memory(&end[0]) > before);
    assert_false(shm_fits(shm, 1, shm->ring_bytes));
    ends_close(end, 2);
}

/* Sends messages of 1000 bytes, and reads all but the last `unread` at once.  Returns the bytes of memory taken. */
static size_t take_memory(struct end end[2], int messages, int unread)
{
    static const char payload[1000];
    struct transport_header header = {.kind = 1};
    size_t before = ends_memory(&end[0]);
    for (int i = 0; i < messages; i++) {
        assert_int_equal(shm_send(&end[0].shm, 1, &header, payload, sizeof payload), TUTTI_OK);
        if (i >= unread) assert_int_equal(shm_read(&end[1].shm, 0, 1), 1);
    }
    assert_int_equal(shm_read(&end[1].shm, 0, (uint64_t)unread), unread);
    return ends_memory(&end[0]) - before;
}

/* The byte area gets memory for what is in it at once. */
static void test_takes_memory_as_needed(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    size_t few = take_memory(end, 1000, 0);
    assert_in_range(few, 1, 32 << 10);
    assert_in_range(take_memory(end, 10, 10), 0, 16 << 10);
    assert_in_range(take_memory(end, 40, 40), 16 << 10, 64 << 10);
    assert_int_equal(take_memory(end, 1000, 0), 0);
    ends_close(end, 2);
}

/* Without memory for more, a writer waits until the reader has read all.  A message that never fits drops the link. */
static void test_no_memory_for_more(void **state)
{
    enum { MANY = 40 };
    static char payload[1024], large[40000]; /* the memory ends with a message */
    struct transport_header header = {.kind = 1};
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm *shm = &end[0].shm;
    assert_int_equal(shm_send(shm, 1, &header, payload, sizeof payload), TUTTI_OK);
    size_t room = shm->peer[1].out_room;
    shm->disowned = true; /* as if there were no more */
    for (int i = 1; i < MANY; i++) assert_int_equal(shm_send(shm, 1, &header, payload, sizeof payload), TUTTI_OK);
    uint64_t read = (uint64_t)shm_read(&end[1].shm, 0, shm->slots);
    assert_true(read > 1 && read <= room / sizeof payload);
    for (int i = 0; i < MANY && read < 2 * MANY; i++) {
        assert_int_equal(shm_send(shm, 1, &header, payload, sizeof payload), TUTTI_OK); /* moves what waits */
        uint64_t more = (uint64_t)shm_read(&end[1].shm, 0, shm->slots);
        assert_true(more > 0);
        read += more;
    }
    assert_int_equal(shm->peer[1].out_room, room);
    assert_int_equal(shm_send(shm, 1, &header, large, sizeof large), TUTTI_ERR_PEER_LOST);
    ends_close(end, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_races),
        cmocka_unit_test(test_races_for_space),
        cmocka_unit_test(test_sends_move_what_waits),
        cmocka_unit_test(test_yields_for_space),
        cmocka_unit_test(test_begins_anew),
        cmocka_unit_test(test_chooses_stores),
        cmocka_unit_test(test_reads_before_an_unreadable_peer_is_lost),
        cmocka_unit_test(test_takes_memory_as_needed),
        cmocka_unit_test(test_no_memory_for_more),
        cmocka_unit_test(test_late_ring),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_ends_and_continues),
        cmocka_unit_test(test_says_why_it_has_no_memory),
        cmocka_unit_test(test_asks_without_taking_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
