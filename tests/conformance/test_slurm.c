/* srun starts ranks without any variable set by hand, on a Slurm that the test starts: through PMIx, through PMI-2's
 * older half, and with an error if there is neither.  Skipped without Slurm and without root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char said[65536];

static int times(const char *what)
{
    int n = 0;
    for (const char *at = said; (at = strstr(at, what)) != NULL; at++) n++;
    return n;
}

static void run(const char *const *commands, int n)
{
    char folder[] = "/tmp/tutti-slurm-XXXXXX", command[16384];
    assert_non_null(mkdtemp(folder));
    size_t used =
        (size_t)snprintf(command, sizeof command, "%s/tests/conformance/slurm.sh %s", TUTTI_SOURCE_DIR, folder);
    for (int i = 0; i < n; i++) used += (size_t)snprintf(command + used, sizeof command - used, " '%s'", commands[i]);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t got = fread(said, 1, sizeof said - 1, pipe);
    said[got] = '\0';
    pclose(pipe);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    if (times("Slurm does not start here") > 0 && times("cgroup") > 0) { /* a container without cgroups */
        fprintf(stderr, "skipped: %s\n", said);
        skip();
    }
}

static void srun(void **state)
{
    (void)state;
    static const char *const commands[] = {"-n 3 --mpi=pmix " TUTTI_EXAMPLES_DIR "/all_reduce tcp",
                                           "-n 3 --mpi=pmi2 " TUTTI_EXAMPLES_DIR "/all_gather tcp",
                                           "-n 2 --mpi=none " TUTTI_EXAMPLES_DIR "/hello tcp",
                                           "-n 3 --mpi=pmix " TUTTI_BUILD_DIR "/tests/test_nodes rank tcp"};
    run(commands, 4);
    if (times("has the sum of the ranks [3]") != 3 || times("has [[0], [1], [2]]") != 3 || times("status 0") != 3 ||
        times("rank 2 of 3 is 2 of 3 on node 0") != 1 || times("or srun --mpi=pmix") != 2)
        fail_msg("%s", said);
}

static void srun_mpi(void **state)
{
    (void)state;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_mpi.so", F_OK) != 0 || system("command -v mpirun.openmpi >/dev/null") != 0)
        skip();
    static const char *const commands[] = {"-n 2 --mpi=pmix " TUTTI_EXAMPLES_DIR "/all_reduce mpi"};
    run(commands, 1);
    if (times("has the sum of the ranks [1]") != 2 || times("status 0") != 1) fail_msg("%s", said);
}

int main(void)
{
    if (geteuid() != 0 || system("command -v slurmctld && command -v slurmd && command -v srun") != 0) {
        fprintf(stderr, "skipped: Slurm is not installed (Debian: slurm-wlm), or this is not root\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(srun), cmocka_unit_test(srun_mpi)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
