/* core/diagnose/note.c: what a rank tells of a failure arrives whole, and nothing malformed is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "op/note.h"

static void test_any_rank_may_be_given_up(void **state)
{
    struct note note = {.type = NOTE_FAILED, .status = TUTTI_ERR_TIMEOUT, .sequence = 41}, read;
    uint8_t wire[NOTE_BYTES];
    (void)state;
    strcpy(note.text, "rank 64 did not come");
    for (int i = 0; i < NOTE_PLACES; i++) note.given_up.rank[note.given_up.n++] = (uint32_t)i * 64; /* 0, 64, 128 .. */
    size_t bytes = note_encode(&note, wire);
    assert_true(bytes <= NOTE_BYTES && note_parse(wire, bytes, &read));
    assert_string_equal(read.text, note.text);
    assert_true(read.sequence == 41 && read.status == TUTTI_ERR_TIMEOUT);
    for (int rank = 0; rank < NOTE_PLACES * 64 + 100; rank++)
        assert_true(note_ranks_have(&read.given_up, rank) == (rank % 64 == 0 && rank < NOTE_PLACES * 64));
}

static void test_the_text_makes_room(void **state)
{
    struct note note = {.type = NOTE_FAILED, .status = TUTTI_ERR_TIMEOUT, .given_up = {2, {7, 70}}}, read;
    uint8_t wire[NOTE_BYTES];
    (void)state;
    memset(note.text, 'x', NOTE_TEXT);
    assert_int_equal(note_encode(&note, wire), NOTE_BYTES);
    assert_true(note_parse(wire, NOTE_BYTES, &read));
    assert_int_equal(strlen(read.text), NOTE_TEXT - 2 * sizeof(uint32_t));
    assert_true(note_ranks_have(&read.given_up, 70));
}

static void test_malformed(void **state)
{
    struct note note = {.type = NOTE_FAILED, .status = TUTTI_ERR_TIMEOUT, .given_up = {3, {1, 2, 3}}}, read;
    uint8_t wire[NOTE_BYTES] = {0};
    (void)state;
    size_t bytes = note_encode(&note, wire);
    assert_false(note_parse(wire, bytes - 1, &read)); /* two and a half ranks, of three */
    wire[24] = NOTE_PLACES + 1;                       /* more than there can be */
    assert_false(note_parse(wire, NOTE_BYTES, &read));
    wire[24] = 0;
    wire[31] = 0x80; /* so many that their bytes overflow */
    assert_false(note_parse(wire, NOTE_BYTES, &read));
    wire[0] = NOTE_LEFT; /* which has no bytes */
    assert_false(note_parse(wire, NOTE_HEAD, &read));
    assert_true(note_parse(wire, 0, &read) && read.type == NOTE_LEFT);
    note = (struct note){.type = NOTE_ASK};
    assert_int_equal(note_encode(&note, wire), NOTE_HEAD);
    assert_true(note_parse(wire, NOTE_HEAD, &read));
    assert_false(note_parse(wire, NOTE_HEAD + 4, &read));
}

static void test_messages(void **state)
{
    static const struct note_message messages[] = {
        {true, -1, 0}, {true, 0, INT32_MAX}, {false, 5, 7}, {false, (1 << 30) - 2, 0}, {true, -1, TUTTI_ANY_TAG}};
    (void)state;
    for (int i = 0; i < 5; i++) {
        uint64_t packed = note_message_pack(&messages[i]);
        struct note_message read = note_message_unpack(packed);
        assert_int_not_equal(packed, 0);
        assert_true(read.receives == messages[i].receives && read.peer == messages[i].peer &&
                    read.tag == messages[i].tag);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_rank_may_be_given_up),
        cmocka_unit_test(test_the_text_makes_room),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
