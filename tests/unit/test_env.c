/* Boolean variables of the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/env.h"

static void says(const char *text, bool value)
{
    setenv("TUTTI_TEST", text, 1);
    assert_int_equal(env_bool("TUTTI_TEST", false), value);
    assert_int_equal(env_bool("TUTTI_TEST", true), value);
}

static void test_words(void **state)
{
    (void)state;
    static const char *const words[2][6] = {{"0", "false", "no", "off", "OFF", "False"},
                                            {"1", "true", "yes", "on", "YES", "True"}};
    for (int value = 0; value < 2; value++)
        for (int i = 0; i < 6; i++) says(words[value][i], value);
}

/* Unset, empty, or neither yes nor no. */
static void test_fallback(void **state)
{
    (void)state;
    static const char *const others[] = {"", "2", "maybe", "offf", " 1"};
    unsetenv("TUTTI_TEST");
    assert_true(env_bool("TUTTI_TEST", true) && !env_bool("TUTTI_TEST", false));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        setenv("TUTTI_TEST", others[i], 1);
        assert_true(env_bool("TUTTI_TEST", true) && !env_bool("TUTTI_TEST", false));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_fallback)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
