/* Ten thousand clients join the tcp store at once, by tutti-store-bench.  Time that other processes had the cores does
 * not count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "monotonic.h"

enum { CLIENTS = 10000, SERVER_FDS = CLIENTS + 200, JOIN_SECONDS = 10 };

/* Returns the seconds that all cores together were busy, or taken by other machines. */
static double busy_s(void)
{
    double user = 0, nice = 0, system = 0, idle, wait, irq = 0, soft_irq = 0, steal = 0;
    FILE *file = fopen("/proc/stat", "re");
    if (file == NULL) return 0;
    if (fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &wait, &irq, &soft_irq,
               &steal) != 8)
        user = nice = system = irq = soft_irq = steal = 0;
    fclose(file);
    return (user + nice + system + irq + soft_irq + steal) / (double)sysconf(_SC_CLK_TCK);
}

/* Returns the processor time of the children that have ended. */
static double children_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void test_ten_thousand_clients(void **state)
{
    (void)state;
    struct rlimit limit;
    char line[256], command[512];
    double join = -1, begun = monotonic_s(), busy = busy_s();
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
    double all = (monotonic_s() - begun) * (double)sysconf(_SC_NPROCESSORS_ONLN);
    double others = (busy_s() - busy - children_s()) / all;
    printf("others had %.0f %% of the processor time\n", 100 * others);
    if (others > 0 && others < 1) join *= 1 - others;
    if (join < 0 || join > JOIN_SECONDS) fail_msg("%d clients join within %.1f s", CLIENTS, join);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ten_thousand_clients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
