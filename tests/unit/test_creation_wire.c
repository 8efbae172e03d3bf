/* core/group/creation_wire.c: messages of the ranks of a new group arrive whole, malformed ones are refused, and
 * differences are put into words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "group/creation_wire.h"

static struct creation_message full(enum creation_type type)
{
    struct creation_message message = {.type = type,
                                       .status = type == CREATION_PROPOSAL ? TUTTI_OK : TUTTI_ERR_MISMATCH,
                                       .key = UINT64_MAX - 1,
                                       .parent = 7,
                                       .number = 1000};
    if (type == CREATION_PROPOSAL) {
        message.list = (struct creation_members){.hash = 3, .backend_hash = 4, .n = 300, .n_listed = CREATION_RANKS};
        for (int i = 0; i < CREATION_RANKS; i++) message.list.rank[i] = i * 1000;
        memset(message.list.backend, 'b', CREATION_TEXT - 1);
    } else {
        message.n_offers = CREATION_OFFERS;
        memset(message.offer, 0xab, sizeof message.offer);
        memset(message.text, 't', CREATION_TEXT - 1);
    }
    return message;
}

static void test_whole(void **state)
{
    (void)state;
    for (enum creation_type type = CREATION_PROPOSAL; type <= CREATION_CHOICES; type++) {
        struct creation_message sent = full(type), read;
        uint8_t wire[CREATION_BYTES];
        size_t bytes = creation_wire_encode(&sent, wire);
        assert_true(bytes <= CREATION_BYTES);
        assert_true(creation_wire_parse(wire, bytes, &read));
        assert_memory_equal(&read, &sent, sizeof sent);
    }
}

/* The verdict on a split carries colors and keys. */
static void test_choices(void **state)
{
    struct creation_message sent = {.type = CREATION_VERDICT, .list = {.n = 100, .n_listed = CREATION_RANKS}}, read;
    uint8_t wire[CREATION_BYTES];
    (void)state;
    for (int i = 0; i < CREATION_RANKS; i++) sent.list.rank[i] = -i;
    size_t bytes = creation_wire_encode(&sent, wire);
    assert_int_equal(bytes, CREATION_HEAD + CREATION_RANKS * sizeof(int32_t));
    assert_true(creation_wire_parse(wire, bytes, &read));
    assert_memory_equal(&read, &sent, sizeof sent);
}

/* Tries every value of each byte of the head. */
static void test_malformed(void **state)
{
    struct creation_message sent = full(CREATION_PROPOSAL), read;
    uint8_t wire[CREATION_BYTES + 1];
    (void)state;
    size_t bytes = creation_wire_encode(&sent, wire);
    for (size_t n = 0; n < CREATION_HEAD + CREATION_RANKS * sizeof(int32_t); n++)
        assert_false(creation_wire_parse(wire, n, &read));
    assert_false(creation_wire_parse(wire, CREATION_BYTES + 1, &read));
    for (size_t at = 0; at < CREATION_HEAD; at++)
        for (int value = 0; value < 256; value++) {
            uint8_t before = wire[at];
            wire[at] = (uint8_t)value;
            if (creation_wire_parse(wire, bytes, &read))
                assert_true(read.list.n_listed <= CREATION_RANKS && read.n_offers <= CREATION_OFFERS &&
                            read.status <= 0 && read.list.n_listed <= read.list.n);
            wire[at] = before;
        }
}

static struct creation_members list_of(const int32_t *ranks, uint32_t n, const char *backend)
{
    struct creation_members list = {
        .hash = n, .backend_hash = 1, .n = n, .n_listed = n < CREATION_RANKS ? n : CREATION_RANKS};
    for (uint32_t i = 0; i < n; i++) {
        list.hash = list.hash * 31 + (uint64_t)ranks[i];
        if (i < CREATION_RANKS) list.rank[i] = ranks[i];
    }
    for (const char *at = backend; *at != '\0'; at++) list.backend_hash = list.backend_hash * 31 + (uint64_t)*at;
    strcpy(list.backend, backend);
    return list;
}

static void test_words(void **state)
{
    enum { MANY = 256 };
    char text[CREATION_TEXT];
    int32_t many[MANY];
    (void)state;
    struct creation_members a = list_of((int32_t[]){0, 1, 3, 2}, 4, "tcp"),
                            b = list_of((int32_t[]){0, 1, 2, 3}, 4, "tcp");
    assert_false(creation_wire_describe_difference(&a, 1, &a, 0, text, sizeof text));
    assert_true(creation_wire_describe_difference(&a, 1, &b, 0, text, sizeof text));
    assert_string_equal(text, "rank 1 made this group of [0,1,3,2], rank 0 of [0,1,2,3]");
    b = list_of((int32_t[]){0, 1, 3, 2}, 4, "cpu:tcp|mpi");
    assert_true(creation_wire_describe_difference(&a, 1, &b, 0, text, sizeof text));
    assert_string_equal(text, "rank 1 made this group with backend \"tcp\", rank 0 with \"cpu:tcp|mpi\"");
    for (int i = 0; i < MANY; i++) many[i] = i;
    a = list_of(many, MANY, "tcp");
    many[40] = 41;
    many[41] = 40;
    b = list_of(many, MANY, "tcp");
    assert_true(creation_wire_describe_difference(&a, 1, &b, 0, text, sizeof text));
    assert_string_equal(text,
                        "rank 1 made this group of 256 ranks with 40 at index 40, rank 0 of 256 ranks with 41 there");
    many[40] = 40;
    many[41] = 41;
    many[255] = 300; /* beyond the listed ranks */
    b = list_of(many, MANY, "tcp");
    assert_true(creation_wire_describe_difference(&a, 1, &b, 0, text, sizeof text));
    assert_non_null(strstr(text, "256 in total"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole), cmocka_unit_test(test_choices),
                                       cmocka_unit_test(test_malformed), cmocka_unit_test(test_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
