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

enum { SKIPPED = 77, LIMIT_S = 300, BESIDE = 3 };

/* The cases mostly wait, so some run beside each other.  Their output appears in order. */
static struct script {
    const char *file, *name;
    FILE *output;
    pid_t pid; /* 0: not started, or ended with `status` */
    int status;
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

static int n_started, n_running;

static void start(struct script *script)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/hosts/%s", TUTTI_SOURCE_DIR, script->file);
    script->output = tmpfile();
    fflush(NULL);
    pid_t pid = script->output == NULL ? -1 : fork();
    script->status = -1;
    if (pid > 0) script->pid = pid, n_running++;
    if (pid != 0) return;
    dup2(fileno(script->output), STDOUT_FILENO);
    dup2(fileno(script->output), STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setenv("TUTTI_BUILD_DIR", TUTTI_BUILD_DIR, 1);
    alarm(LIMIT_S); /* ends bash itself; the next run removes the remains */
    execlp("bash", "bash", path, script->name, (char *)NULL);
    _exit(127);
}

/* Waits until any of the running scripts ends. */
static void await_one(void)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    for (int i = 0; i < n_started; i++) {
        if (scripts[i].pid != pid) continue;
        scripts[i].pid = 0;
        scripts[i].status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        n_running--;
    }
}

static void show_output(struct script *script)
{
    char line[4096];
    if (script->output == NULL) return;
    rewind(script->output);
    while (fgets(line, sizeof line, script->output) != NULL) fputs(line, stdout);
    fclose(script->output);
}

/* Runs further scripts until this one has ended. */
static void run(void **state)
{
    struct script *script = *state;
    while (script >= scripts + n_started || script->pid > 0) {
        if (n_running < BESIDE && n_started < SCRIPTS)
            start(&scripts[n_started++]);
        else
            await_one();
    }
    show_output(script);
    if (script->status == SKIPPED) skip();
    assert_int_equal(script->status, 0);
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
