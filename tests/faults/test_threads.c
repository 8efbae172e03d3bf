/* Threads of a rank that wait or call at the same time do not delay each other. */
#include "procs.h"

#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>

static void *receive_late(void *status)
{
    int32_t x = 0;
    *(int *)status = tutti_recv(tutti_view(&x, 1), 1, tutti_with(.tag = 1));
    return NULL;
}

static int answer(int asked_tag, int answer_tag, int after_ms)
{
    int32_t x = 0;
    EXPECT(tutti_recv(tutti_view(&x, 1), 0, tutti_with(.tag = asked_tag)) == TUTTI_OK);
    procs_sleep_ms(after_ms);
    EXPECT(tutti_send(tutti_view(&x, 1), 0, tutti_with(.tag = answer_tag)) == TUTTI_OK);
    return 0;
}

/* Two threads of a rank sleep at once.  The answer wakes the right one, whichever polled last. */
static int rank_of_two_waits(int rank, int size, void *argument)
{
    enum { ROUNDS = 3, TIMES = 10, ANSWER_MS = 5, MOST_MS = 60 };
    double best = 1e9;
    int32_t x = 0;
    int late = TUTTI_OK;
    pthread_t thread;
    (void)size, (void)argument;
    EXPECT(proc_init(60000) == TUTTI_OK);
    if (rank == 0) EXPECT(pthread_create(&thread, NULL, receive_late, &late) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin = monotonic_ns();
        for (int i = 0; i < TIMES; i++) {
            if (rank == 1) {
                EXPECT(answer(2, 3, ANSWER_MS) == 0);
                continue;
            }
            EXPECT(tutti_send(tutti_view(&x, 1), 1, tutti_with(.tag = 2)) == TUTTI_OK);
            EXPECT(tutti_recv(tutti_view(&x, 1), 1, tutti_with(.tag = 3)) == TUTTI_OK);
        }
        double mean = procs_seconds(begin) * 1e3 / TIMES;
        if (mean < best) best = mean;
    }
    if (rank == 0) {
        fprintf(stderr, "an answer after %d ms beside another wait: %.1f ms in the best of %d rounds\n", ANSWER_MS,
                best, ROUNDS);
        EXPECT(best < MOST_MS);
        EXPECT(tutti_send(tutti_view(&x, 1), 1, tutti_with(.tag = 2)) == TUTTI_OK);
        EXPECT(pthread_join(thread, NULL) == 0 && late == TUTTI_OK);
    } else {
        EXPECT(answer(2, 1, 0) == 0);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* Guards against answers that are noticed only when the sleeper next checks the clock, every 100 ms. */
static void test_two_threads_wait(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_two_waits, NULL);
}

struct calling {
    tutti_group *group;
    int times, failed;
};

static void *call(void *argument)
{
    struct calling *calling = argument;
    for (int i = 0; i < calling->times; i++) {
        float x = 1;
        int status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = calling->group));
        if (status != TUTTI_OK || x != 2) calling->failed++;
    }
    return NULL;
}

/* Counts how often threads of this process have gone to sleep. */
static long count_sleeps(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_nvcsw;
}

/* Two threads of each rank call, each on its own group. */
static int rank_of_two_callers(int rank, int size, void *argument)
{
    enum { ROUNDS = 5, TIMES = 1000, MOST = TIMES / 2 };
    const int both[] = {0, 1};
    struct calling calling[2] = {{NULL, TIMES, 0}, {NULL, TIMES, 0}};
    long best = LONG_MAX;
    (void)size, (void)argument;
    EXPECT(proc_init(60000) == TUTTI_OK);
    for (int i = 0; i < 2; i++) EXPECT(tutti_new_group(both, 2, NULL, &calling[i].group) == TUTTI_OK);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        EXPECT(tutti_barrier(NULL) == TUTTI_OK);
        long before = count_sleeps();
        EXPECT(pthread_create(&thread, NULL, call, &calling[1]) == 0);
        call(&calling[0]);
        EXPECT(pthread_join(thread, NULL) == 0);
        long sleeps = count_sleeps() - before;
        if (sleeps < best) best = sleeps;
    }
    if (rank == 0)
        fprintf(stderr, "%d calls by each of two threads: %ld sleeps in the best of %d rounds\n", TIMES, best, ROUNDS);
    EXPECT(calling[0].failed == 0 && calling[1].failed == 0);
#ifndef __SANITIZE_THREAD__ /* it slows the lock's holder so much that others sleep beside a busy program */
    EXPECT(best < MOST);
#endif
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* Guards against a lock that is handed over by wake-ups: an operation then costs 500 us, and a sleep of each thread. */
static void test_two_threads_call(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_two_callers, NULL);
}

/* Two threads exchange messages until traffic_ends is set. */
static atomic_int traffic_ends;

static void *exchange(void *argument)
{
    int rank = proc_rank, tag = *(int *)argument, failed = 0;
    for (int32_t x = 0; x >= 0 && failed == 0;) {
        if (rank == 0) {
            x = atomic_load(&traffic_ends) ? -1 : 0;
            failed += tutti_send(tutti_view(&x, 1), 1, tutti_with(.tag = tag)) != TUTTI_OK;
            if (x == 0) failed += tutti_recv(tutti_view(&x, 1), 1, tutti_with(.tag = tag)) != TUTTI_OK;
        } else {
            failed += tutti_recv(tutti_view(&x, 1), 0, tutti_with(.tag = tag)) != TUTTI_OK;
            if (x == 0) failed += tutti_send(tutti_view(&x, 1), 0, tutti_with(.tag = tag)) != TUTTI_OK;
        }
    }
    *(int *)argument = failed;
    return NULL;
}

/* A wait times out in time although other threads never let it sleep. */
static int rank_of_a_wait_in_traffic(int rank, int size, void *argument)
{
    pthread_t thread[2];
    int tag[2] = {1, 2};
    int32_t x = 0;
    tutti_work *work = NULL;
    (void)size, (void)argument;
    EXPECT(proc_init(60000) == TUTTI_OK);
    for (int i = 0; i < 2; i++) EXPECT(pthread_create(&thread[i], NULL, exchange, &tag[i]) == 0);
    if (rank == 0) {
        EXPECT(tutti_irecv(tutti_view(&x, 1), 1, tutti_with(.tag = 9), &work) == TUTTI_OK);
        int64_t begin = monotonic_ns();
        EXPECT(tutti_wait(&work, 0) == TUTTI_ERR_TIMEOUT);
        EXPECT(tutti_wait(&work, 300) == TUTTI_ERR_TIMEOUT && work != NULL);
        EXPECT_ERROR(tutti_recv(tutti_view(&x, 1), 1, tutti_with(.tag = 10, .timeout_ms = 300)), TUTTI_ERR_TIMEOUT,
                     "tag 10");
        EXPECT_WITHIN(begin, 0.5, 0.6 + PROCS_SOON_S);
        atomic_store(&traffic_ends, 1);
    }
    for (int i = 0; i < 2; i++) EXPECT(pthread_join(thread[i], NULL) == 0 && tag[i] == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    tutti_work_free(work);
    return 0;
}

static void test_a_wait_in_traffic(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_a_wait_in_traffic, NULL);
}

struct ending {
    tutti_group *group;
    atomic_bool begins; /* the next call of the main thread is coalesce_end */
};

/* True if the main thread of this process sleeps. */
static bool main_thread_sleeps(void)
{
    char text[256] = "", state = 0;
    FILE *file = fopen("/proc/self/stat", "re"); /* the state there is the main thread's */
    if (file == NULL) return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *end = strrchr(text, ')');
    return end != NULL && sscanf(end + 1, " %c", &state) == 1 && state == 'S';
}

/* Destroys the group while the main thread waits in coalesce_end for a peer that never calls. */
static void *destroy_while_it_waits(void *argument)
{
    enum { LOOKS = 5 }; /* in a row: the call sleeps for moments before it sleeps for long */
    struct ending *ending = argument;
    while (!atomic_load(&ending->begins)) procs_sleep_ms(1);
    for (int asleep = 0; asleep < LOOKS; procs_sleep_ms(1)) asleep = main_thread_sleeps() ? asleep + 1 : 0;
    tutti_destroy_process_group(ending->group);
    return NULL;
}

static int rank_of_a_destroyed_end(int rank, int size, void *argument)
{
    tutti_store *store = proc_store(), *part = NULL;
    tutti_group *group = NULL;
    struct ending ending = {0};
    pthread_t thread;
    float x[2];
    (void)argument;
    EXPECT(proc_group(store, "destroyed", size, 20000, &part, &group) == TUTTI_OK);
    if (rank == 0) {
        EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
        for (int i = 0; i < 2; i++)
            EXPECT(tutti_recv(tutti_view(&x[i], 1), 1, tutti_with(.group = group, .tag = i)) == TUTTI_OK);
        ending.group = group;
        EXPECT(pthread_create(&thread, NULL, destroy_while_it_waits, &ending) == 0);
        atomic_store(&ending.begins, true);
        EXPECT_ERROR(tutti_coalesce_end(group, NULL), TUTTI_ERR_ABORTED, "destroyed");
        EXPECT(pthread_join(thread, NULL) == 0);
    }
    proc_barrier(size, 1);
    if (rank == 1) EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    tutti_store_free(part);
    tutti_store_free(store);
    return 0;
}

static void test_destroyed_while_it_ends(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_a_destroyed_end, NULL);
}

/* Allocates memory that another thread has just freed, at the same address. */
static void *allocate_and_free(void *argument)
{
    enum { TIMES = 20000 };
    atomic_int *failed = argument;
    for (int i = 0; i < TIMES; i++) {
        void *memory = NULL;
        if (tutti_alloc(NULL, 100, &memory) != TUTTI_OK || tutti_free(NULL, memory) != TUTTI_OK) ++*failed;
    }
    return NULL;
}

static int rank_that_allocates(int rank, int size, void *argument)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    atomic_int failed = 0;
    (void)rank, (void)size, (void)argument;
    EXPECT(proc_init(60000) == TUTTI_OK);
    for (int i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, allocate_and_free, &failed) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    EXPECT(failed == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_memory_from_many_threads(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_that_allocates, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_threads_wait),         cmocka_unit_test(test_two_threads_call),
        cmocka_unit_test(test_a_wait_in_traffic),        cmocka_unit_test(test_destroyed_while_it_ends),
        cmocka_unit_test(test_memory_from_many_threads),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
