/* Checkpoints of jobs that are killed, and on disks that are full: the last complete one stays, and all ranks get the
 * same error.  Processes that are killed are forked first, before the test has threads. */
#include "ranks.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/checkpoint_model.h"
#include "train/file_faults.h"
#include "train/scratch_folder.h"

static int found;

static int count_partial(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    (void)at;
    found += type == FTW_D && strstr(path, ".partial") != NULL;
    return 0;
}

static int unfinished(void)
{
    found = 0;
    return nftw(folder, count_partial, 8, FTW_PHYS) == 0 ? found : -1;
}

/* ---- a process that is killed ------------------------------------------------------------------------------ */

enum { LARGE = 3000 };

/* Makes a group of this process alone, and a model in it. */
static int start(tutti_group **group, struct checkpoint_model *model)
{
    tutti_store *store;
    int status = tutti_store_memory(NULL, &store);
    if (status == TUTTI_OK) status = tutti_create_group("loop", store, 0, 1, NULL, group);
    if (status == TUTTI_OK) status = checkpoint_model_make(model, *group, LARGE, 0);
    return status;
}

/* Runs fn in a child, which _exits with its result.  Returns its process id. */
static pid_t fork_child(int (*fn)(int argument), int argument)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(fn(argument));
    return pid;
}

/* Returns a child's exit status, or -1 after SIGKILL. */
static int reap(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return -1;
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Saves generation 1, then 2 with a crash at the nth call.  Returns 0 if it was not reached. */
static int save_and_crash(int nth)
{
    tutti_group *group;
    struct checkpoint_model model;
    if (start(&group, &model) != TUTTI_OK) return 3;
    if (nth == 1) {
        checkpoint_model_set(&model, 1);
        if (checkpoint_model_save(&model, folder) != TUTTI_OK) return 4;
    }
    checkpoint_model_set(&model, 2);
    file_faults_arm(folder, FILE_FAULT_CRASH, nth);
    if (checkpoint_model_save(&model, folder) != TUTTI_OK) return 5;
    return file_faults_renamed_too_early() || file_faults_unsynced() ? 6 : 0;
}

/* Returns the generation that the folder has, or 0 with a message. */
static int load_generation(int unused)
{
    tutti_group *group;
    struct checkpoint_model model;
    (void)unused;
    if (start(&group, &model) == TUTTI_OK && checkpoint_model_load(&model, folder) == TUTTI_OK &&
        checkpoint_model_is(&model, (int)model.step, true))
        return (int)model.step;
    fprintf(stderr, "load: %s\n", tutti_last_error());
    return 0;
}

/* Ends the process at every system call of a save in turn. */
static void test_every_crash(void **state)
{
    int nth = 1, result, old = 0;
    (void)state;
    do {
        result = reap(fork_child(save_and_crash, nth));
        if (result > 0) fail_msg("crash at call %d: %d", nth, result);
        int generation = reap(fork_child(load_generation, 0));
        if (generation != 1 && generation != 2) fail_msg("crash at call %d: generation %d", nth, generation);
        if (old == 2) assert_int_equal(generation, 2);
        old = generation;
        nth++;
    } while (result != 0);
    print_message("%d calls\n", nth - 1);
    assert_true(nth > 15);
    assert_int_equal(old, 2);
    assert_int_equal(unfinished(), 0); /* the last save has removed what the others left */
}

static atomic_int *generation_saved; /* shared with the child */

static int save_forever(int first)
{
    tutti_group *group;
    struct checkpoint_model model;
    if (start(&group, &model) != TUTTI_OK) return 3;
    for (int i = first; i < first + 100; i++) {
        checkpoint_model_set(&model, i);
        if (checkpoint_model_save(&model, folder) != TUTTI_OK) return 4;
        *generation_saved = i;
    }
    return 0;
}

/* Kills a process that saves all the time, at random moments. */
static void test_random_kills(void **state)
{
    unsigned seed = (unsigned)getpid();
    int least = 0;
    (void)state;
    generation_saved = mmap(NULL, sizeof *generation_saved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(generation_saved != MAP_FAILED);
    for (int round = 0; round < 12; round++) {
        pid_t pid = fork_child(save_forever, least + 1);
        for (int wait = 0; wait < 60000 && *generation_saved <= least; wait++) usleep(1000);
        usleep((useconds_t)(rand_r(&seed) % 3000));
        kill(pid, SIGKILL);
        reap(pid);
        int saved = *generation_saved, generation = reap(fork_child(load_generation, 0));
        if (saved <= least || generation < saved || generation > saved + 1)
            fail_msg("round %d (seed %d): %d was saved after %d, %d was loaded", round, (int)getpid(), saved, least,
                     generation);
        least = generation;
        if (least > 120) break; /* exit statuses have 8 bits */
    }
    munmap(generation_saved, sizeof *generation_saved);
}

/* ---- disks that are full ----------------------------------------------------------------------------------- */

struct fault {
    enum file_fault fault;
    const char *text;
};

static int fail_everywhere(tutti_group *group, int rank, int size, void *argument)
{
    const struct fault *fault = argument;
    struct checkpoint_model model;
    int status, nth = 0, failures = 0;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, LARGE, 0) == TUTTI_OK);
    checkpoint_model_set(&model, 1);
    EXPECT(checkpoint_model_save(&model, folder) == TUTTI_OK);
    do {
        nth++;
        checkpoint_model_set(&model, 2);
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        if (rank == 0) file_faults_arm(folder, fault->fault, nth);
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        status = checkpoint_model_save(&model, folder);
        int64_t sum = status;
        EXPECT(tutti_all_reduce(tutti_view(&sum, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
        EXPECT(sum == (int64_t)size * status); /* the same on all ranks */
        if (rank == 0) file_faults_arm(NULL, FILE_FAULT_NONE, 0);
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        if (status == TUTTI_OK) break;
        failures++;
        EXPECT(status == TUTTI_ERR_SYSTEM && strstr(tutti_last_error(), fault->text) != NULL);
        EXPECT(strstr(tutti_last_error(), folder) != NULL);
        if (rank == 0) EXPECT(unfinished() == 0);
        EXPECT(checkpoint_model_load(&model, folder) == TUTTI_OK && checkpoint_model_is(&model, 1, true));
    } while (nth < 200);
    EXPECT(failures > 15); /* the last calls remove an old checkpoint, and may fail */
    EXPECT(checkpoint_model_load(&model, folder) == TUTTI_OK && checkpoint_model_is(&model, 2, true));
    checkpoint_model_free(&model);
    return 0;
}

static void test_disk_full(void **state)
{
    struct fault fault = {FILE_FAULT_ENOSPC, "No space left on device"};
    (void)state;
    ranks_run(2, fail_everywhere, &fault);
}

static void test_disk_fails(void **state)
{
    struct fault fault = {FILE_FAULT_EIO, "Input/output error"};
    (void)state;
    ranks_run(2, fail_everywhere, &fault);
}

/* The process's own limit: an error, not SIGXFSZ. */
static int exceed_limit(tutti_group *group, int rank, int size, void *argument)
{
    struct checkpoint_model model;
    (void)argument;
    (void)size;
    EXPECT(checkpoint_model_make(&model, group, LARGE, 0) == TUTTI_OK);
    EXPECT(checkpoint_model_save(&model, folder) == TUTTI_ERR_SYSTEM);
    EXPECT(strstr(tutti_last_error(), "rank-0000") != NULL && strstr(tutti_last_error(), "File too large") != NULL);
    if (rank == 0) EXPECT(unfinished() == 0);
    EXPECT(checkpoint_model_load(&model, folder) == TUTTI_ERR_NOT_FOUND);
    checkpoint_model_free(&model);
    return 0;
}

static void test_file_limit(void **state)
{
    struct rlimit limit, small;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 5000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ranks_run(2, exceed_limit, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

int main(void)
{
    ranks_setup();
    const struct CMUnitTest tests[] = {CASE(test_every_crash), CASE(test_random_kills), CASE(test_disk_full),
                                       CASE(test_disk_fails), CASE(test_file_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
