/* Training goes on while its ranks are killed.  In the first test this program is the launcher: it hosts the store,
 * starts a replacement for each rank that dies, and writes to the list of members.  In the second one tutti-run starts
 * all ranks again.
 *
 *     test_elastic [KILLS [SEED]]    how many ranks die, at which moments (tests/soak/elastic.sh) */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

#include "monotonic.h"
#include "tools/launch.h"
#include "train/scratch_folder.h"

/* STEPS_AFTER: this process may have to wait for a core while the ranks train. */
enum { RANKS = 3, STEPS_A_KILL = 40, STEPS_AFTER = 300, MEMBERS_MOST = 4096, HANG_S = 120 };

extern char **environ;
static int kills = 6;
static uint64_t random_state = 1;

struct job {
    tutti_store *store;
    int from; /* read end of the ranks' stdout */
    int to;
    pid_t pid[MEMBERS_MOST]; /* by member; 0: it has ended */
    int members, running, steps;
    int killed, step;                      /* so far */
    int next_step;                         /* step at which the next rank dies */
    int64_t killed_ns, slowest_ns, sum_ns; /* from a kill until the ranks go on */
    int resumed;                           /* how often that was measured */
    int64_t deadline_ns;
    bool failed;
    double loss;
};

static int below(int n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)n);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Starts a member: one of the first ranks, or a newcomer. */
static void start_member(struct job *job, int rank)
{
    char steps[16], program[] = TUTTI_EXAMPLES_DIR "/train_elastic";
    int member = job->members++;
    posix_spawn_file_actions_t actions;
    snprintf(steps, sizeof steps, "%d", job->steps);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("TUTTI_MEMBER", member);
    if (member >= RANKS) setenv("TUTTI_NEWCOMER", "1", 1);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, job->to, STDOUT_FILENO);
    char *arguments[] = {program, steps, NULL};
    if (posix_spawn(&job->pid[member], program, &actions, NULL, arguments, environ) != 0) job->failed = true;
    posix_spawn_file_actions_destroy(&actions);
    unsetenv("TUTTI_NEWCOMER");
    job->running++;
}

/* Kills a rank at random: another process than a zombie. */
static void kill_one(struct job *job)
{
    int victim = below(job->members);
    while (job->pid[victim] == 0) victim = (victim + 1) % job->members;
    job->killed_ns = monotonic_ns();
    job->killed++;
    job->next_step += STEPS_A_KILL / 2 + below(STEPS_A_KILL / 2);
    kill(job->pid[victim], SIGKILL);
}

static void read_line(struct job *job, const char *line)
{
    int64_t took = monotonic_ns() - job->killed_ns;
    sscanf(line, "step %d", &job->step);
    sscanf(line, "after %*d steps: loss %lf", &job->loss);
    if (strncmp(line, "regrouped", 9) == 0 && job->killed_ns > 0) {
        job->killed_ns = 0;
        job->resumed++;
        job->sum_ns += took;
        if (took > job->slowest_ns) job->slowest_ns = took;
    }
    if (job->killed < kills && job->steps > 0 && job->killed_ns == 0 && job->step >= job->next_step) kill_one(job);
}

/* Reads what the ranks have printed, line by line. */
static void read_output(struct job *job)
{
    static char text[8192];
    static size_t used;
    struct pollfd output = {job->from, POLLIN, 0};
    if (poll(&output, 1, 1) <= 0) return;
    ssize_t n = read(job->from, text + used, sizeof text - 1 - used);
    if (n <= 0) return;
    used += (size_t)n;
    text[used] = '\0';
    char *line = text, *end;
    for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        read_line(job, line);
    }
    used -= (size_t)(line - text);
    memmove(text, line, used);
}

/* Reaps a member that has ended.  One that was killed is replaced at once. */
static void reap(struct job *job)
{
    int status = 0;
    char line[64];
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    for (int i = 0; i < job->members; i++) {
        if (job->pid[i] != pid) continue;
        job->pid[i] = 0;
        job->running--;
        bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (killed)
            snprintf(line, sizeof line, "end %d\nstart %d\n", i, job->members);
        else
            snprintf(line, sizeof line, "end %d\n", i);
        if (tutti_store_append(job->store, "members/log", line, strlen(line)) != TUTTI_OK) job->failed = true;
        if (killed) start_member(job, 0);
        if (!killed && status != 0) {
            fprintf(stderr, "member %d: status %d\n", i, status);
            job->failed = true;
        }
        return;
    }
}

static void end_job(struct job *job)
{
    for (int i = 0; i < job->members; i++)
        if (job->pid[i] != 0) kill(job->pid[i], SIGKILL);
    while (waitpid(-1, NULL, 0) > 0) continue;
    read_output(job);
    tutti_store_free(job->store);
    close(job->from);
    close(job->to);
}

static struct job run_job(int steps)
{
    static struct job job;
    int ends[2];
    job = (struct job){.steps = steps, .next_step = 20 + below(20), .loss = -1};
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    job.from = ends[0];
    job.to = ends[1];
    assert_int_equal(tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true}, &job.store), TUTTI_OK);
    set_number("MASTER_PORT", tutti_store_port(job.store));
    job.deadline_ns = monotonic_ns() + (int64_t)(HANG_S + 2 * kills) * 1000000000;
    for (int i = 0; i < RANKS; i++) start_member(&job, i);
    while (job.running > 0 && !job.failed) {
        reap(&job);
        read_output(&job);
        if (monotonic_ns() < job.deadline_ns) continue;
        fprintf(stderr, "the job hangs at step %d, after %d kills\n", job.step, job.killed);
        job.failed = true;
    }
    end_job(&job);
    return job;
}

static void test_kills(void **state)
{
    (void)state;
    int wanted = kills;
    struct job disturbed = run_job(STEPS_AFTER + wanted * STEPS_A_KILL);
    assert_false(disturbed.failed);
    assert_int_equal(disturbed.killed, wanted);
    kills = 0;
    struct job undisturbed = run_job(disturbed.steps);
    kills = wanted;
    assert_false(undisturbed.failed);
    print_message("%d kills, regrouped %d times, from a kill until then: mean %.3f s, longest %.3f s\n",
                  disturbed.killed, disturbed.resumed,
                  disturbed.resumed > 0 ? (double)disturbed.sum_ns / 1e9 / disturbed.resumed : 0,
                  (double)disturbed.slowest_ns / 1e9);
    print_message("loss %.6f, undisturbed %.6f\n", disturbed.loss, undisturbed.loss);
    assert_true(undisturbed.loss > 0);
    double difference = disturbed.loss - undisturbed.loss;
    assert_true(difference < 1e-4 && difference > -1e-4);
}

/* ---- checkpoints ---------------------------------------------------------------------------------------------------
 */

#define RESTARTED_STEPS "1000"

static double loss_of(const struct launch *launch)
{
    double loss = -1;
    const char *end = strstr(launch->out.data, "after " RESTARTED_STEPS " steps: ");
    if (end == NULL || sscanf(end, "after %*d steps: loss %lf", &loss) != 1) fail_msg("no loss: %s", launch->err.data);
    return loss;
}

static void kill_a_rank(const struct launch *launch)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launch->pid, (int)launch->pid);
    FILE *children = fopen(path, "r");
    assert_non_null(children);
    assert_int_equal(fscanf(children, "%d", &pid), 1);
    fclose(children);
    assert_int_equal(kill(pid, SIGKILL), 0);
}

/* A rank is killed after the first checkpoint.  The ranks start again and continue from the latest one. */
static void test_restart(void **state)
{
    (void)state;
    const char *train = TUTTI_EXAMPLES_DIR "/train_elastic";
    setenv("TUTTI_LOG", "warn,train:info", 1);
    struct launch undisturbed = RUN("-n", "2", "--no-prefix", train, RESTARTED_STEPS);
    assert_int_equal(undisturbed.status, 0);
    struct launch launch = launch_start(ARGS("-n", "2", "--no-prefix", "--on-failure=restart", "--backoff", "0", train,
                                             RESTARTED_STEPS, "--checkpoint", folder));
    launch_expect(&launch, "step 140\n", 1);
    kill_a_rank(&launch);
    launch_finish(&launch);
    assert_int_equal(launch.status, 0);
    assert_has(&launch.err, "restart 1 of 3");
    assert_has(&launch.out, "continues after step ");
    assert_has(&launch.err, " info train: checkpoint 1 of ");
    assert_has(&launch.err, " is loaded");
    assert_has(&launch.err, " info train: a reducer has 2 parameters in ");
    assert_true(loss_of(&launch) == loss_of(&undisturbed)); /* to the digits that are printed */
    launch_free(&launch);
    launch_free(&undisturbed);
    launch_nothing_left();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kills),
        CASE(test_restart),
    };
    if (argc > 1) kills = atoi(argv[1]);
    if (argc > 2) random_state = (uint64_t)atoll(argv[2]);
    if (kills + RANKS >= MEMBERS_MOST) return 2;
    setenv("TUTTI_TOKEN", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0", 1);
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("TUTTI_STORE_HOSTED", "1", 1);
    set_number("WORLD_SIZE", RANKS);
    set_number("LOCAL_WORLD_SIZE", RANKS);
    if (argc > 1) cmocka_set_test_filter("test_kills");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
