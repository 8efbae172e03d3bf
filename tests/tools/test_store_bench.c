/* Ten thousand clients join the tcp store at once, by tutti-store-bench. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { CLIENTS = 10000, SERVER_FDS = CLIENTS + 200, JOIN_SECONDS = 10 };

static void test_ten_thousand_clients(void **state)
{
    (void)state;
    struct rlimit limit;
    char line[256], command[512];
    double join = -1;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < SERVER_FDS) skip();
    snprintf(command, sizeof command, "%s/bin/tutti-store-bench --clients %d", TUTTI_BUILD_DIR, CLIENTS);
    FILE *bench = popen(command, "re");
    assert_non_null(bench);
    while (fgets(line, sizeof line, bench) != NULL) {
        printf("%s", line);
        sscanf(line, "join %lf s", &join);
    }
    assert_int_equal(pclose(bench), 0);
    if (join < 0 || join > JOIN_SECONDS) fail_msg("%d clients join within %.1f s", CLIENTS, join);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ten_thousand_clients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
