/* tutti.hpp compiles as C++17 and C++20 with each installed compiler, and its calls work in a job.  A container of an
 * element without a dtype, and a temporary as an output, are refused by the compiler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static int shell(const char *format, ...)
{
    char command[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command);
}

#define FLAGS "-Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror -I '" TUTTI_SOURCE_DIR "/include'"

static void calls(void **state)
{
    char program[] = "/tmp/tutti-wrapper-XXXXXX";
    int file = mkstemp(program), ran = 0;
    (void)state;
    assert_true(file >= 0);
    close(file);
    for (int i = 0; i < 4; i++) {
        const char *compiler = i < 2 ? "g++" : "clang++", *standard = i % 2 ? "c++20" : "c++17";
        if (shell("command -v %s >/dev/null", compiler) != 0) continue;
        assert_int_equal(shell("%s -std=%s " FLAGS " '" TUTTI_SOURCE_DIR "/tests/abi/wrapper.cc' -L '" TUTTI_BUILD_DIR
                               "/lib' -ltutti -Wl,-rpath,'" TUTTI_BUILD_DIR "/lib' -o %s",
                               compiler, standard, program),
                         0);
        if (ran++ == 0) assert_int_equal(shell(TUTTI_RUN_PATH " -n 3 --timeout 60 %s", program), 0);
    }
    unlink(program);
    if (ran == 0) skip(); /* no C++ compiler is installed */
}

/* Compiles a line after the header.  Returns true if it is accepted. */
static int takes(const char *line)
{
    return shell(
               "printf '%%s\\n' '#include <tutti/tutti.hpp>' 'void f(tutti::group &g, std::vector<int> &x) { (void)x;' "
               "'%s' '}' | g++ -x c++ -std=c++17 " FLAGS " -fsyntax-only - 2>/dev/null",
               line) == 0;
}

static void refusals(void **state)
{
    (void)state;
    if (shell("command -v g++ >/dev/null") != 0) skip(); /* g++ is not installed */
    assert_true(takes("g.broadcast(x, 0);"));
    assert_false(takes("g.broadcast(std::vector<int>(3), 0);"));
    assert_false(takes("std::vector<long double> y(3); g.broadcast(y, 0);"));
    assert_false(takes("g.async_broadcast(x, 0);")); /* the work is dropped */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
