#include "bench/ops.h"

/* Makes tensors as programs do.  Changing fields of a copy takes a large part of a small operation's time. */
static tutti_tensor part(tutti_tensor tensor, int64_t first, int64_t numel)
{
    void *data = (char *)tensor.data + first * tutti_dtype_bytes(tensor.dtype);
    tutti_tensor made = tutti_tensor_of(data, numel, tensor.dtype);
    return tensor.device.type == TUTTI_CPU ? made : tutti_on(made, tensor.device);
}

static tutti_tensor message(const struct bench_case *c, tutti_tensor buffer)
{
    return part(buffer, 0, c->count);
}

static tutti_tensor chunk(const struct bench_case *c, tutti_tensor buffer)
{
    return part(buffer, 0, c->chunk);
}

static tutti_tensor chunks(const struct bench_case *c, tutti_tensor buffer)
{
    return part(buffer, 0, c->chunk * c->ranks);
}

/* ---- starting ---------------------------------------------------------------------------------------------- */

static int start_barrier(const struct bench_case *c, const tutti_opts *opts)
{
    (void)c;
    return tutti_barrier(opts);
}

static int start_broadcast(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_broadcast(message(c, c->rank == 0 ? c->in : c->out), 0, opts);
}

static int start_all_reduce(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_all_reduce_into(message(c, c->out), message(c, c->in), c->data.reduce_op, opts);
}

/* Reduces in place.  As in training, the next iteration reads the output of the last one. */
static int start_all_reduce_in_place(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_all_reduce(message(c, c->out), c->data.reduce_op, opts);
}

static int start_reduce(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_reduce_into(message(c, c->out), message(c, c->in), 0, c->data.reduce_op, opts);
}

static int start_scan(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_scan_into(message(c, c->out), message(c, c->in), c->data.reduce_op, opts);
}

static int start_exscan(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_exscan_into(message(c, c->out), message(c, c->in), c->data.reduce_op, opts);
}

static int start_all_gather(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_all_gather_into_tensor(chunks(c, c->out), chunk(c, c->in), opts);
}

static int start_reduce_scatter(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_reduce_scatter_tensor(chunk(c, c->out), chunks(c, c->in), c->data.reduce_op, opts);
}

static int start_all_to_all(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_all_to_all_single(chunks(c, c->out), chunks(c, c->in), NULL, NULL, opts);
}

static int start_gather(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_gather_into_tensor(chunks(c, c->out), chunk(c, c->in), 0, opts);
}

static int start_scatter(const struct bench_case *c, const tutti_opts *opts)
{
    return tutti_scatter_tensor(chunk(c, c->out), chunks(c, c->in), 0, opts);
}

static int send_one(const struct bench_case *c, int peer)
{
    tutti_work *work = NULL;
    if (!c->async) return tutti_send(message(c, c->in), peer, tutti_with(.group = c->group));
    int status = tutti_isend(message(c, c->in), peer, tutti_with(.group = c->group), &work);
    return status < 0 ? status : tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);
}

static int receive_one(const struct bench_case *c, int peer)
{
    tutti_work *work = NULL;
    if (!c->async) return tutti_recv(message(c, c->out), peer, tutti_with(.group = c->group));
    int status = tutti_irecv(message(c, c->out), peer, tutti_with(.group = c->group), &work);
    return status < 0 ? status : tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);
}

/* Runs a round trip of every pair of ranks at the same time.  With an odd number of ranks the last one is idle. */
static int start_pingpong(const struct bench_case *c, const tutti_opts *opts)
{
    int peer = c->rank ^ 1;
    (void)opts;
    if (peer >= c->ranks) return TUTTI_OK;
    bool first = c->rank < peer;
    int status = first ? send_one(c, peer) : receive_one(c, peer);
    if (status < 0) return status;
    return first ? receive_one(c, peer) : send_one(c, peer);
}

/* Reduces on this rank alone, without any message: out = out op in. */
static int start_local_reduce(const struct bench_case *c, const tutti_opts *opts)
{
    (void)opts;
    return tutti_reduce_local(message(c, c->out), message(c, c->in), c->data.reduce_op);
}

/* ---- checking ---------------------------------------------------------------------------------------------- */

static int64_t wrong_never(const struct bench_case *c)
{
    (void)c;
    return 0;
}

static int64_t wrong_broadcast(const struct bench_case *c)
{
    return data_wrong_copy(&c->data, 0, 0, message(c, c->rank == 0 ? c->in : c->out));
}

static int64_t wrong_all_reduce(const struct bench_case *c)
{
    return data_wrong_reduced(&c->data, 0, message(c, c->out));
}

static int64_t wrong_reduce(const struct bench_case *c)
{
    return c->rank == 0 ? wrong_all_reduce(c) : 0;
}

static int64_t wrong_all_gather(const struct bench_case *c)
{
    int64_t wrong = 0;
    for (int r = 0; r < c->ranks; r++) wrong += data_wrong_copy(&c->data, r, 0, part(c->out, r * c->chunk, c->chunk));
    return wrong;
}

static int64_t wrong_gather(const struct bench_case *c)
{
    return c->rank == 0 ? wrong_all_gather(c) : 0;
}

static int64_t wrong_reduce_scatter(const struct bench_case *c)
{
    return data_wrong_reduced(&c->data, c->rank * c->chunk, chunk(c, c->out));
}

/* Returns how many elements of a reduction over the first ranks are wrong. */
static int64_t wrong_prefix(const struct bench_case *c, int ranks)
{
    struct data data = c->data;
    data.ranks = ranks;
    return ranks > 0 ? data_wrong_reduced(&data, 0, message(c, c->out)) : 0;
}

static int64_t wrong_scan(const struct bench_case *c)
{
    return wrong_prefix(c, c->rank + 1);
}

static int64_t wrong_exscan(const struct bench_case *c)
{
    return wrong_prefix(c, c->rank);
}

static int64_t wrong_all_to_all(const struct bench_case *c)
{
    int64_t wrong = 0;
    for (int r = 0; r < c->ranks; r++)
        wrong += data_wrong_copy(&c->data, r, c->rank * c->chunk, part(c->out, r * c->chunk, c->chunk));
    return wrong;
}

static int64_t wrong_scatter(const struct bench_case *c)
{
    return data_wrong_copy(&c->data, 0, c->rank * c->chunk, chunk(c, c->out));
}

static int64_t wrong_pingpong(const struct bench_case *c)
{
    int peer = c->rank ^ 1;
    return peer < c->ranks ? data_wrong_copy(&c->data, peer, 0, message(c, c->out)) : 0;
}

/* ---- bandwidth --------------------------------------------------------------------------------------------- */

static double bus_whole(double ranks)
{
    (void)ranks;
    return 1;
}

static double bus_others(double ranks)
{
    return (ranks - 1) / ranks;
}

static double bus_twice(double ranks)
{
    return 2 * (ranks - 1) / ranks;
}

const struct bench_op bench_ops[] = {
    {"barrier", false, false, 1, start_barrier, wrong_never, bus_whole, TUTTI_BARRIER, false},
    {"broadcast", true, false, 1, start_broadcast, wrong_broadcast, bus_whole, TUTTI_BROADCAST, false},
    {"all_reduce", true, true, 1, start_all_reduce, wrong_all_reduce, bus_twice, TUTTI_ALL_REDUCE, false},
    {"reduce", true, true, 1, start_reduce, wrong_reduce, bus_whole, TUTTI_REDUCE, false},
    {"all_gather", true, false, 1, start_all_gather, wrong_all_gather, bus_others, TUTTI_ALL_GATHER, false},
    {"reduce_scatter", true, true, 1, start_reduce_scatter, wrong_reduce_scatter, bus_others, TUTTI_REDUCE_SCATTER,
     false},
    {"all_to_all", true, false, 1, start_all_to_all, wrong_all_to_all, bus_others, TUTTI_ALL_TO_ALL, false},
    {"gather", true, false, 1, start_gather, wrong_gather, bus_others, TUTTI_GATHER, false},
    {"scatter", true, false, 1, start_scatter, wrong_scatter, bus_others, TUTTI_SCATTER, false},
    {"pingpong", true, false, 2, start_pingpong, wrong_pingpong, bus_whole, TUTTI_SEND, false},
    {"scan", true, true, 1, start_scan, wrong_scan, bus_whole, TUTTI_SCAN, true},
    {"exscan", true, true, 1, start_exscan, wrong_exscan, bus_whole, TUTTI_EXSCAN, true},
    {"all_reduce_in_place", true, true, 1, start_all_reduce_in_place, wrong_never, bus_twice, TUTTI_ALL_REDUCE, true},
    {"local_reduce", true, true, 1, start_local_reduce, wrong_never, bus_whole, -1, true},
    {0},
};

int64_t bench_numel(const struct bench_case *c)
{
    int64_t all = c->chunk * c->ranks;
    return all > c->count ? all : c->count;
}

int bench_run(const struct bench_case *c)
{
    tutti_work *work = NULL;
    tutti_opts opts = {.group = c->group, .async_op = c->async ? &work : NULL, .factor = DATA_FACTOR};
    int status = c->op->start(c, &opts);
    return status < 0 || !work ? status : tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);
}
