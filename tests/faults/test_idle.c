/* Waiting is cheap: an idle group takes no CPU time, and a wait for a late rank next to none.  More ranks than cores do
 * not run at the pace of the scheduler's time slices. */
#include "procs.h"

#include <dirent.h>
#include <sys/resource.h>

static double cpu_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static int report_cpu(const char *what, double begin, int ms, double most)
{
    double share = (cpu_seconds() - begin) / (ms / 1000.0);
    if (share <= most) return 0;
    fprintf(stderr, "rank %d: %s takes %.2f %% of a core, not at most %.2f %%\n", proc_rank, what, share * 100,
            most * 100);
    return 1;
}

static int sum_once(int rank, int size)
{
    int64_t x = rank;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == size * (size - 1) / 2);
    return 0;
}

static int rank_of_idleness(int rank, int size, void *argument)
{
    enum { IDLE_MS = 3000 };
    (void)argument;
    EXPECT(proc_init(60000) == TUTTI_OK);
    EXPECT(sum_once(rank, size) == 0);
    proc_barrier(size, 1);
    procs_sleep_ms(300); /* until the progress thread sleeps */
    double begin = cpu_seconds();
    procs_sleep_ms(IDLE_MS);
    EXPECT(report_cpu("an idle group", begin, IDLE_MS, 0.01) == 0);
    proc_barrier(size, 2); /* otherwise the others' work would be counted here */

    int64_t x = rank;
    tutti_work *work = NULL;
    if (rank != 0) {
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.async_op = &work)) == TUTTI_OK);
        procs_sleep_ms(300);
        begin = cpu_seconds();
        procs_sleep_ms(IDLE_MS);
        EXPECT(report_cpu("an operation that waits for a late rank", begin, IDLE_MS, 0.05) == 0);
        proc_set_step(3);
    } else {
        for (int i = 1; i < size; i++) proc_wait_for_step(i, 3);
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.async_op = &work)) == TUTTI_OK);
    }
    EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && x == size * (size - 1) / 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_idle_ranks_take_no_time(void **state)
{
    (void)state;
    procs_run_ranks(4, rank_of_idleness, NULL);
}

/* The number of questions to peers does not grow with the number of operations that wait for a late rank. */
static int rank_of_many_waits(int rank, int size, void *argument)
{
    enum { OPS = 2000, WAIT_MS = 2000 };
    const double most = 0.10; /* where each asks, a rank takes 40 % over the network; else up to 4, on a busy machine */
    static int64_t x[OPS];
    static tutti_work *works[OPS];
    (void)argument;
    EXPECT(proc_init(60000) == TUTTI_OK);
    for (int i = 1; rank == 0 && i < size; i++) proc_wait_for_step(i, 1);
    for (int i = 0; i < OPS; i++) {
        x[i] = rank;
        EXPECT(tutti_all_reduce(tutti_view(&x[i], 1), TUTTI_SUM, tutti_with(.async_op = &works[i])) == TUTTI_OK);
    }
    if (rank != 0) {
        procs_sleep_ms(300);
        double begin = cpu_seconds();
        procs_sleep_ms(WAIT_MS);
        EXPECT(report_cpu("thousands of operations that wait for a late rank", begin, WAIT_MS, most) == 0);
        proc_set_step(1);
    }
    for (int i = 0; i < OPS; i++) {
        EXPECT(tutti_wait(&works[i], TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
        EXPECT(x[i] == size * (size - 1) / 2);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_thousands_wait(void **state)
{
    (void)state;
    procs_run_ranks(4, rank_of_many_waits, NULL);
    setenv("TUTTI_SHM", "0", 1); /* within a host, few of the operations reach a backend */
    procs_run_ranks(4, rank_of_many_waits, NULL);
    unsetenv("TUTTI_SHM");
}

/* Polls in a loop and does nothing else. */
static int sum_asking(tutti_tensor x)
{
    tutti_work *work = NULL;
    int status = tutti_all_reduce(x, TUTTI_SUM, tutti_with(.async_op = &work));
    while (status == TUTTI_OK && !tutti_work_is_completed(work)) continue;
    return status == TUTTI_OK ? tutti_wait(&work, 0) : status;
}

static int rank_of_many(int rank, int size, void *argument)
{
    enum { ROUNDS = 5, TIMES = 100 };
    const bool *asks = argument;
    const double most_ms = 1;
    double best = 1e9;
    EXPECT(proc_init(60000) == TUTTI_OK);
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT(tutti_barrier(NULL) == TUTTI_OK);
        double begin = cpu_seconds();
        for (int i = 0; i < TIMES; i++) {
            float x = 1;
            tutti_tensor view = tutti_view(&x, 1);
            EXPECT((*asks ? sum_asking(view) : tutti_all_reduce(view, TUTTI_SUM, NULL)) == TUTTI_OK);
            EXPECT(x == (float)size);
        }
        double mean = (cpu_seconds() - begin) * 1e3 / TIMES;
        if (mean < best) best = mean;
    }
    if (rank == 0)
        fprintf(stderr, "%d ranks, 4 B: %.3f ms of CPU a rank in the best of %d rounds\n", size, best, ROUNDS);
    EXPECT(best < most_ms);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* Guards against ranks that keep a core for their time slice, of 4 ms, while others wait for it.  Counts the CPU time,
 * because other programs take time as well. */
static void test_more_ranks_than_cores(void **state)
{
    (void)state;
    procs_run_ranks(8, rank_of_many, &(bool){false});
    procs_run_ranks(8, rank_of_many, &(bool){true});
}

/* Counts how often the process's other threads have gone to sleep.  Returns -1 if there are none. */
static long sleeps_of_others(void)
{
    char path[64], line[128];
    long sum = 0, one, found = 0;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        if (atoi(entry->d_name) <= 0 || atoi(entry->d_name) == getpid()) continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/status", atoi(entry->d_name));
        FILE *status = fopen(path, "re");
        while (status != NULL && fgets(line, sizeof line, status) != NULL)
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &one) == 1) sum += one, found++;
        if (status != NULL) fclose(status);
    }
    if (tasks != NULL) closedir(tasks);
    return found > 0 ? sum : -1;
}

/* A group over the network looks for silent hosts only until its data are acknowledged.  Then nothing wakes it. */
static int rank_of_network_idleness(int rank, int size, void *argument)
{
    enum { REST_MS = 1200, IDLE_MS = 1600, MOST = 1 };
    (void)argument;
    EXPECT(proc_init(60000) == TUTTI_OK);
    EXPECT(sum_once(rank, size) == 0);
    procs_sleep_ms(REST_MS);
    long before = sleeps_of_others();
    procs_sleep_ms(IDLE_MS);
    long sleeps = sleeps_of_others() - before;
    if (sleeps > MOST) fprintf(stderr, "rank %d of an idle group: threads slept %ld times\n", rank, sleeps);
    proc_barrier(size, 1);                 /* otherwise a peer's goodbye would be counted */
    EXPECT(before >= 0 && sleeps <= MOST); /* 0: they have not slept yet */
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_nothing_wakes_an_idle_group_over_the_network(void **state)
{
    (void)state;
    setenv("TUTTI_SHM", "0", 1);
    procs_run_ranks(2, rank_of_network_idleness, NULL);
    unsetenv("TUTTI_SHM");
}

/* The progress thread must not sleep for the lock while callers use it, nor look for asynchronous work often for long.
 */
static int rank_of_calls(int rank, int size, void *argument)
{
    enum { MS = 1000, MOST = 100 };
    float x = 1, sum = 0;
    tutti_work *work = NULL;
    (void)argument;
    EXPECT(proc_init(60000) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.async_op = &work)) ==
           TUTTI_OK); /* needs the progress thread */
    EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    long before = sleeps_of_others();
    int64_t begin = monotonic_ns();
    for (bool on = true; on;) {
        float go = rank == 0 && procs_seconds(begin) * 1e3 < MS;
        EXPECT(tutti_all_reduce_into(tutti_view(&sum, 1), tutti_view(&go, 1), TUTTI_SUM, NULL) == TUTTI_OK);
        on = sum > 0;
    }
    long sleeps = sleeps_of_others() - before;
    if (sleeps > MOST) fprintf(stderr, "rank %d of %d: other threads slept %ld times\n", rank, size, sleeps);
    EXPECT(before >= 0 && sleeps <= MOST); /* 0: they have not slept yet */
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_the_thread_keeps_out_of_the_way(void **state)
{
    (void)state;
    procs_run_ranks(4, rank_of_calls, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_ranks_take_no_time),
        cmocka_unit_test(test_thousands_wait),
        cmocka_unit_test(test_more_ranks_than_cores),
        cmocka_unit_test(test_nothing_wakes_an_idle_group_over_the_network),
        cmocka_unit_test(test_the_thread_keeps_out_of_the_way),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
