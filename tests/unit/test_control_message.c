/* core/op/control_message.c: control messages arrive whole, and malformed ones are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "op/control_message.h"

static void test_any_rank_may_be_given_up(void **state)
{
    struct control_message message = {.type = CONTROL_FAILED, .status = TUTTI_ERR_TIMEOUT, .sequence = 41}, read;
    uint8_t wire[CONTROL_BYTES];
    (void)state;
    strcpy(message.text, "rank 64 did not come");
    for (int i = 0; i < CONTROL_POSITIONS; i++)
        message.given_up.rank[message.given_up.n++] = (uint32_t)i * 64; /* 0, 64, 128 .. */
    size_t bytes = control_message_encode(&message, wire);
    assert_true(bytes <= CONTROL_BYTES && control_message_parse(wire, bytes, &read));
    assert_string_equal(read.text, message.text);
    assert_true(read.sequence == 41 && read.status == TUTTI_ERR_TIMEOUT);
    for (int rank = 0; rank < CONTROL_POSITIONS * 64 + 100; rank++)
        assert_true(rank_set_has(&read.given_up, rank) == (rank % 64 == 0 && rank < CONTROL_POSITIONS * 64));
}

static void test_the_text_is_cut(void **state)
{
    struct control_message message = {.type = CONTROL_FAILED, .status = TUTTI_ERR_TIMEOUT, .given_up = {2, {7, 70}}},
                           read;
    uint8_t wire[CONTROL_BYTES];
    (void)state;
    memset(message.text, 'x', CONTROL_TEXT);
    assert_int_equal(control_message_encode(&message, wire), CONTROL_BYTES);
    assert_true(control_message_parse(wire, CONTROL_BYTES, &read));
    assert_int_equal(strlen(read.text), CONTROL_TEXT - 2 * sizeof(uint32_t));
    assert_true(rank_set_has(&read.given_up, 70));
}

static void test_malformed(void **state)
{
    struct control_message message = {.type = CONTROL_FAILED, .status = TUTTI_ERR_TIMEOUT, .given_up = {3, {1, 2, 3}}},
                           read;
    uint8_t wire[CONTROL_BYTES] = {0};
    (void)state;
    size_t bytes = control_message_encode(&message, wire);
    assert_false(control_message_parse(wire, bytes - 1, &read)); /* two and a half ranks instead of three */
    wire[24] = CONTROL_POSITIONS + 1;                            /* more ranks than a message can list */
    assert_false(control_message_parse(wire, CONTROL_BYTES, &read));
    wire[24] = 0;
    wire[31] = 0x80; /* so many that the number of bytes overflows */
    assert_false(control_message_parse(wire, CONTROL_BYTES, &read));
    wire[0] = CONTROL_LEFT; /* a kind without data */
    assert_false(control_message_parse(wire, CONTROL_HEAD, &read));
    assert_true(control_message_parse(wire, 0, &read) && read.type == CONTROL_LEFT);
    message = (struct control_message){.type = CONTROL_ASK};
    assert_int_equal(control_message_encode(&message, wire), CONTROL_HEAD);
    assert_true(control_message_parse(wire, CONTROL_HEAD, &read));
    assert_false(control_message_parse(wire, CONTROL_HEAD + 4, &read));
}

static void test_messages(void **state)
{
    static const struct control_wait messages[] = {
        {true, -1, 0}, {true, 0, INT32_MAX}, {false, 5, 7}, {false, (1 << 30) - 2, 0}, {true, -1, TUTTI_ANY_TAG}};
    (void)state;
    for (int i = 0; i < 5; i++) {
        uint64_t packed = control_wait_pack(&messages[i]);
        struct control_wait read = control_wait_unpack(packed);
        assert_int_not_equal(packed, 0);
        assert_true(read.receives == messages[i].receives && read.peer == messages[i].peer &&
                    read.tag == messages[i].tag);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_rank_may_be_given_up),
        cmocka_unit_test(test_the_text_is_cut),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
