/* Several hosts: each case is a function of a script, which makes hosts of network namespaces.  All cases are skipped
 * where that is not permitted.
 *
 *     test_hosts                   the tests
 *     test_hosts loop ARGUMENT..   a rank of theirs
 *     test_hosts leave ARGUMENT..  another one
 *     test_hosts regroup ARGUMENT..
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "hosts/leave.h"
#include "hosts/loop.h"
#include "hosts/regroup.h"

enum { SKIPPED = 77, LIMIT_S = 300, AHEAD = 2 };

/* The cases mostly wait, so some are started ahead of their turn.  Their output appears in order. */
static struct script {
    const char *file, *name;
    FILE *output;
    pid_t pid;
} scripts[] = {
    {.file = "cases.sh", .name = "two_and_two_v4"},
    {.file = "cases.sh", .name = "store_late"},
    {.file = "cases.sh", .name = "three_and_one_v6"},
    {.file = "faults.sh", .name = "vanished"},
    {.file = "faults.sh", .name = "vanished_without_proc"},
    {.file = "cases.sh", .name = "every_operation"},
    {.file = "faults.sh", .name = "link_returns"},
    {.file = "cases.sh", .name = "one_address"},
    {.file = "elastic.sh", .name = "regroup_hosts"},
    {.file = "faults.sh", .name = "partition_to_host"},
    {.file = "elastic.sh", .name = "cut_with_message"},
    {.file = "cases.sh", .name = "iface"},
    {.file = "faults.sh", .name = "partition_from_host"},
    {.file = "cases.sh", .name = "another_token"},
    {.file = "cases.sh", .name = "by_name"},
    {.file = "faults.sh", .name = "partition_from_one"},
    {.file = "cases.sh", .name = "own_name_is_loopback"},
    {.file = "cases.sh", .name = "refusals"},
    {.file = "cases.sh", .name = "hierarchy_two_and_two"},
    {.file = "cases.sh", .name = "hierarchy_three_and_one"},
    {.file = "cases.sh", .name = "hierarchy_bytes"},
    {.file = "cases.sh", .name = "tuning"},
    {.file = "cases.sh", .name = "links"},
    {.file = "cases.sh", .name = "traced"},
    {.file = "faults.sh", .name = "killed_measuring"},
    {.file = "faults.sh", .name = "rail_lost"},
    {.file = "rails.sh", .name = "rails_sizes"},
    {.file = "rails.sh", .name = "rails_v6"},
    {.file = "faults.sh", .name = "rail_returns"},
    {.file = "rails.sh", .name = "rails_excluded"},
    {.file = "rails.sh", .name = "rails_uneven"},
    {.file = "rails.sh", .name = "rails_unreachable"},
    {.file = "rails.sh", .name = "rails_cancelled"},
    {.file = "rails.sh", .name = "rails_leave"},
    {.file = "rails.sh", .name = "rails_apart"},
    {.file = "faults.sh", .name = "rail_rank_killed"},
    {.file = "rails.sh", .name = "rails_datagrams"},
    {.file = "rails.sh", .name = "rails_refused"},
    {.file = "faults.sh", .name = "destroyed"},
    {.file = "elastic.sh", .name = "elastic_host_lost"},
    {.file = "elastic.sh", .name = "train_hosts"},
    {.file = "launchers.sh", .name = "mpirun_two_hosts"},
    {.file = "launchers.sh", .name = "mpiexec_two_hosts"},
    {.file = "launchers.sh", .name = "ssh_two_hosts"},
    {.file = "cases.sh", .name = "suite_two_and_two_v4"},
    {.file = "cases.sh", .name = "suite_three_and_one_v6"},
    {.file = "cases.sh", .name = "thirty_two_hosts"},
};

enum { SCRIPTS = sizeof scripts / sizeof *scripts };

static void start(struct script *script)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/hosts/%s", TUTTI_SOURCE_DIR, script->file);
    script->output = tmpfile();
    fflush(NULL);
    script->pid = script->output == NULL ? -1 : fork();
    if (script->pid != 0) return;
    dup2(fileno(script->output), STDOUT_FILENO);
    dup2(fileno(script->output), STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setenv("TUTTI_BUILD_DIR", TUTTI_BUILD_DIR, 1);
    alarm(LIMIT_S); /* ends bash itself; the next run removes the remains */
    execlp("bash", "bash", path, script->name, (char *)NULL);
    _exit(127);
}

static int finish(struct script *script)
{
    char line[4096];
    int status = -1;
    if (script->pid < 0 || waitpid(script->pid, &status, 0) != script->pid) return -1;
    rewind(script->output);
    while (fgets(line, sizeof line, script->output) != NULL) fputs(line, stdout);
    fclose(script->output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void run(void **state)
{
    struct script *script = *state;
    for (int i = 0; i <= AHEAD && script + i < scripts + SCRIPTS; i++)
        if (script[i].pid == 0) start(script + i);
    int status = finish(script);
    if (status == SKIPPED) skip();
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[SCRIPTS];
    if (argc >= 5 && strcmp(argv[1], "loop") == 0) return loop_main(argv + 2);
    if (argc >= 3 && strcmp(argv[1], "leave") == 0) return leave_main(argv + 2);
    if (argc >= 3 && strcmp(argv[1], "regroup") == 0) return regroup_main(argv + 2);
    for (int i = 0; i < SCRIPTS; i++)
        tests[i] = (struct CMUnitTest){.name = scripts[i].name, .test_func = run, .initial_state = &scripts[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
