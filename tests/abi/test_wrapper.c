/* tutti.hpp compiles as C++17 to C++23 with each installed compiler, also without exceptions, and its calls work in a
 * job.  Older standards, elements without a dtype, and temporary or const outputs are refused by the compiler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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

static bool is_there(const char *compiler)
{
    return shell("command -v %s >/dev/null", compiler) == 0;
}

static void calls(void **state)
{
    char program[] = "/tmp/tutti-wrapper-XXXXXX";
    (void)state;
    if (!is_there("g++")) skip(); /* g++ is not installed */
    int file = mkstemp(program);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(shell("g++ -std=c++20 " FLAGS " '" TUTTI_SOURCE_DIR "/tests/abi/wrapper.cc' -L '" TUTTI_BUILD_DIR
                           "/lib' -ltutti -Wl,-rpath,'" TUTTI_BUILD_DIR "/lib' -o %s",
                           program),
                     0);
    assert_int_equal(shell(TUTTI_RUN_PATH " -n 3 --timeout 60 %s", program), 0);
    unlink(program);
}

static void standards(void **state)
{
    static const char *const compilers[] = {"g++", "clang++"}, *const newer[] = {"c++17", "c++2b"};
    int tried = 0;
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (!is_there(compilers[i])) continue;
        tried++;
        for (int k = 0; k < 2; k++)
            assert_int_equal(shell("%s -std=%s " FLAGS " -fsyntax-only '" TUTTI_SOURCE_DIR "/tests/abi/wrapper.cc'",
                                   compilers[i], newer[k]),
                             0);
        /* an older standard gets one error, which says what to do */
        assert_int_equal(shell("[ \"$(echo '#include <tutti/tutti.hpp>' | %s -x c++ -std=c++11 " FLAGS
                               " -fsyntax-only - 2>&1 | grep 'error:' | grep -c 'needs C++17')\" = 1 ]",
                               compilers[i]),
                         0);
    }
    if (tried == 0) skip(); /* no C++ compiler is installed */
}

/* Compiles a line after the header, which is compiled before.  Returns true if it is accepted. */
static bool takes(const char *folder, const char *line)
{
    return shell("printf '%%s\\n' 'void f(tutti::group &g, std::vector<int> &x) { (void)x; %s }' | "
                 "g++ -x c++ -std=c++17 -fno-exceptions " FLAGS
                 " -include '%s/wrapper.hpp' -fsyntax-only - 2>/dev/null",
                 line, folder) == 0;
}

static void refusals(void **state)
{
    (void)state;
    char folder[] = "/tmp/tutti-wrapper-XXXXXX";
    if (!is_there("g++")) skip(); /* g++ is not installed */
    assert_non_null(mkdtemp(folder));
    assert_int_equal(shell("g++ -x c++-header -std=c++17 -fno-exceptions " FLAGS " '" TUTTI_SOURCE_DIR
                           "/include/tutti/tutti.hpp' -o %s/wrapper.hpp.gch",
                           folder),
                     0);
    assert_true(takes(folder, "g.broadcast(x, 0);"));
    assert_false(takes(folder, "g.broadcast(std::vector<int>(3), 0);"));
    assert_false(takes(folder, "std::vector<long double> y(3); g.broadcast(y, 0);"));
    assert_false(takes(folder, "g.async_broadcast(x, 0);")); /* the work is dropped */
    assert_false(takes(folder, "g.try_broadcast(x, 0);"));   /* and here the result */
    assert_true(takes(folder, "g.broadcast(tutti::span(x).subspan(0, 1), 0);"));
    assert_false(takes(folder, "const std::vector<int> y(3); g.broadcast(y, 0);"));
    assert_true(takes(folder, "const std::vector<int> y(3); g.send(y, 0);"));
    assert_false(takes(folder, "g.send(std::vector<int>(3), 0);"));
    shell("rm -r %s", folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls), cmocka_unit_test(standards),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
