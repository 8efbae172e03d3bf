/* The time that the library itself takes for an operation, without waiting for another process: a blocking 4-byte
 * all_reduce in a group of one rank, and 4-byte messages in windows of 64 between two groups of one thread.  The best
 * of many short batches counts, which other load of the machine disturbs little.
 *
 *     build/tests/bench_issue [batches]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>

enum { OPERATIONS = 2048, WINDOW = 64 };

static tutti_store *store;
static tutti_group *alone, *pair[2];
static float in[WINDOW], out[WINDOW];

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void *join_second(void *argument)
{
    (void)argument;
    TUTTI_CHECK(tutti_create_group("tcp", store, 1, 2, NULL, &pair[1]));
    return NULL;
}

static void make_groups(void)
{
    pthread_t thread;
    tutti_store *other = NULL;
    TUTTI_CHECK(tutti_store_memory(NULL, &store));
    TUTTI_CHECK(tutti_store_memory(NULL, &other));
    TUTTI_CHECK(tutti_create_group("tcp", other, 0, 1, NULL, &alone));
    if (pthread_create(&thread, NULL, join_second, NULL) != 0) abort();
    TUTTI_CHECK(tutti_create_group("tcp", store, 0, 2, NULL, &pair[0]));
    pthread_join(thread, NULL);
}

static void reduce(void)
{
    for (int i = 0; i < OPERATIONS; i++)
        TUTTI_CHECK(tutti_all_reduce(tutti_view(in, 1), TUTTI_SUM, tutti_with(.group = alone)));
}

static void exchange(void)
{
    tutti_work *works[2 * WINDOW];
    for (int done = 0; done < OPERATIONS; done += 2 * WINDOW) {
        for (int i = 0; i < WINDOW; i++)
            TUTTI_CHECK(tutti_irecv(tutti_view(&in[i], 1), 0, tutti_with(.group = pair[1]), &works[i]));
        for (int i = 0; i < WINDOW; i++)
            TUTTI_CHECK(tutti_isend(tutti_view(&out[i], 1), 1, tutti_with(.group = pair[0]), &works[WINDOW + i]));
        TUTTI_CHECK(tutti_wait_all(works, 2 * WINDOW, TUTTI_DEFAULT_TIMEOUT));
    }
}

/* Returns nanoseconds an operation, in the best batch. */
static double best_of(int batches, void (*batch)(void))
{
    double best = 1e18;
    for (int i = 0; i < batches; i++) {
        double begin = now_ns();
        batch();
        double each = (now_ns() - begin) / OPERATIONS;
        if (each < best) best = each;
    }
    return best;
}

int main(int argc, char **argv)
{
    int batches = argc > 1 ? atoi(argv[1]) : 1000;
    make_groups();
    printf("all_reduce %.1f ns\n", best_of(batches, reduce));
    printf("isend or irecv %.1f ns\n", best_of(batches, exchange));
    return 0;
}
