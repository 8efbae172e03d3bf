/* Faults and limits of the nccl backend.  Each case runs in processes of its own, because most leave the group
 * unusable, and prints what it measured.  Ranks are processes; in the cases of a fault rank 1 causes it. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/cases.h"
#include "monotonic.h"

enum { WITHIN_MS = 2000, LATE_MS = 6000 };

static double ms_since(double begin_s)
{
    return (monotonic_s() - begin_s) * 1e3;
}

/* Opens the group's communicator and connects it. */
static int connect_all(tutti_group *group, tutti_tensor x, cu_stream stream)
{
    EXPECT(tutti_all_reduce(x, TUTTI_MAX, &(tutti_opts){.group = group, .stream = stream}) == TUTTI_OK);
    wait_stream(stream);
    return 0;
}

/* Rank 1 does not call.  The kernel of rank 0 spins until the abort, which frees the program's stream. */
int case_late_in_stream(tutti_group *group, int rank, int size)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream}, brief = {.group = group, .stream = stream};
    tutti_tensor x = on_device(group, 1000, TUTTI_INT32);
    (void)size;
    brief.timeout_ms = WITHIN_MS;
    EXPECT(connect_all(group, x, opts.stream) == 0);
    double begin = monotonic_s();
    if (rank == 1) sleep_here(&(int){LATE_MS});
    if (rank == 0) {
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &brief) == TUTTI_OK);
        cu.stream_wait(stream);
        printf("the stream was free after %.0f ms, the timeout is %d ms\n", ms_since(begin), WITHIN_MS);
    }
    int status = tutti_all_reduce(x, TUTTI_SUM, &opts);
    printf("rank %d: the next call: %s: %s\n", rank, tutti_status_string(status), tutti_last_error());
    EXPECT(rank == 1 || status != TUTTI_OK); /* what rank 0 has sent may be there, which completes rank 1's call */
    return 0;
}

int case_late_async(tutti_group *group, int rank, int size)
{
    tutti_opts opts = {.group = group}, brief = {.group = group, .timeout_ms = WITHIN_MS};
    tutti_tensor x = on_device(group, 1000, TUTTI_INT32);
    tutti_work *work = NULL;
    (void)size;
    EXPECT(connect_all(group, x, opts.stream) == 0);
    double begin = monotonic_s();
    if (rank == 1) sleep_here(&(int){LATE_MS});
    brief.async_op = &work;
    int status = tutti_all_reduce(x, TUTTI_SUM, &brief);
    if (status == TUTTI_OK) status = tutti_wait(&work, 60000);
    printf("rank %d: %s after %.0f ms: %s\n", rank, tutti_status_string(status), ms_since(begin), tutti_last_error());
    EXPECT(rank == 1 || status == TUTTI_ERR_TIMEOUT);
    tutti_work_free(work);
    return 0;
}

/* Rank 1 is not there while one NCCL group of several communicators opens and connects. */
int case_late_coalesced(tutti_group *group, int rank, int size)
{
    tutti_opts opts = {.group = group, .timeout_ms = WITHIN_MS};
    tutti_tensor x = on_device(group, 1000, TUTTI_INT32), y = on_device(group, 1000, TUTTI_INT32);
    tutti_work *work = NULL;
    EXPECT(connect_all(group, x, NULL) == 0);
    double begin = monotonic_s();
    if (rank == 1) sleep_here(&(int){LATE_MS});
    EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
    int status = tutti_all_reduce(x, TUTTI_SUM, &opts);
    if (status == TUTTI_OK) status = tutti_send(x, size - 1 - rank, &opts);
    if (status == TUTTI_OK) status = tutti_recv(y, size - 1 - rank, &opts);
    int ended = tutti_coalesce_end(group, &work);
    if (status == TUTTI_OK) status = ended;
    if (status == TUTTI_OK) status = tutti_wait(&work, 60000);
    printf("rank %d: %s after %.0f ms: %s\n", rank, tutti_status_string(status), ms_since(begin), tutti_last_error());
    EXPECT(status != TUTTI_OK);
    tutti_work_free(work);
    return 0;
}

/* Rank 1 dies at some moment of its first coalesced messages, given in milliseconds by TUTTI_KILL_MS. */
static void *die_later(void *argument)
{
    sleep_here(argument);
    kill(getpid(), SIGKILL);
    return NULL;
}

int case_killed(tutti_group *group, int rank, int size)
{
    const char *text = getenv("TUTTI_KILL_MS");
    int ms = text != NULL ? atoi(text) : 100, status = TUTTI_OK, calls = 0;
    tutti_opts opts = {.group = group, .timeout_ms = 10000};
    tutti_tensor x = on_device(group, 1000, TUTTI_INT32), y = on_device(group, 1000, TUTTI_INT32);
    pthread_t thread;
    EXPECT(connect_all(group, x, opts.stream) == 0);
    if (rank == 1) EXPECT(pthread_create(&thread, NULL, die_later, &ms) == 0);
    double begin = monotonic_s();
    for (; status == TUTTI_OK && ms_since(begin) < 60000; calls++) {
        tutti_work *work = NULL;
        EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
        status = tutti_send(x, size - 1 - rank, &opts);
        if (status == TUTTI_OK) status = tutti_recv(y, size - 1 - rank, &opts);
        int ended = tutti_coalesce_end(group, &work);
        if (status == TUTTI_OK) status = ended;
        if (status == TUTTI_OK) status = tutti_wait(&work, 30000);
        tutti_work_free(work);
        if (status == TUTTI_OK) status = tutti_barrier(&opts);
    }
    printf("rank %d: %s after %.0f ms, %d calls: %s\n", rank, tutti_status_string(status), ms_since(begin), calls,
           tutti_last_error());
    EXPECT(status != TUTTI_OK);
    return 0;
}

/* ---- limits ------------------------------------------------------------------------------------------------ */

struct opener {
    struct gate gate;
    int after_ms;
};

static void *open_later(void *argument)
{
    struct opener *opener = argument;
    sleep_here(&opener->after_ms);
    __atomic_store_n(&opener->gate.open, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Enqueues until the driver's queue of a stream that stands still is full, and finds the call that waits. */
static int fill_stream(tutti_group *group, int64_t timeout_ms, int held_ms, bool *failed)
{
    enum { CALLS = 1500 };
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor x = on_device(group, 1000, TUTTI_FLOAT32), y = on_device(group, 1000, TUTTI_FLOAT32);
    struct opener opener = {.after_ms = held_ms};
    pthread_t thread;
    double longest = 0;
    int at = -1, status = TUTTI_OK, calls = 0;
    EXPECT(tutti_all_reduce_into(y, x, TUTTI_SUM, &opts) == TUTTI_OK);
    wait_stream(stream);
    opts.timeout_ms = timeout_ms;
    cu.call_host(stream, wait_at, &opener.gate);
    EXPECT(pthread_create(&thread, NULL, open_later, &opener) == 0);
    double begin = monotonic_s();
    for (; calls < CALLS && status == TUTTI_OK; calls++) {
        double call = monotonic_s();
        status = tutti_all_reduce_into(y, x, TUTTI_SUM, &opts);
        if (ms_since(call) <= longest) continue;
        longest = ms_since(call);
        at = calls;
    }
    printf(
        "%d calls in %.0f ms, the longest (number %d) took %.0f ms; the stream stood still for %d ms; then: %s%s%s\n",
        calls, ms_since(begin), at, longest, held_ms, tutti_status_string(status), status != TUTTI_OK ? ": " : "",
        status != TUTTI_OK ? tutti_last_error() : "");
    pthread_join(thread, NULL);
    cu.stream_wait(stream);
    *failed = status != TUTTI_OK;
    return 0;
}

int case_full_stream(tutti_group *group, int rank, int size)
{
    bool failed = false;
    (void)rank;
    (void)size;
    EXPECT(fill_stream(group, 60000, 4000, &failed) == 0);
    EXPECT(!failed);
    return 0;
}

int case_full_stream_late(tutti_group *group, int rank, int size)
{
    bool failed = false;
    (void)rank;
    (void)size;
    EXPECT(fill_stream(group, WITHIN_MS, LATE_MS, &failed) == 0);
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) != TUTTI_OK);
    printf("the group's next call: %s\n", tutti_last_error());
    return 0;
}

/* The time that groups take to end: each has a communicator for collectives and two for messages. */
int case_many(tutti_group *group, int rank, int size)
{
    enum { GROUPS = 6 };
    tutti_group *sub[GROUPS];
    tutti_tensor x = on_device(group, 100, TUTTI_INT32), y = on_device(group, 100, TUTTI_INT32);
    EXPECT(size == 2);
    double begin = monotonic_s();
    for (int g = 0; g < GROUPS; g++) {
        tutti_work *works[2];
        EXPECT(tutti_new_group((int[]){0, 1}, 2, &(tutti_group_opts){.parent = group}, &sub[g]) == TUTTI_OK);
        EXPECT(tutti_barrier(&(tutti_opts){.group = sub[g]}) == TUTTI_OK);
        EXPECT(tutti_isend(x, 1 - rank, &(tutti_opts){.group = sub[g]}, &works[0]) == TUTTI_OK);
        EXPECT(tutti_irecv(y, 1 - rank, &(tutti_opts){.group = sub[g]}, &works[1]) == TUTTI_OK);
        EXPECT(tutti_wait_all(works, 2, 60000) == TUTTI_OK);
    }
    if (rank == 0) printf("%d groups of 3 communicators: %.0f ms to open", GROUPS, ms_since(begin));
    for (int g = 0; g < GROUPS; g++) {
        begin = monotonic_s();
        EXPECT(tutti_destroy_process_group(sub[g]) == TUTTI_OK);
        if (rank == 0) printf("%s%.0f", g == 0 ? ", each to end: " : " ", ms_since(begin));
    }
    if (rank == 0) printf(" ms\n");
    return 0;
}

const struct device_case fault_cases[] = {{"late_in_stream", case_late_in_stream},
                                          {"late_async", case_late_async},
                                          {"late_coalesced", case_late_coalesced},
                                          {"killed", case_killed},
                                          {"full_stream", case_full_stream},
                                          {"full_stream_late", case_full_stream_late},
                                          {"crowded_reversed", case_crowded_reversed},
                                          {"many", case_many},
                                          {NULL, NULL}};
