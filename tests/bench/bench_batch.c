/* The cost of a message in a batch, and of one begun alone, between two processes that share memory, or not
 * (TUTTI_SHM=0).
 *
 *     tutti-run -n 2 build/tests/bench_batch [messages] [bytes]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>

enum { ROUNDS = 4000, MOST = 1024, BYTES_MOST = 1 << 16 };

static tutti_p2p_op ops[2 * MOST];
static tutti_work *works[2 * MOST];
static char out[BYTES_MOST], in[MOST][BYTES_MOST];

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void one_by_one(int n)
{
    for (int i = 0; i < 2 * n; i++) {
        const tutti_opts *opts = tutti_with(.tag = ops[i].tag);
        if (ops[i].kind == TUTTI_SEND)
            TUTTI_CHECK(tutti_isend(ops[i].tensor, ops[i].peer, opts, &works[i]));
        else
            TUTTI_CHECK(tutti_irecv(ops[i].tensor, ops[i].peer, opts, &works[i]));
    }
}

static void as_a_batch(int n)
{
    TUTTI_CHECK(tutti_batch_isend_irecv(ops, 2 * n, NULL, works));
}

/* Returns nanoseconds a message. *begin receives the part that is spent in the calls that begin them. */
static double measure(void (*start)(int n), int n, int rounds, double *begin)
{
    double begun = 0, from = now_ns();
    for (int i = 0; i < rounds; i++) {
        double at = now_ns();
        start(n);
        begun += now_ns() - at;
        TUTTI_CHECK(tutti_wait_all(works, 2 * n, TUTTI_DEFAULT_TIMEOUT));
    }
    *begin = begun / rounds / (2 * n);
    return (now_ns() - from) / rounds / (2 * n);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) / 2 : 32, bytes = argc > 2 ? atoi(argv[2]) : 8;
    if (n < 1 || n > MOST || bytes < 0 || bytes > BYTES_MOST) return 2;
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL), rounds = ROUNDS / (1 + n * bytes / 100000);
    for (int i = 0; i < n; i++) {
        ops[2 * i] = (tutti_p2p_op){.kind = TUTTI_SEND, .tensor = tutti_view((uint8_t *)out, bytes), .peer = 1 - rank};
        ops[2 * i + 1] =
            (tutti_p2p_op){.kind = TUTTI_RECV, .tensor = tutti_view((uint8_t *)in[i], bytes), .peer = 1 - rank};
    }
    for (int repeat = 0; repeat < 3; repeat++) {
        double begin[2];
        double single = measure(one_by_one, n, rounds, &begin[0]), batch = measure(as_a_batch, n, rounds, &begin[1]);
        if (rank == 0)
            printf("%d messages of %d bytes: one by one %.0f ns each (%.0f to begin), as a batch %.0f (%.0f)\n", 2 * n,
                   bytes, single, begin[0], batch, begin[1]);
    }
    return tutti_destroy_process_group(NULL);
}
