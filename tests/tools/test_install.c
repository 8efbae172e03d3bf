/* The files of cmake --install suffice to build and run a program elsewhere.  The program is the README's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void build_and_run(const char *how)
{
    char command[9000];
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", F_OK) != 0) skip();
    snprintf(command, sizeof command, "bash %s/tests/tools/install.sh %s %s %s", TUTTI_SOURCE_DIR, TUTTI_SOURCE_DIR,
             TUTTI_BUILD_DIR, how);
    assert_int_equal(system(command), 0);
}

static void with_pkg_config(void **state)
{
    (void)state;
    build_and_run("pkg-config");
}

static void with_static(void **state)
{
    (void)state;
    if (access(TUTTI_BUILD_DIR "/lib/libtutti.a", F_OK) != 0) skip(); /* TUTTI_STATIC is off */
    build_and_run("static");
}

static void with_find_package(void **state)
{
    (void)state;
    build_and_run("find_package");
}

static void with_a_plug_in(void **state)
{
    (void)state;
    build_and_run("my_backend");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_pkg_config),
        cmocka_unit_test(with_static),
        cmocka_unit_test(with_find_package),
        cmocka_unit_test(with_a_plug_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
