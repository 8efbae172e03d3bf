/* Large messages between ranks that share a core: which path they take, and that blocking senders do not wait for each
 * other as long as there is space. */
#include <sched.h>

#include "procs.h"

enum { LIMIT_MS = 30000, LARGE = 256 << 10, WINDOW = 4, WINDOWS = 60, BYTES_OF_CREDIT = 60000, HEAD_ON = 20 };

static tutti_tensor bytes_of(void *data, int64_t bytes)
{
    return tutti_tensor_of(data, bytes, TUTTI_UINT8);
}

/* Exchanges n messages that no sender is blocked on. */
static int exchange(int rank, int n, uint8_t *out, uint8_t *in)
{
    tutti_work *works[2 * WINDOW];
    for (int i = 0; i < n; i++) {
        memset(out + (size_t)i * LARGE, 16 * rank + i, LARGE);
        EXPECT(tutti_irecv(bytes_of(in + (size_t)i * LARGE, LARGE), 1 - rank, NULL, &works[i]) == TUTTI_OK);
    }
    for (int i = 0; i < n; i++)
        EXPECT(tutti_isend(bytes_of(out + (size_t)i * LARGE, LARGE), 1 - rank, NULL, &works[n + i]) == TUTTI_OK);
    EXPECT(tutti_wait_all(works, 2 * n, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    for (int i = 0; i < n * LARGE; i += 1021) EXPECT(in[i] == 16 * (1 - rank) + i / LARGE);
    return 0;
}

/* Both ways are timed, although all messages of a window are answered before they move.  One message goes first: then
 * each window ends with an untimed message of a span of four. */
static int offers_rank(int rank, int size, void *argument)
{
    static uint8_t out[WINDOW * LARGE], in[WINDOW * LARGE];
    char text[4096];
    (void)argument;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(exchange(rank, 1, out, in) == 0);
    for (int i = 0; i < WINDOWS; i++) EXPECT(exchange(rank, WINDOW, out, in) == 0);
    EXPECT(tutti_describe_group(NULL, text, sizeof text) == TUTTI_OK);
    bool may_read = strstr(text, "read from the sender's memory") != NULL; /* not in some sandboxes */
    EXPECT(tutti_explain(TUTTI_SEND, LARGE, NULL, text, sizeof text) == TUTTI_OK);
    const char *times = strstr(text, "measured for 64 KiB from rank ");
    if (may_read) {
        EXPECT(times != NULL);
        EXPECT(strstr(times, "fifo (both copies) ") != NULL);
        EXPECT(strstr(times, ", read ") != NULL);
    }
    proc_barrier(size, 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* Both ranks send more than their rings hold before they receive.  What finds no space is queued, within the credit. */
static int head_on_rank(int rank, int size, void *argument)
{
    static uint8_t data[BYTES_OF_CREDIT];
    (void)argument;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int i = 0; i < HEAD_ON; i++) {
        memset(data, rank + i, sizeof data);
        EXPECT(tutti_send(bytes_of(data, sizeof data), 1 - rank, NULL) == TUTTI_OK);
    }
    for (int i = 0; i < HEAD_ON; i++) {
        EXPECT(tutti_recv(bytes_of(data, sizeof data), 1 - rank, NULL) == TUTTI_OK);
        EXPECT(data[0] == 1 - rank + i && data[sizeof data - 1] == data[0]);
    }
    proc_barrier(size, 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_offers_are_measured(void **state)
{
    (void)state;
    procs_run_ranks(2, offers_rank, NULL);
}

static void test_head_on(void **state)
{
    (void)state;
    procs_run_ranks(2, head_on_rank, NULL);
}

/* Leaves the ranks one core. */
static int use_one_core(void **state)
{
    cpu_set_t cores, one;
    (void)state;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) return -1;
    int first = 0;
    while (!CPU_ISSET(first, &cores)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    return sched_setaffinity(0, sizeof one, &one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_offers_are_measured), cmocka_unit_test(test_head_on)};
    return cmocka_run_group_tests(tests, use_one_core, NULL);
}
