/* backends/tcp/shm/choice.c: the way of an operation, chosen by times that the test makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../backends/tcp/shm/choice.c"

enum { BYTES = 64 << 10, ALL = 7 }; /* three ways */

/* Makes at least n calls.  A call in way i takes ns[i].  Counts the calls of each way. */
static void call(struct choice *choice, unsigned ways, const int ns[3], int n, int count[3])
{
    int least = choice_short_span(choice_class(BYTES));
    memset(count, 0, 3 * sizeof *count);
    if (choice->calls == 0) choice->calls = (uint64_t)least;
    for (int length = least; n > 0; n -= length) {
        int way = choice->way;
        assert_true(ways >> way & 1);
        choice_add(choice, ns[way]);
        length = choice_end_span(choice, ways, least);
        assert_true(length == least || (length >= 2 * least && length <= CHOICE_STEADY));
        count[choice->way] += length;
    }
}

static void test_takes_the_fastest(void **state)
{
    (void)state;
    for (int best = 0; best < 3; best++) {
        struct choice choice = {0};
        int ns[3] = {1300, 1200, 1250}, count[3];
        ns[best] = 1000;
        call(&choice, ALL, ns, 100 * choice_short_span(choice_class(BYTES)), count);
        call(&choice, ALL, ns, 500, count);
        assert_int_equal(choice.way, best);
        call(&choice, ALL, ns, 100000, count);
        assert_true(count[best] > 98000);
        for (int i = 0; i < 3; i++) assert_int_not_equal(count[i], 0); /* the others are tried */
    }
}

/* A program that ends soon must not have measured slow ways most of the time: all of their loss but the last one's is
 * a small part of the best way's time. */
static void test_few_calls(void **state)
{
    static const int ns[3] = {1000, 2000, 2000};
    (void)state;
    for (int calls = 100; calls < 3000; calls += 100) {
        struct choice choice = {0};
        int count[3], span = choice_short_span(choice_class(BYTES));
        call(&choice, ALL, ns, calls, count);
        assert_true((count[1] + count[2] - span) * CHOICE_REPAY <= count[0]);
    }
}

/* The best way is taken for longer after a slower one, within limits. */
static void test_repays(void **state)
{
    (void)state;
    assert_int_equal(span_of_best(1500, 1000, 8), 8 * CHOICE_REPAY / 2);
    assert_int_equal(span_of_best(2000, 1000, 4), 4 * CHOICE_REPAY);
    assert_int_equal(span_of_best(1001, 1000, 8), 16);
    assert_int_equal(span_of_best(900, 1000, 8), 16);
    assert_int_equal(span_of_best(NS_MAX, 1, 8), CHOICE_STEADY);
    assert_int_equal(span_of_best(1000, 0, 8), 16); /* the best one is not known yet */
    assert_int_equal(span_of_best(1500, 1000, 135),
                     135 * CHOICE_REPAY / 2); /* parts of fragment buffers: see agree.c */
    assert_int_equal(span_of_best(NS_MAX, 1, 135), 135 * CHOICE_REPAY);
}

/* No span is shorter than a short one.  In the steady state, spans of the best way are sixteen times as long. */
static void test_long_short_spans(void **state)
{
    enum { SHORTEST = CHOICE_STEADY + 7 };
    struct choice choice = {.calls = SHORTEST};
    (void)state;
    for (int i = 0; i < 100; i++) {
        choice_add(&choice, 1000 + choice.way * 1000);
        int length = choice_end_span(&choice, ALL, SHORTEST);
        assert_true(length >= SHORTEST);
        if (i > 50 && choice.way == 0) assert_int_equal(length, 16 * SHORTEST);
    }
    assert_int_equal(choice.way, 0);
}

static void test_far_slower_ones_are_rare(void **state)
{
    static const int ns[3] = {1000, 1100, 9000};
    struct choice choice = {0};
    int count[3];
    (void)state;
    call(&choice, ALL, ns, 1000, count);
    call(&choice, ALL, ns, 1000000, count);
    assert_true(count[2] > 0 && count[2] * 4 < count[1]);
}

static void test_one_long_time_changes_nothing(void **state)
{
    static const int calm[3] = {1000, 1400, 1400}, interrupted[3] = {100000, 1400, 1400};
    struct choice choice = {0};
    int count[3];
    (void)state;
    call(&choice, ALL, calm, 2000, count);
    assert_int_equal(choice.way, 0);
    for (int i = 0; i < 100; i++) {
        while (choice.way != 0) call(&choice, ALL, calm, 1, count); /* a trial */
        call(&choice, ALL, interrupted, 1, count);
        assert_int_equal(choice.way, 0);
        call(&choice, ALL, calm, 1, count);
        assert_int_equal(choice.ns[0], 1000);
        call(&choice, ALL, calm, CHOICE_STEADY, count);
    }
}

/* The machine changes: the best way becomes slower, or faster, or another one becomes the fastest. */
static void test_a_change_is_noticed(void **state)
{
    static const int before[3] = {1000, 1400, 1200}, slower[3] = {3000, 1400, 1800}, faster[3] = {500, 1400, 300},
                     other[3] = {1000, 1400, 600};
    int count[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct choice choice = {0};
        call(&choice, ALL, before, 20000, count);
        assert_int_equal(choice.way, 0);
        call(&choice, ALL, i == 0 ? slower : i == 1 ? faster : other, i == 2 ? 2 * TRY_LAST : 4000, count);
        assert_int_equal(choice.way, i == 0 ? 1 : 2);
    }
}

/* Times that vary by more than DRIFT do not keep the choice calibrating. */
static void test_noise(void **state)
{
    struct choice choice = {0};
    int count[3], shorter = 0, least = choice_short_span(choice_class(BYTES));
    uint64_t random = 1;
    (void)state;
    for (int i = 0; i < 10000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407U;
        int ns[3] = {1000 + (int)(random >> 33) % 2000, 1100 + (int)(random >> 40) % 2000, 5000};
        int calls = 0;
        call(&choice, ALL, ns, 1, count);
        for (int k = 0; k < 3; k++) calls += count[k];
        shorter += calls == least;
    }
    assert_in_range(shorter, 1, 4500); /* of spans; they are a quarter as long */
}

/* The first times of all do not count: a way that looks slow at first is not left for one that is slower. */
static void test_first_span_does_not_count(void **state)
{
    static const int ns[3] = {2000, 1000, 2000};
    struct choice choice = {.way = 1};
    int count[3];
    (void)state;
    choice_add(&choice, 10000);
    assert_int_equal(choice_end_span(&choice, ALL, 8), 8);
    assert_int_equal(choice.way, 1);
    call(&choice, ALL, ns, 200, count);
    assert_true((count[0] + count[2] - 8) * CHOICE_REPAY <= count[1]);
}

/* A class above 256 KiB begins without the ways that were far slower in one up to three classes below. */
static void test_starts_from_a_smaller_class(void **state)
{
    enum { SMALL = ALIKE_FROM, LARGE = SMALL + ALIKE };
    static const int small[3] = {1000, 900, 4000}, alike[3] = {8000, 7200, 32000}, other[3] = {8000, 9000, 5000};
    struct choice classes[CHOICE_CLASSES] = {0}, *large = &classes[LARGE];
    int count[3];
    (void)state;
    call(&classes[SMALL - 1], ALL, small, 500, count);
    choice_start(&classes[SMALL], ALL, SMALL, sizeof *classes);
    assert_int_equal(classes[SMALL].ns[2], 0); /* calls count more than bytes there */
    call(&classes[SMALL], ALL, small, 500, count);
    choice_start(&classes[LARGE + 1], ALL, LARGE + 1, sizeof *classes);
    assert_int_equal(classes[LARGE + 1].ns[2], 0); /* four classes below */

    choice_start(large, ALL, LARGE, sizeof *classes);
    assert_true(large->ns[0] == 0 && large->ns[1] == 0 && large->ns[2] > 30000);
    call(large, ALL, alike, 500, count);
    assert_int_equal(large->way, 1);
    assert_int_equal(count[2], 0);

    *large = (struct choice){0};
    choice_start(large, ALL, LARGE, sizeof *classes);
    call(large, ALL, other, 2 * TRY_FIRST, count); /* the way is tried, and is the fastest here */
    assert_int_equal(large->way, 2);
}

/* The next lower class in which a way has been timed counts. */
static void test_starts_from_the_next_class(void **state)
{
    struct choice classes[CHOICE_CLASSES] = {0};
    (void)state;
    classes[ALIKE_FROM] = (struct choice){.ns = {4000, 900}, .rounds = {1, 1}, .timed = 3};
    classes[ALIKE_FROM + 1] = (struct choice){.ns = {9000}, .rounds = {1}};
    choice_start(&classes[ALIKE_FROM + 2], ALL, ALIKE_FROM + 2, sizeof *classes);
    assert_int_equal(classes[ALIKE_FROM + 2].ns[0], 16000);
    classes[ALIKE_FROM + 1] = (struct choice){.ns = {9000, 1500}, .rounds = {1, 1}, .timed = 3};
    choice_start(&classes[ALIKE_FROM + 2], ALL, ALIKE_FROM + 2, sizeof *classes);
    assert_int_equal(classes[ALIKE_FROM + 2].ns[0], 18000);
}

/* An estimate from a lower class is not passed on to a higher one, which times the way again. */
static void test_passes_on_what_was_timed(void **state)
{
    enum { FIRST = ALIKE_FROM };
    struct choice classes[CHOICE_CLASSES] = {0};
    (void)state;
    classes[FIRST] = (struct choice){.ns = {1000, 4000}, .rounds = {3, 1}, .timed = 3};
    choice_start(&classes[FIRST + 1], ALL, FIRST + 1, sizeof *classes);
    assert_int_equal(classes[FIRST + 1].ns[1], 8000);
    choice_end_span(&classes[FIRST + 1], 1, SPAN_MIN);
    choice_add(&classes[FIRST + 1], 2000);
    choice_end_span(&classes[FIRST + 1], 1, SPAN_MIN);
    choice_start(&classes[FIRST + 2], ALL, FIRST + 2, sizeof *classes);
    assert_int_equal(classes[FIRST + 2].ns[1], 0);
}

/* The longest time of a span does not count, if there are more than two. */
static void test_longest_is_left_out(void **state)
{
    struct choice choice = {.calls = 1};
    (void)state;
    choice_add(&choice, 1000);
    choice_add(&choice, INT64_MAX);
    choice_add(&choice, 1200);
    choice_end_span(&choice, 1, 4);
    assert_int_equal(choice.ns[0], 1100);
    choice_add(&choice, INT64_MIN);
    choice_add(&choice, 1999);
    choice_end_span(&choice, 1, 4);
    assert_int_equal(choice.ns[0], 1000);
}

/* A way whose only time of its first round was that of an interruption is timed once more. */
static void test_interrupted_round(void **state)
{
    struct choice choice = {0};
    bool interrupted = false;
    (void)state;
    for (int i = 0; i < 20; i++) {
        bool interrupts = choice.way == 1 && !interrupted;
        if (choice.way == 1) choice_add(&choice, interrupts ? 5000 : 400);
        for (int k = 0; k < 4 && choice.way == 0; k++) choice_add(&choice, 600);
        interrupted |= interrupts;
        choice_end_span(&choice, 3, SPAN_MIN);
    }
    assert_true(interrupted);
    assert_int_equal(choice.way, 1);
}

static void test_ways_differ(void **state)
{
    static const int ns[3] = {1000, 2000, 3000};
    struct choice choice = {.way = 1};
    int count[3];
    (void)state;
    call(&choice, 6, ns, 1000, count);
    assert_int_equal(choice.way, 1);
    choice_add(&choice, 2000);
    choice_end_span(&choice, 4, 8);
    assert_int_equal(choice.way, 2);
    choice_add(&choice, 3000);
    choice_end_span(&choice, ALL, 8);
    assert_int_equal(choice.way, 1); /* the best one, before another one is measured */
    choice_add(&choice, 2000);
    choice_end_span(&choice, ALL, 8);
    assert_int_equal(choice.way, 0); /* it is new */
}

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(choice_class(CHOICE_MIN), 0);
    assert_int_equal(choice_class(2 * CHOICE_MIN - 1), 0);
    assert_int_equal(choice_class(2 * CHOICE_MIN), 1);
    assert_int_equal(choice_class(SIZE_MAX), CHOICE_CLASSES - 1);
    assert_int_equal(choice_short_span(choice_class(CHOICE_MIN)), SPAN_MAX);
    assert_int_equal(choice_short_span(choice_class((size_t)1 << 40)), SPAN_MIN);
}

static void test_prints(void **state)
{
    static const char *const names[CHOICE_WAYS] = {"a", "b", "c"};
    struct choice choice = {0};
    char text[64] = "", shorter[20] = "";
    (void)state;
    choice_print(&choice, "measured", names, text, sizeof text);
    assert_string_equal(text, "; not measured yet");
    choice.ns[0] = 12340, choice.ns[1] = 7000, choice.ns[2] = 900;
    choice.timed = 5; /* that of b comes from a lower class */
    choice_print(&choice, "measured", names, text, sizeof text);
    assert_string_equal(text, "; measured: a 12.3 us, c 0.9 us");
    choice_print(&choice, "measured", names, shorter, sizeof shorter);
    assert_int_equal(strlen(shorter), sizeof shorter - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_the_fastest),
        cmocka_unit_test(test_few_calls),
        cmocka_unit_test(test_repays),
        cmocka_unit_test(test_long_short_spans),
        cmocka_unit_test(test_interrupted_round),
        cmocka_unit_test(test_far_slower_ones_are_rare),
        cmocka_unit_test(test_one_long_time_changes_nothing),
        cmocka_unit_test(test_a_change_is_noticed),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_first_span_does_not_count),
        cmocka_unit_test(test_starts_from_a_smaller_class),
        cmocka_unit_test(test_starts_from_the_next_class),
        cmocka_unit_test(test_passes_on_what_was_timed),
        cmocka_unit_test(test_longest_is_left_out),
        cmocka_unit_test(test_ways_differ),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
