/* The calls of programs.c over MPI.  Sizes are in bytes. */
#ifndef TESTS_BENCH_CALLS_MPI_H
#define TESTS_BENCH_CALLS_MPI_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_RANKS = 64 };

typedef MPI_Request request;
typedef MPI_Comm group;

static inline void start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
}

static inline void finish(void)
{
    MPI_Finalize();
}

static inline int my_rank(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static inline int n_ranks(void)
{
    int n;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    return n;
}

static inline group split(int color, int key)
{
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &part);
    return part;
}

static inline void free_group(group part)
{
    MPI_Comm_free(&part);
}

static inline void isend(void *data, int64_t bytes, int to, request *work)
{
    MPI_Isend(data, (int)bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD, work);
}

static inline void irecv(void *data, int64_t bytes, int from, request *work)
{
    MPI_Irecv(data, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, work);
}

static inline void send(void *data, int64_t bytes, int to)
{
    MPI_Send(data, (int)bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD);
}

static inline void recv(void *data, int64_t bytes, int from)
{
    MPI_Recv(data, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static inline int recv_any(void *data, int64_t bytes)
{
    MPI_Status status;
    MPI_Recv(data, (int)bytes, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &status);
    return status.MPI_SOURCE;
}

static inline void recv_probed(void *data, int from)
{
    MPI_Status status;
    int bytes;
    MPI_Probe(from, 0, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    recv(data, bytes, from);
}

static inline void wait_all(request *works, int n)
{
    MPI_Waitall(n, works, MPI_STATUSES_IGNORE);
}

static inline int wait_any(request *works, int n)
{
    int index;
    MPI_Waitany(n, works, &index, MPI_STATUS_IGNORE);
    return index;
}

static inline bool is_done(request *work)
{
    int done;
    MPI_Test(work, &done, MPI_STATUS_IGNORE);
    return done != 0;
}

static inline void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static inline void ibarrier(request *work)
{
    MPI_Ibarrier(MPI_COMM_WORLD, work);
}

static inline void broadcast_in(group part, void *data, int64_t bytes, int root)
{
    MPI_Bcast(data, (int)bytes, MPI_BYTE, root, part);
}

static inline void broadcast(void *data, int64_t bytes, int root)
{
    broadcast_in(MPI_COMM_WORLD, data, bytes, root);
}

static inline void ibroadcast(void *data, int64_t bytes, int root, request *work)
{
    MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD, work);
}

static inline void all_reduce_in(group part, double *x, int64_t bytes)
{
    MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / 8), MPI_DOUBLE, MPI_SUM, part);
}

static inline void all_reduce(double *x, int64_t bytes)
{
    all_reduce_in(MPI_COMM_WORLD, x, bytes);
}

static inline void iall_reduce(double *x, int64_t bytes, request *work)
{
    MPI_Iallreduce(MPI_IN_PLACE, x, (int)(bytes / 8), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, work);
}

static inline void reduce(double *to, double *from, int64_t bytes, int root)
{
    MPI_Reduce(from, to, (int)(bytes / 8), MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
}

static inline void scan(double *x, int64_t bytes)
{
    MPI_Scan(MPI_IN_PLACE, x, (int)(bytes / 8), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static inline double max_of(double x)
{
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return x;
}

static inline void all_gather(void *out, void *in, int64_t bytes)
{
    MPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static inline void iall_gather(void *out, void *in, int64_t bytes, request *work)
{
    MPI_Iallgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, work);
}

static inline void reduce_scatter(double *out, double *in, int64_t bytes)
{
    MPI_Reduce_scatter_block(in, out, (int)(bytes / 8), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static inline void all_to_all(void *out, void *in, int64_t bytes)
{
    MPI_Alltoall(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static inline void iall_to_all(void *out, void *in, int64_t bytes, request *work)
{
    MPI_Ialltoall(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, work);
}

/* Where blocks begin that lie one after the other. */
static inline void places(int *at, const int *bytes)
{
    at[0] = 0;
    for (int r = 1; r < n_ranks(); r++) at[r] = at[r - 1] + bytes[r - 1];
}

static inline void all_to_all_of(void *out, const int *out_bytes, void *in, const int *in_bytes)
{
    int take[MAX_RANKS], give[MAX_RANKS];
    places(take, out_bytes);
    places(give, in_bytes);
    MPI_Alltoallv(in, in_bytes, give, MPI_BYTE, out, out_bytes, take, MPI_BYTE, MPI_COMM_WORLD);
}

static inline void gather(void *out, void *in, int64_t bytes, int root)
{
    MPI_Gather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}

static inline void gather_of(void *out, const int *bytes, void *in, int root)
{
    int at[MAX_RANKS];
    places(at, bytes);
    MPI_Gatherv(in, bytes[my_rank()], MPI_BYTE, out, bytes, at, MPI_BYTE, root, MPI_COMM_WORLD);
}

static inline void scatter_of(void *out, void *in, const int *bytes, int root)
{
    int at[MAX_RANKS];
    places(at, bytes);
    MPI_Scatterv(in, bytes, at, MPI_BYTE, out, bytes[my_rank()], MPI_BYTE, root, MPI_COMM_WORLD);
}

static inline void all_gather_of(void *out, const int *bytes, void *in)
{
    int at[MAX_RANKS];
    places(at, bytes);
    MPI_Allgatherv(in, bytes[my_rank()], MPI_BYTE, out, bytes, at, MPI_BYTE, MPI_COMM_WORLD);
}

#endif
