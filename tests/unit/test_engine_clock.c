/* The engine's readings of the clock: once a call or round, and for every work that has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "progress/engine.h"
#include "progress/engine_step.h"
#include "progress/work.h"

enum { ROUNDS = 16 }; /* between two looks at the clocks of works */

static int64_t check_none(struct engine *engine, int64_t now)
{
    (void)engine, (void)now;
    return CLOCK_NEVER;
}

static const struct engine_hooks hooks = {.check_deadlines = check_none};

static int open_engine(void **state)
{
    struct engine *engine;
    int status = engine_new(1, &hooks, &engine);
    *state = engine;
    return status;
}

static int close_engine(void **state)
{
    engine_drop(*state);
    return 0;
}

static void pass_time(int64_t since)
{
    while (clock_now_ns() <= since) continue;
}

struct reading {
    struct engine_event event;
    struct engine *engine;
    int64_t ns;
};

static void read_time(struct engine_event *event)
{
    struct reading *reading = (struct reading *)event;
    reading->ns = engine_time_ns(reading->engine);
}

static void test_once_a_call(void **state)
{
    struct engine *engine = *state;
    engine_count_call(engine);
    int64_t first = engine_time_ns(engine);
    pass_time(first);
    assert_int_equal(engine_time_ns(engine), first);
    engine_count_call(engine);
    assert_true(engine_time_ns(engine) > first);
}

/* What happens in a round does not get the time of the call before it, which may be long ago. */
static void test_once_a_round(void **state)
{
    struct engine *engine = *state;
    struct reading reading = {.event.handle = read_time, .engine = engine};
    engine_count_call(engine);
    int64_t before = engine_time_ns(engine);
    pass_time(before);
    engine_post(engine, &reading.event);
    engine_step(engine);
    assert_true(reading.ns > before);
    before = engine_time_ns(engine);
    pass_time(before);
    engine_post(engine, &reading.event);
    engine_step(engine);
    assert_true(reading.ns > before);
}

static void look(struct engine *engine)
{
    for (int i = 0; i < ROUNDS; i++) engine_step(engine);
}

/* Works that read the clock when they were issued do not hide those issued before them. */
static void test_starts_all_clocks(void **state)
{
    enum { WORKS = 5, TIMED = 2 };
    struct engine *engine = *state;
    static struct tutti_work work[WORKS];
    look(engine);
    for (int i = 0; i < WORKS; i++) {
        work[i] = (struct tutti_work){.engine = engine, .op.timeout_ms = 1000, .deadline_ns = CLOCK_NEVER};
        TAILQ_INSERT_TAIL(&engine->active, &work[i], link);
    }
    engine_count_call(engine);
    work_start_clock(&work[TIMED], engine_time_ns(engine));
    int64_t timed = work[TIMED].start_ns;
    work[WORKS - 1].draining = true;
    look(engine);
    for (int i = 0; i < WORKS - 1; i++) assert_true(work[i].start_ns >= timed && work[i].deadline_ns < CLOCK_NEVER);
    assert_int_equal(work[TIMED].start_ns, timed);
    assert_int_equal(work[WORKS - 1].start_ns, 0); /* its deadline is that of the draining */
    int64_t first = work[0].start_ns;
    look(engine);
    assert_int_equal(work[0].start_ns, first);
    TAILQ_INIT(&engine->active);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_once_a_call, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(test_once_a_round, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(test_starts_all_clocks, open_engine, close_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
