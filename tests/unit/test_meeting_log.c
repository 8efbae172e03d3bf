/* The log of a meeting: who is in by which lines, and when a group is made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/types.h>

#include <cmocka.h>

#include "group/generation.h"
#include "group/meeting_log.h"

#define ENTER "in 1 1 77 88 here\nin 2 2 78 89 there\nin 9 -1 79 90 here\n"

static struct meeting_log read_log(const char *text)
{
    struct meeting_log log = {0};
    assert_int_equal(meeting_log_read(&log, text), TUTTI_OK);
    return log;
}

static bool stays(const struct meeting_log *log, int64_t number)
{
    const struct attendee *attendee = meeting_log_find(log, number);
    return attendee != NULL && attendee_stays(attendee);
}

static void test_members(void **state)
{
    (void)state;
    struct meeting_log log = read_log(ENTER "lost 0 1\nask 1 1\nhere 2 1\ndead 9 2\nout 3\nskip 4 1\n");
    assert_true(stays(&log, 1) && stays(&log, 2) && !stays(&log, 9) && !stays(&log, 0) && !log.decided);
    assert_int_equal(meeting_log_count(&log), 2);
    assert_string_equal(meeting_log_find(&log, 2)->process, "78 89 there");
    assert_int_equal(meeting_log_find(&log, 2)->old_rank, 2);
    assert_int_equal(meeting_log_find(&log, 9)->old_rank, -1);
    assert_true(meeting_log_find(&log, 0)->lost && meeting_log_find(&log, 4)->skipped);
    assert_int_equal(meeting_log_find(&log, 2)->heard, 5);
    meeting_log_free(&log);
    log = read_log(ENTER "dead 9 2\nhere 9 1\ndecide 1\nin 5 5 x\ndead 1 2\nout 2\n"); /* too late to count */
    assert_int_equal(meeting_log_count(&log), 3);
    assert_true(log.decided && !log.none && stays(&log, 9) && stays(&log, 1) && !stays(&log, 5));
    meeting_log_free(&log);
    log = read_log(ENTER "none 1\ndecide 2\n");
    assert_true(log.decided && log.none);
    meeting_log_free(&log);
}

static void test_asked(void **state)
{
    (void)state;
    const char *text = ENTER "ask 1 1\nask 2 1\nask 2 2\n";
    assert_int_equal(meeting_log_asked(text, 1), 3);
    assert_int_equal(meeting_log_asked(text, 2), 5);
    assert_int_equal(meeting_log_asked(text, -1), 5);
    assert_int_equal(meeting_log_asked(text, 9), -1);
}

static void test_made(void **state)
{
    (void)state;
    struct meeting_log log = read_log(ENTER "made 1\ndecide 1\nmade 1\nmade 2\nmade 7\n");
    assert_false(meeting_log_is_made(&log));
    meeting_log_free(&log);
    log = read_log(ENTER "decide 1\nmade 1\nmade 2\nmade 9\nfail 2 -4 too late\n");
    assert_true(meeting_log_is_made(&log) && log.status == 0);
    meeting_log_free(&log);
    log = read_log(ENTER "decide 1\nmade 1\nfail 2 -3 no time\nmade 2\nmade 9\nfail 1 -4 second\n");
    assert_false(meeting_log_is_made(&log));
    assert_int_equal(log.status, TUTTI_ERR_TIMEOUT);
    assert_string_equal(log.text, "no time");
    meeting_log_free(&log);
}

static void test_unconnected(void **state)
{
    (void)state;
    struct meeting_log log = read_log(ENTER "lost 1 2\nlost 9 2\nlost 0 1\nlost 1 7777\n");
    meeting_log_exclude_unconnected(&log);
    assert_true(stays(&log, 1) && !stays(&log, 2) && stays(&log, 9)); /* once 2 is out, 9 has lost nobody */
    meeting_log_free(&log);
}

/* Lines that no rank writes are ignored, and nothing is read beyond the end. */
static void test_malformed(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "\n\n",
                                        "in",
                                        "in \n",
                                        "in x 1\n",
                                        "in -1 1\n",
                                        "in 1\n",
                                        "here\n",
                                        "fail 1\n",
                                        "fail 1 x\n",
                                        "in 99999999999999999999 1\n",
                                        "decideXXXXXXXXXXX 1\n",
                                        "lost 1\n",
                                        " in 1 1\n"};
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct meeting_log log = read_log(texts[i]);
        assert_false(log.decided);
        meeting_log_free(&log);
    }
    static const char *const entries[] = {
        "in 7\n",        "in 7 \n",        "in 7 x here\n",   "in 7 - here\n",     "in 7 1x here\n",
        "in 7  \n3 x\n", "in 7 -2 here\n", "in 7 -1x here\n", "in 7 2147483647\n", "in 7 99999999999999999999 here\n"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) { /* a member without a rank does not become rank 0 */
        struct meeting_log log = read_log(entries[i]);
        if (meeting_log_find(&log, 7) != NULL) fail_msg("accepted: %s", entries[i]);
        meeting_log_free(&log);
    }
    struct meeting_log bare = read_log("in 7 3\nin 8 -1\n");
    assert_int_equal(meeting_log_find(&bare, 7)->old_rank, 3);
    assert_int_equal(meeting_log_find(&bare, 8)->old_rank, -1);
    meeting_log_free(&bare);
    for (int round = 0; round < 2000; round++) {
        char *text = strdup(ENTER "lost 0 1\nask 1 1\nhere 2 1\ndecide 1\nmade 1\nfail 2 -4 text\n");
        for (int i = 0; i < 6; i++) {
            random = random * UINT64_C(6364136223846793005) + 1;
            text[(random >> 33) % strlen(text)] = " \n0-9ainf"[(random >> 20) % 9];
        }
        struct meeting_log log = read_log(text);
        meeting_log_exclude_unconnected(&log);
        assert_true(meeting_log_count(&log) <= log.n);
        meeting_log_free(&log);
        free(text);
    }
}

/* A text in the store that no rank writes is replaced, even with a NUL in it. */
static void test_foreign_generation(void **state)
{
    (void)state;
    tutti_store *store = NULL;
    struct generation *generation = NULL, *newest = NULL;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    assert_int_equal(generation_first(2, store, NULL, &generation), TUTTI_OK);
    generation->number = 3;
    assert_int_equal(tutti_store_set(store, "regroup/current", "1 1 7 0\0x", 9), TUTTI_OK);
    assert_int_equal(generation_read(store, &newest), TUTTI_ERR_STORE);
    assert_int_equal(generation_publish(generation), TUTTI_OK);
    assert_int_equal(generation_read(store, &newest), TUTTI_OK);
    assert_true(newest->number == 3 && newest->n == 2);
    generation_free(newest);
    generation_free(generation);
    tutti_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_asked),
        cmocka_unit_test(test_made),
        cmocka_unit_test(test_unconnected),
        cmocka_unit_test(test_foreign_generation),
        cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
