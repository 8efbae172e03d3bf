/* The flight recorder's rings: what they hold, how they grow, and how often they read the clock. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/marks.h"
#include "base/token.h"
#include "diagnose/recorder.h"
#include "op/record.h"

static const tutti_tensor tensor = {.numel = 7, .dtype = TUTTI_FLOAT32};

static uint32_t issue(struct record_ring *ring, uint64_t sequence)
{
    static int64_t clock_ns;
    tutti_op op = {.kind = TUTTI_BROADCAST,
                   .dtype = TUTTI_FLOAT32,
                   .root = 3,
                   .tag = 4,
                   .sequence = sequence,
                   .n_out = 1,
                   .out = &tensor};
    return record_issue(ring, &clock_ns, &op, sequence * 10);
}

static void a_ring_holds_the_latest(void **state)
{
    struct record_ring ring = {0};
    (void)state;
    for (uint64_t i = 1; i <= 5000; i++) {
        uint32_t handle = issue(&ring, i);
        const struct record *record = record_find(&ring, handle);
        assert_true(record != NULL && record->sequence == i && record->fingerprint == i * 10);
        assert_true(record->root == 3 && record->tag == 4 && record->numel == 7 && record->issued_ns > 0);
        uint64_t kept = (uint64_t)ring.mask + 1 < i ? (uint64_t)ring.mask + 1 : i;
        if (i <= RECORDS_MOST) assert_int_equal(kept, i);
        for (uint64_t k = i - kept + 1; k <= i; k += 1 + kept / 7)
            assert_int_equal(ring.slots[(k - 1) & ring.mask].sequence, k);
        assert_null(record_find(&ring, (uint32_t)(i - kept)));
    }
    assert_int_equal(ring.mask, RECORDS_MOST - 1);
    record_free(&ring);
}

static void a_record_ends_once(void **state)
{
    struct record_ring ring = {0};
    (void)state;
    uint32_t first = issue(&ring, 1), second = issue(&ring, 2);
    int64_t issued = record_find(&ring, second)->issued_ns;
    record_end(&ring, first, TUTTI_OK, 0);
    record_start(&ring, second, issued + 5000);
    record_end(&ring, second, TUTTI_ERR_TIMEOUT, issued + 9000);
    assert_int_equal(record_find(&ring, first)->kind_state, TUTTI_BROADCAST | RECORD_DONE << RECORD_STATE_AT);
    uint32_t word = record_find(&ring, second)->kind_state;
    assert_int_equal(word >> RECORD_STATE_AT & 0xff, RECORD_FAILED);
    assert_int_equal((int16_t)(word >> RECORD_STATUS_AT), TUTTI_ERR_TIMEOUT);
    assert_int_equal(record_find(&ring, second)->started, 5000 >> RECORD_TIME_SHIFT);
    assert_int_equal(record_find(&ring, second)->ended, 9000 >> RECORD_TIME_SHIFT);
    record_end(&ring, 0, TUTTI_OK, 0); /* an operation without a record */
    record_free(&ring);
}

/* An operation that is recorded like another one has the record that it would have had by itself. */
static void a_repeated_operation_is_recorded_alike(void **state)
{
    struct record_ring rings[2] = {{0}, {0}};
    int64_t clock_ns[2] = {0, 0};
    struct record like = {0}, records[2];
    uint32_t handles[2], marks = atomic_load(&record_mark);
    tutti_op op = {.kind = TUTTI_SEND, .dtype = TUTTI_FLOAT32, .root = -1, .tag = 99, .n_in = 1, .in = &tensor};
    (void)state;
    record_fill(&like, &op, 12);
    for (int i = 1; i <= 500; i++) {
        op.root = i % 3;
        op.tag = i;
        atomic_store(&record_mark, marks + (uint32_t)i / 100);
        handles[0] = record_issue(&rings[0], &clock_ns[0], &op, 12);
        handles[1] = record_issue_like(&rings[1], &clock_ns[1], &like, op.root, op.tag);
        for (int k = 0; k < 2; k++) {
            records[k] = *record_find(&rings[k], handles[k]);
            assert_true(records[k].issued_ns > 0 && records[k].issued_ns == clock_ns[k]);
            records[k].issued_ns = 0;
            record_end(&rings[k], handles[k], TUTTI_OK, 0);
        }
        assert_int_equal(handles[0], handles[1]);
        assert_memory_equal(&records[0], &records[1], offsetof(struct record, mark) + sizeof like.mark);
        assert_true(records[0].sequence == records[1].sequence && records[0].numel == records[1].numel);
        assert_true(records[1].started == 0 && records[1].ended == 0);
    }
    atomic_store(&record_mark, marks);
    for (int k = 0; k < 2; k++) record_free(&rings[k]);
}

static void an_operation_that_is_refused_leaves_no_record(void **state)
{
    struct record_ring ring = {0};
    (void)state;
    record_undo(&ring, 0);
    assert_int_equal(ring.next, 0);
    for (uint64_t i = 1; i < 3000; i++) {
        record_undo(&ring, issue(&ring, 999999));
        assert_int_equal(ring.slots[(i - 1) & ring.mask].kind_state >> RECORD_STATE_AT, RECORD_UNDONE);
        uint32_t handle = issue(&ring, i);
        issue(&ring, i + 1);
        record_undo(&ring, handle); /* not the latest */
        record_undo(&ring, (uint32_t)ring.next);
        assert_int_equal(ring.next, i);
        assert_int_equal(ring.slots[(i - 1) & ring.mask].sequence, i);
    }
    record_free(&ring);
}

/* Operations in quick succession share readings of the clock.  After a pause the next ones read it again. */
static void the_clock_is_read_seldom(void **state)
{
    struct record_ring ring = {0};
    int readings = 0;
    (void)state;
    for (int i = 0; i < 4096; i++) {
        int64_t before = ring.read_ns;
        issue(&ring, 1);
        readings += ring.read_ns != before;
    }
    assert_in_range(readings, 4096 / RECORD_READ_MOST, 4096 / 2);
    record_free(&ring);
}

static void memory_is_bounded(void **state)
{
    enum { RINGS = 2000 };
    struct record_ring *rings = calloc(RINGS, sizeof *rings);
    size_t bytes = 0;
    (void)state;
    assert_non_null(rings);
    for (int i = 0; i < RINGS; i++) {
        for (int k = 0; k < RECORDS_MOST + 1; k++) issue(&rings[i], 1);
        bytes += ((size_t)rings[i].mask + 1) * sizeof(struct record);
    }
    assert_in_range(bytes, RECORD_BUDGET / 2, RECORD_BUDGET + RINGS * RECORDS_FIRST * sizeof(struct record));
    assert_int_equal(rings[0].mask, RECORDS_MOST - 1);
    assert_int_equal(rings[RINGS - 1].mask, RECORDS_FIRST - 1);
    for (int i = 0; i < RINGS; i++) record_free(&rings[i]);
    struct record_ring again = {0}; /* the memory is there again */
    for (int k = 0; k < RECORDS_MOST + 1; k++) issue(&again, 1);
    assert_int_equal(again.mask, RECORDS_MOST - 1);
    record_free(&again);
    free(rings);
}

static void the_latest_marks_are_kept(void **state)
{
    struct mark marks[MARKS_KEPT];
    char text[200];
    (void)state;
    assert_int_equal(marks_read(marks), 0);
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(marks_add(text), 1);
    assert_int_equal(marks_read(marks), 1);
    assert_int_equal(strlen(marks[0].text), MARK_TEXT_MOST - 1);
    for (uint32_t i = 2; i <= MARKS_KEPT + 10; i++) assert_int_equal(marks_add("y"), i);
    assert_int_equal(marks_read(marks), MARKS_KEPT);
    for (uint32_t i = 0; i < MARKS_KEPT; i++) assert_int_equal(marks[i].number, 11 + i);
}

static uint64_t write_job(const char *folder)
{
    char path[64];
    uint64_t job = 0;
    assert_int_equal(recorder_write(folder, "test"), TUTTI_OK);
    snprintf(path, sizeof path, "%s/process-%d.record", folder, (int)getpid());
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "tutti-record 1\nprocess job=%" SCNx64, &job), 1);
    fclose(file);
    unlink(path);
    return job;
}

/* Ranks that wait for each other have one number, although only some have received the job's secret. */
static void ranks_in_init_are_of_one_job(void **state)
{
    char folder[] = "/tmp/test_record.XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    uint64_t job = write_job(folder);
    token_adopt((const uint8_t[TOKEN_BYTES]){1});
    assert_true(job != 0 && write_job(folder) == job);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_holds_the_latest),
        cmocka_unit_test(a_record_ends_once),
        cmocka_unit_test(a_repeated_operation_is_recorded_alike),
        cmocka_unit_test(an_operation_that_is_refused_leaves_no_record),
        cmocka_unit_test(the_clock_is_read_seldom),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(the_latest_marks_are_kept),
        cmocka_unit_test(ranks_in_init_are_of_one_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
