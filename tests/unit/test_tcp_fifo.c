/* backends/tcp/shm/fifo.c: two ranks as threads over one mapping of the segment.  They send each other large messages,
 * and abandon some of them. */
#include <poll.h>
#include <unistd.h>

#include "sanitizer.h"
#include "tcp/shm/stores.h"
#include "unit/shm_ends.h"

enum { MESSAGES = SANITIZED ? 100 : 300 };

struct side {
    struct end *end;
    uint64_t sent, size, at;       /* complete messages; size and progress of the current one */
    uint64_t got, due_bytes, read; /* the same of the peer's messages */
    bool is_sending, is_receiving;
};

static struct side sides[2];

static struct side *side_of(const struct end *end)
{
    return &sides[end->shm.local_rank];
}

static uint64_t large(uint64_t message)
{
    static const uint64_t edges[] = {1, 2047, 2048, 2049, 8192, 8193, 65536, 65537, 0, 40000};
    return message % 2 == 0 ? edges[message / 2 % 10] : message * 7919 % 150000;
}

/* True if the message is one of every seventh, which are abandoned half way. */
static bool is_abandoned(uint64_t message, uint64_t at)
{
    return message % 7 == 3 && at >= large(message) / 2;
}

enum { BEGINS = 1, ABANDONED };

static bool copy_out_some(struct end *end)
{
    struct side *side = side_of(end);
    int local_rank = 1 - end->shm.local_rank;
    size_t bytes;
    const uint8_t *piece;
    bool moved = false;
    while ((piece = shm_fifo_peek(&end->shm, local_rank, &bytes)) != NULL) {
        for (size_t i = 0; i < bytes; i++) end->wrong += piece[i] != ends_byte(side->got, side->read + i);
        side->read += bytes;
        shm_fifo_release(&end->shm, local_rank, bytes);
        moved = true;
    }
    if (!side->is_receiving || side->read < side->due_bytes || is_abandoned(side->got, side->due_bytes)) return moved;
    side->is_receiving = false;
    side->got++;
    return true;
}

/* Handles the start of a message, or its end. */
static bool on_control(void *user, const struct transport *from, const struct transport_header *header,
                       const void *payload, size_t bytes)
{
    (void)from;
    struct end *end = user;
    struct side *side = side_of(end);
    (void)payload;
    (void)bytes;
    copy_out_some(end); /* data copied in before this message */
    end->wrong += header->tag != side->got;
    if (header->kind == ABANDONED) {
        end->wrong += !side->is_receiving;
        shm_fifo_close(&end->shm, 1 - end->shm.local_rank);
        side->is_receiving = false;
        side->got++;
        return true;
    }
    end->wrong +=
        side->is_receiving || !shm_fifo_open(&end->shm, 1 - end->shm.local_rank, header->id - 1, header->bytes);
    side->due_bytes = header->bytes;
    side->read = 0;
    side->is_receiving = true;
    return true;
}

static const struct transport_events control_events = {.message = on_control, .lost = ends_on_lost};

static void send_control(struct end *end, int kind, uint64_t id)
{
    struct side *side = side_of(end);
    struct transport_header header = {.kind = (uint8_t)kind, .tag = side->sent, .bytes = side->size, .id = id};
    shm_send(&end->shm, 1 - end->shm.local_rank, &header, NULL, 0);
}

static bool copy_in_some(struct end *end)
{
    static uint8_t data[2][150000];
    struct side *side = side_of(end);
    int local_rank = 1 - end->shm.local_rank;
    if (side->sent == MESSAGES) return false;
    uint8_t *mine = data[end->shm.local_rank];
    if (!side->is_sending) {
        side->size = large(side->sent);
        side->at = 0;
        side->is_sending = true;
        for (size_t i = 0; i < side->size; i++) mine[i] = ends_byte(side->sent, i);
        send_control(end, BEGINS, shm_fifo_begin(&end->shm, local_rank, side->size) + 1);
    }
    size_t bytes = shm_fifo_copy_in(&end->shm, local_rank, mine + side->at);
    side->at += bytes;
    bool abandoned = is_abandoned(side->sent, side->at);
    if (abandoned) {
        shm_fifo_abandon(&end->shm, local_rank);
        send_control(end, ABANDONED, 0);
    }
    if (!abandoned && side->at < side->size) return bytes > 0;
    side->is_sending = false;
    side->sent++;
    return true;
}

static bool has_done(const struct end *end)
{
    const struct side *side = side_of(end);
    return side->sent == MESSAGES && side->got == MESSAGES &&
           STAILQ_EMPTY(&end->shm.peer[1 - end->shm.local_rank].waiting);
}

static void *exchange(void *argument)
{
    struct end *end = argument;
    while (end->lost + end->wrong == 0 && !has_done(end)) {
        if (++end->rounds % 32 == 0) usleep(500); /* the peer goes to sleep for a piece, or for space */
        int moved = shm_progress(&end->shm);
        moved += copy_out_some(end);
        moved += copy_in_some(end);
        if (moved > 0 || has_done(end) || !ends_find_nothing(end, NULL)) continue;
        struct pollfd doorbell = {end->shm.doorbell_fd, POLLIN, 0};
        end->lost += poll(&doorbell, 1, ENDS_SILENCE_MS) == 0;
    }
    return NULL;
}

static void exchange_open(struct end end[2], const tutti_host *clock, bool shares_cores, size_t fifo_bytes)
{
    ends_open(end, 2);
    for (int i = 0; i < 2; i++) {
        end[i].shm.config.events = &control_events;
        end[i].shm.config.host = clock;
        end[i].shm.shares_cores = shares_cores;
        end[i].shm.fifo_bytes = fifo_bytes;
        sides[i] = (struct side){.end = &end[i]};
    }
}

static void exchange_close(struct end end[2])
{
    for (int i = 0; i < 2; i++) assert_true(sides[i].sent == MESSAGES && sides[i].got == MESSAGES);
    ends_close(end, 2);
}

static void run_exchange(bool shares_cores, size_t fifo_bytes)
{
    struct end end[2];
    exchange_open(end, &ends_host, shares_cores, fifo_bytes);
    ends_run(end, exchange);
    exchange_close(end);
}

static void test_exchange(void **state)
{
    (void)state;
    run_exchange(false, 64 << 10);
    run_exchange(true, 64 << 10);
    run_exchange(true, 1 << 10); /* as small as with many ranks */
}

/* ---- races: a piece, or space for one, arrives as the other rank goes to sleep ----------------------------------- */

enum { SPAN = 8 << 10, ONE = 2 << 10, STREAM = 1 << 20 };

static const uint8_t zeros[SPAN];

static void expect_piece(struct end *end, int i)
{
    if (end->shm.local_rank == 1) end->wrong += !shm_fifo_open(&end->shm, 0, (uint64_t)i * SPAN, ONE);
}

static void write_piece(struct end *end, int i)
{
    end->wrong += shm_fifo_begin(&end->shm, 1, ONE) != (uint64_t)i * SPAN;
    end->wrong += shm_fifo_copy_in(&end->shm, 1, zeros) != ONE;
}

static void read_piece(struct end *end, int local_rank)
{
    size_t bytes = 0;
    end->wrong += shm_fifo_peek(&end->shm, local_rank, &bytes) == NULL || bytes != ONE;
    shm_fifo_release(&end->shm, local_rank, bytes);
}

static void wake_and_read(struct end *end, int i)
{
    (void)i;
    shm_progress(&end->shm); /* ends the sleep */
    read_piece(end, 0);
}

static void test_races_for_pieces(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    ends_run_races(end, &(struct race){.before = expect_piece,
                                       .post = write_piece,
                                       .find_nothing = ends_find_no_message,
                                       .after = wake_and_read});
    ends_close(end, 2);
}

static void fill(struct end *end, int i)
{
    if (end->shm.local_rank == 0) return;
    if (i == 0) shm_fifo_begin(&end->shm, 0, (uint64_t)ENDS_RACES * ONE + SPAN + ONE);
    end->wrong += shm_fifo_copy_in(&end->shm, 0, zeros) != (i == 0 ? SPAN : ONE);
}

static void read_one(struct end *end, int i)
{
    if (i == 0) shm_fifo_open(&end->shm, 1, 0, (uint64_t)ENDS_RACES * ONE + SPAN + ONE);
    read_piece(end, 1);
}

static void find_space(struct end *end, int i)
{
    (void)i;
    shm_progress(&end->shm);
    end->wrong += !shm_fifo_has_space(&end->shm, 0);
}

static void test_races_for_space(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    ends_run_races(
        end,
        &(struct race){.before = fill, .post = read_one, .find_nothing = ends_find_no_message, .after = find_space});
    ends_close(end, 2);
}

/* Abandons a message.  The next one has space only when the reader knows about it. */
static void abandon(struct end *end, int i)
{
    if (end->shm.local_rank == 0) return;
    if (i == 0) shm_fifo_begin(&end->shm, 0, STREAM);
    end->wrong += shm_fifo_copy_in(&end->shm, 0, zeros) != SPAN;
    shm_fifo_abandon(&end->shm, 0);
    end->wrong += shm_fifo_begin(&end->shm, 0, STREAM) != ((uint64_t)i + 1) * 2 * SPAN;
    end->wrong += shm_fifo_has_space(&end->shm, 0);
}

static void open_next(struct end *end, int i)
{
    end->wrong += !shm_fifo_open(&end->shm, 1, ((uint64_t)i + 1) * 2 * SPAN, STREAM);
}

static void test_races_for_openings(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    ends_run_races(
        end, &(struct race){
                 .before = abandon, .post = open_next, .find_nothing = ends_find_no_message, .after = find_space});
    ends_close(end, 2);
}

/* A sleeper is woken by a piece, by space for one, and by the opening that makes space. */
static void test_wakes(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm *writer = &end[0].shm, *reader = &end[1].shm;
    shm_fifo_begin(writer, 1, STREAM);
    shm_rank_at(reader, 1)->asleep = 1;
    assert_int_equal(shm_fifo_copy_in(writer, 1, zeros), SPAN);
    assert_int_equal(shm_rank_at(reader, 1)->asleep, 0);
    for (int i = 0; i < 2; i++) {
        shm_rank_at(writer, 0)->asleep = 1;
        writer->peer[1].out->wants_space = 1;
        if (i == 0)
            assert_true(shm_fifo_open(reader, 0, 0, STREAM));
        else
            read_piece(&end[1], 0);
        assert_int_equal(shm_rank_at(writer, 0)->asleep, 0);
        assert_int_equal(writer->peer[1].out->wants_space, 0);
    }
    ends_close(end, 2);
}

/* The stores of the pieces of ranks that share cores are chosen (stores.c). */
static void test_chooses_stores(void **state)
{
    static const uint8_t data[STREAM];
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm *writer = &end[0].shm;
    writer->shares_cores = true;
    assert_true(shm_fifo_reserve(writer, 1, STREAM));
    shm_fifo_begin(writer, 1, STREAM);
    shm_fifo_copy_in(writer, 1, data);
    assert_non_null(writer->peer[1].stores);
    assert_int_equal(writer->peer[1].stores->count, 8); /* pieces of the FIFO */
    ends_close(end, 2);
}

/* A check that rings for nobody is repeated: the peer may sleep again before it sees the store. */
static void test_wakes_again(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm *writer = &end[0].shm, *reader = &end[1].shm;
    for (int i = 0; i < 2; i++) { /* the first time the writer is awake, although it has asked */
        writer->peer[1].out->wants_space = 1;
        shm_rank_at(writer, 0)->asleep = (uint64_t)i;
        if (i == 0)
            shm_wake_writer(reader, 0);
        else
            shm_settle(reader);
        assert_int_equal(writer->peer[1].out->wants_space, 0);
    }
    assert_int_equal(shm_rank_at(writer, 0)->asleep, 0);
    assert_false(shm_ring_doorbell(reader, 0));
    ends_close(end, 2);
}

/* The FIFO gets memory for the largest message so far, and at most for all of it. */
static void test_takes_memory_as_needed(void **state)
{
    const size_t page = 4096;
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm *shm = &end[0].shm;
    shm->shares_cores = true; /* the FIFO has its full size */
    size_t before = ends_memory(&end[0]);
    assert_true(shm_fifo_reserve(shm, 1, 0));
    assert_int_equal(ends_memory(&end[0]), before);
    assert_true(shm_fifo_reserve(shm, 1, 64 << 10));
    assert_in_range(ends_memory(&end[0]) - before, 64 << 10, (64 << 10) + 2 * page);
    shm->disowned = true; /* as if there were no more */
    assert_true(shm_fifo_reserve(shm, 1, 64 << 10));
    assert_false(shm_fifo_reserve(shm, 1, 65 << 10));
    shm->disowned = false;
    assert_true(shm_fifo_reserve(shm, 1, (size_t)1 << 30));
    assert_in_range(ends_memory(&end[0]) - before, shm->fifo_bytes, shm->fifo_bytes + 2 * page);
    ends_close(end, 2);
}

/* ---- a faulty peer ------------------------------------------------------------------------------------------- */

/* Whatever a peer announces, the reader stays within the FIFO. */
static void test_faulty_peer(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm *shm = &end[0].shm;
    const char *first = shm->peer[1].in_bytes + shm->ring_bytes;
    size_t bytes;
    assert_false(shm_fifo_open(shm, 1, 1, ONE));
    assert_false(shm_fifo_open(shm, 1, SPAN - 1, ONE));
    assert_false(shm_fifo_open(shm, 1, UINT64_MAX, ONE));
    assert_null(shm_fifo_peek(shm, 1, &bytes));
    for (uint64_t start = 0, n = 0; n < 64; n++, start = n << 57) {
        assert_true(shm_fifo_open(shm, 1, start, UINT64_MAX / 2));
        atomic_store(&shm->peer[1].in->fifo_written, start - ONE);
        assert_null(shm_fifo_peek(shm, 1, &bytes));
        for (int i = 0; i < 9; i++) {
            atomic_store(&shm->peer[1].in->fifo_written, start + ONE + n * 1000003);
            const char *piece = shm_fifo_peek(shm, 1, &bytes);
            if (piece == NULL) continue;
            assert_true(piece >= first && piece + bytes <= first + SPAN);
            shm_fifo_release(shm, 1, bytes);
        }
    }
    /* A reader claims to have read more than was written. */
    shm_fifo_begin(shm, 1, (uint64_t)64 * SPAN);
    for (int i = 0; i < 9; i++) {
        atomic_store(&shm->peer[1].out->fifo_read, (uint64_t)i << 60);
        assert_true(shm_fifo_copy_in(shm, 1, zeros) <= SPAN);
    }
    ends_close(end, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),           cmocka_unit_test(test_takes_memory_as_needed),
        cmocka_unit_test(test_races_for_pieces),   cmocka_unit_test(test_races_for_space),
        cmocka_unit_test(test_races_for_openings), cmocka_unit_test(test_wakes),
        cmocka_unit_test(test_chooses_stores),     cmocka_unit_test(test_wakes_again),
        cmocka_unit_test(test_faulty_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
