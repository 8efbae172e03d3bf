/* The calls of programs.c over Tutti.  Sizes are in bytes. */
#ifndef TESTS_BENCH_CALLS_TUTTI_H
#define TESTS_BENCH_CALLS_TUTTI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { MAX_RANKS = 64 };

typedef tutti_work *request;
typedef tutti_group *group;

static inline tutti_tensor bytes_of(void *data, int64_t bytes)
{
    return tutti_tensor_of(data, bytes, TUTTI_INT8);
}

static inline void start(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    TUTTI_CHECK(tutti_init_process_group(getenv("PROGRAMS_BACKEND"), NULL));
}

static inline void finish(void)
{
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
}

static inline int my_rank(void)
{
    return tutti_get_rank(NULL);
}

static inline int n_ranks(void)
{
    return tutti_get_world_size(NULL);
}

static inline group split(int color, int key)
{
    tutti_group *part = NULL;
    TUTTI_CHECK(tutti_split_group(color, key, NULL, &part));
    return part;
}

static inline void free_group(group part)
{
    TUTTI_CHECK(tutti_destroy_process_group(part));
}

static inline void isend(void *data, int64_t bytes, int to, request *work)
{
    TUTTI_CHECK(tutti_isend(bytes_of(data, bytes), to, NULL, work));
}

static inline void irecv(void *data, int64_t bytes, int from, request *work)
{
    TUTTI_CHECK(tutti_irecv(bytes_of(data, bytes), from, NULL, work));
}

static inline void send(void *data, int64_t bytes, int to)
{
    TUTTI_CHECK(tutti_send(bytes_of(data, bytes), to, NULL));
}

static inline void recv(void *data, int64_t bytes, int from)
{
    TUTTI_CHECK(tutti_recv(bytes_of(data, bytes), from, NULL));
}

static inline int recv_any(void *data, int64_t bytes)
{
    int source = -1;
    TUTTI_CHECK(tutti_recv(bytes_of(data, bytes), TUTTI_ANY_SOURCE, tutti_with(.source = &source)));
    return source;
}

/* Receives a message whose size only its sender knows, once it has been found. */
static inline void recv_probed(void *data, int from)
{
    tutti_message message;
    TUTTI_CHECK(tutti_probe(from, NULL, &message));
    TUTTI_CHECK(tutti_recv(bytes_of(data, message.bytes), message.source, NULL));
}

static inline void wait_all(request *works, int n)
{
    TUTTI_CHECK(tutti_wait_all(works, n, TUTTI_DEFAULT_TIMEOUT));
}

static inline int wait_any(request *works, int n)
{
    int index = -1;
    TUTTI_CHECK(tutti_wait_any(works, n, TUTTI_DEFAULT_TIMEOUT, &index));
    return index;
}

static inline bool is_done(request *work)
{
    if (!tutti_work_is_completed(*work)) return false;
    TUTTI_CHECK(tutti_wait(work, TUTTI_NOW));
    return true;
}

static inline void barrier(void)
{
    TUTTI_CHECK(tutti_barrier(NULL));
}

static inline void ibarrier(request *work)
{
    TUTTI_CHECK(tutti_barrier(tutti_with(.async_op = work)));
}

static inline void broadcast(void *data, int64_t bytes, int root)
{
    TUTTI_CHECK(tutti_broadcast(bytes_of(data, bytes), root, NULL));
}

static inline void broadcast_in(group part, void *data, int64_t bytes, int root)
{
    TUTTI_CHECK(tutti_broadcast(bytes_of(data, bytes), root, tutti_with(.group = part, .group_rank = true)));
}

static inline void ibroadcast(void *data, int64_t bytes, int root, request *work)
{
    TUTTI_CHECK(tutti_broadcast(bytes_of(data, bytes), root, tutti_with(.async_op = work)));
}

static inline void all_reduce(double *x, int64_t bytes)
{
    TUTTI_CHECK(tutti_all_reduce(tutti_view(x, bytes / 8), TUTTI_SUM, NULL));
}

static inline void all_reduce_in(group part, double *x, int64_t bytes)
{
    TUTTI_CHECK(tutti_all_reduce(tutti_view(x, bytes / 8), TUTTI_SUM, tutti_with(.group = part)));
}

static inline void iall_reduce(double *x, int64_t bytes, request *work)
{
    TUTTI_CHECK(tutti_all_reduce(tutti_view(x, bytes / 8), TUTTI_SUM, tutti_with(.async_op = work)));
}

static inline void reduce(double *to, double *from, int64_t bytes, int root)
{
    int64_t numel = bytes / 8;
    TUTTI_CHECK(tutti_reduce_into(tutti_view(to, numel), tutti_view(from, numel), root, TUTTI_SUM, NULL));
}

static inline void scan(double *x, int64_t bytes)
{
    TUTTI_CHECK(tutti_scan(tutti_view(x, bytes / 8), TUTTI_SUM, NULL));
}

static inline double max_of(double x)
{
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&x, 1), TUTTI_MAX, NULL));
    return x;
}

/* out has n blocks of bytes. */
static inline void all_gather(void *out, void *in, int64_t bytes)
{
    TUTTI_CHECK(tutti_all_gather_into_tensor(bytes_of(out, n_ranks() * bytes), bytes_of(in, bytes), NULL));
}

static inline void iall_gather(void *out, void *in, int64_t bytes, request *work)
{
    TUTTI_CHECK(tutti_all_gather_into_tensor(bytes_of(out, n_ranks() * bytes), bytes_of(in, bytes),
                                             tutti_with(.async_op = work)));
}

/* in has n blocks of bytes. */
static inline void reduce_scatter(double *out, double *in, int64_t bytes)
{
    TUTTI_CHECK(tutti_reduce_scatter_tensor(tutti_view(out, bytes / 8), tutti_view(in, n_ranks() * bytes / 8),
                                            TUTTI_SUM, NULL));
}

static inline void all_to_all(void *out, void *in, int64_t bytes)
{
    int64_t all = n_ranks() * bytes;
    TUTTI_CHECK(tutti_all_to_all_single(bytes_of(out, all), bytes_of(in, all), NULL, NULL, NULL));
}

static inline void iall_to_all(void *out, void *in, int64_t bytes, request *work)
{
    int64_t all = n_ranks() * bytes;
    TUTTI_CHECK(
        tutti_all_to_all_single(bytes_of(out, all), bytes_of(in, all), NULL, NULL, tutti_with(.async_op = work)));
}

/* Blocks lie one after the other; out_bytes[r] come from rank r, in_bytes[r] go to it. */
static inline void all_to_all_of(void *out, const int *out_bytes, void *in, const int *in_bytes)
{
    int64_t take[MAX_RANKS], give[MAX_RANKS], taken = 0, given = 0;
    for (int r = 0; r < n_ranks(); r++) {
        taken += take[r] = out_bytes[r];
        given += give[r] = in_bytes[r];
    }
    TUTTI_CHECK(tutti_all_to_all_single(bytes_of(out, taken), bytes_of(in, given), take, give, NULL));
}

static inline void gather(void *out, void *in, int64_t bytes, int root)
{
    TUTTI_CHECK(tutti_gather_into_tensor(bytes_of(out, n_ranks() * bytes), bytes_of(in, bytes), root, NULL));
}

/* Views of blocks that lie one after the other. */
static inline void views(tutti_tensor *list, void *data, const int *bytes)
{
    char *at = data;
    for (int r = 0; r < n_ranks(); r++) {
        list[r] = bytes_of(at, bytes[r]);
        at += bytes[r];
    }
}

static inline void gather_of(void *out, const int *bytes, void *in, int root)
{
    tutti_tensor list[MAX_RANKS];
    bool to_me = my_rank() == root;
    views(list, out, bytes);
    TUTTI_CHECK(tutti_gather(bytes_of(in, bytes[my_rank()]), to_me ? list : NULL, to_me ? n_ranks() : 0, root, NULL));
}

static inline void scatter_of(void *out, void *in, const int *bytes, int root)
{
    tutti_tensor list[MAX_RANKS];
    bool from_me = my_rank() == root;
    views(list, in, bytes);
    TUTTI_CHECK(
        tutti_scatter(bytes_of(out, bytes[my_rank()]), from_me ? list : NULL, from_me ? n_ranks() : 0, root, NULL));
}

static inline void all_gather_of(void *out, const int *bytes, void *in)
{
    tutti_tensor list[MAX_RANKS];
    views(list, out, bytes);
    TUTTI_CHECK(tutti_all_gather(list, n_ranks(), bytes_of(in, bytes[my_rank()]), NULL));
}

#endif
