/* Cases for the nccl backend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cases.h"

/* ---- reductions -------------------------------------------------------------------------------------------- */

int one_reduction(tutti_group *group, int rank, int size, tutti_dtype dtype, tutti_reduce_op op, int64_t n)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream, .factor = 0.5};
    tutti_tensor in = on_device(group, n * size, dtype), out = on_device(group, n * size, dtype);
    int mine[4] = {rank, 0}, all[4] = {0, 0, (int)op, size};
    bool whole = (dtype >> 8) < 2;
    double (*result)(int64_t, const int *) = whole ? reduced_whole : reduced;
    bool exact = op != TUTTI_AVG || whole || (size & (size - 1)) == 0;

    fill(in, of_rank, mine);
    EXPECT(tutti_all_reduce_into(part(out, 0, n), part(in, 0, n), op, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(!exact || holds(part(out, 0, n), result, all));
    EXPECT(holds(part(in, 0, n), of_rank, mine));
    EXPECT(tutti_reduce_scatter_tensor(part(out, 0, n), in, op, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(!exact || holds(part(out, 0, n), result, (int[]){0, (int)(rank * n), (int)op, size}));
    for (int root = 0; root < size; root++) {
        fill(out, of_rank, mine);
        EXPECT(tutti_reduce(part(out, 0, n), root, op, &opts) == TUTTI_OK);
        wait_stream(stream);
        EXPECT(rank == root ? !exact || holds(part(out, 0, n), result, all) : holds(part(out, 0, n), of_rank, mine));
    }
    EXPECT(tutti_all_reduce(part(in, 0, n), op, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(!exact || holds(part(in, 0, n), result, all));
    drop(group, in);
    drop(group, out);
    cu.stream_free(stream);
    return 0;
}

int case_reductions(tutti_group *group, int rank, int size)
{
    static const tutti_dtype dtypes[] = {TUTTI_INT8,    TUTTI_UINT8,   TUTTI_INT32,     TUTTI_UINT32,
                                         TUTTI_INT64,   TUTTI_UINT64,  TUTTI_FLOAT16,   TUTTI_BFLOAT16,
                                         TUTTI_FLOAT32, TUTTI_FLOAT64, TUTTI_COMPLEX64, TUTTI_COMPLEX128};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int op = TUTTI_SUM; op <= TUTTI_PREMUL_SUM; op++) {
            bool complex = dtypes[d] >= TUTTI_COMPLEX64, whole = (dtypes[d] >> 8) < 2;
            if (complex && (op == TUTTI_PRODUCT || op == TUTTI_MIN || op == TUTTI_MAX)) continue;
            if (whole && op == TUTTI_PREMUL_SUM) continue;
            if (op == TUTTI_PRODUCT && (size > 2 || tutti_dtype_bytes(dtypes[d]) < 4) && size > 1)
                continue; /* not exact */
            int line = one_reduction(group, rank, size, dtypes[d], (tutti_reduce_op)op, 1 + 37 * (int)d);
            if (line != 0) {
                fprintf(stderr, "rank %d: dtype 0x%x, op %d\n", rank, (unsigned)dtypes[d], op);
                return line;
            }
        }
    return one_reduction(group, rank, size, TUTTI_FLOAT32, TUTTI_SUM, 70001);
}

static double is_rank_zero(int64_t i, const int *what)
{
    return what[0] == 0 && i % 2 == 0;
}

int case_bool(tutti_group *group, int rank, int size)
{
    static const struct {
        tutti_reduce_op op;
        bool any;
    } ops[] = {{TUTTI_SUM, true}, {TUTTI_MAX, true}, {TUTTI_BOR, true}, {TUTTI_PRODUCT, false}, {TUTTI_BAND, false}};
    tutti_tensor x = on_device(group, 9, TUTTI_BOOL);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        fill(x, is_rank_zero, &rank);
        EXPECT(tutti_all_reduce(x, ops[i].op, &(tutti_opts){.group = group}) == TUTTI_OK);
        wait_stream(NULL);
        int stays = ops[i].any || size == 1 ? 0 : 1;
        EXPECT(holds(x, is_rank_zero, &stays));
    }
    drop(group, x);
    return 0;
}

int case_counts(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 9, TUTTI_FLOAT32);
    tutti_stats before, after;
    uint64_t bytes = 9 * sizeof(float);
    fill(x, is_rank_zero, &rank);
    EXPECT(tutti_get_stats(group, &before) == TUTTI_OK);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group}) == TUTTI_OK);
    EXPECT(tutti_get_stats(group, &after) == TUTTI_OK);
    EXPECT(size == 1 || after.transport.library.sent == before.transport.library.sent + bytes);
    EXPECT(size == 1 || after.transport.library.received == before.transport.library.received + bytes);
    wait_stream(NULL);
    drop(group, x);
    return 0;
}

/* ---- moves ------------------------------------------------------------------------------------------------- */

static int one_move(tutti_group *group, int rank, int size, tutti_dtype dtype, int64_t n)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor one = on_device(group, n, dtype), all = on_device(group, n * size, dtype),
                 other = on_device(group, n * size, dtype);
    int mine[2] = {rank, 0};
    for (int root = 0; root < size; root++) {
        fill(one, of_rank, mine);
        EXPECT(tutti_broadcast(one, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        EXPECT(holds(one, of_rank, (int[]){root, 0}));
        fill(one, of_rank, mine);
        EXPECT(tutti_gather_into_tensor(all, one, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        for (int r = 0; r < size && rank == root; r++) EXPECT(holds(part(all, r * n, n), of_rank, (int[]){r, 0}));
        for (int r = 0; r < size; r++) fill(part(all, r * n, n), of_rank, (int[]){r, root + 1});
        EXPECT(tutti_scatter_tensor(one, all, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        EXPECT(holds(one, of_rank, (int[]){rank, root + 1}));
    }
    fill(one, of_rank, mine);
    EXPECT(tutti_all_gather_into_tensor(all, one, &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) EXPECT(holds(part(all, r * n, n), of_rank, (int[]){r, 0}));
    for (int r = 0; r < size; r++) fill(part(all, r * n, n), of_rank, (int[]){rank, r});
    EXPECT(tutti_all_to_all_single(other, all, NULL, NULL, &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) EXPECT(holds(part(other, r * n, n), of_rank, (int[]){r, rank}));
    drop(group, one);
    drop(group, all);
    drop(group, other);
    cu.stream_free(stream);
    return 0;
}

int case_moves(tutti_group *group, int rank, int size)
{
    static const int64_t counts[] = {0, 1, 7, 1000, 70001};
    static const tutti_dtype dtypes[] = {TUTTI_INT32, TUTTI_INT16, TUTTI_BOOL, TUTTI_COMPLEX128};
    int line = 0;
    for (size_t c = 0; c < sizeof counts / sizeof *counts && line == 0; c++)
        line = one_move(group, rank, size, TUTTI_FLOAT32, counts[c]);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes && line == 0; d++)
        line = one_move(group, rank, size, dtypes[d], 33);
    return line;
}

/* Rank r's part has base + r elements. */
int case_uneven(tutti_group *group, int rank, int size)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    int64_t base = 11, most = base + size, total = 0, in_total = 0;
    tutti_tensor list[CASES_RANKS], other[CASES_RANKS], one = on_device(group, base + rank, TUTTI_INT32);
    int64_t in_splits[CASES_RANKS], out_splits[CASES_RANKS];
    for (int r = 0; r < size; r++) list[r] = on_device(group, base + r, TUTTI_INT32);
    for (int r = 0; r < size; r++) other[r] = on_device(group, base + rank, TUTTI_INT32);
    fill(one, of_rank, &(int[]){rank, 0}[0]);
    EXPECT(tutti_all_gather(list, size, one, &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) EXPECT(holds(list[r], of_rank, (int[]){r, 0}));
    for (int root = 0; root < size; root++) {
        bool is_root = rank == root;
        for (int r = 0; r < size; r++) fill(list[r], of_rank, (int[]){r, 3});
        fill(one, of_rank, &(int[]){rank, 1}[0]);
        EXPECT(tutti_gather(one, is_root ? list : NULL, is_root ? size : 0, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        for (int r = 0; r < size && is_root; r++) EXPECT(holds(list[r], of_rank, (int[]){r, 1}));
        for (int r = 0; r < size; r++) fill(list[r], of_rank, (int[]){r, 2});
        EXPECT(tutti_scatter(one, is_root ? list : NULL, is_root ? size : 0, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        EXPECT(holds(one, of_rank, (int[]){rank, 2}));
    }
    for (int r = 0; r < size; r++) fill(list[r], of_rank, (int[]){rank, 0});
    EXPECT(tutti_reduce_scatter(one, list, size, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_all_to_all(other, list, size, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(holds(one, reduced, (int[]){0, 0, TUTTI_SUM, size}));
    for (int r = 0; r < size; r++) EXPECT(holds(other[r], of_rank, (int[]){r, 0}));
    tutti_tensor from = on_device(group, most * size, TUTTI_INT32), to = on_device(group, most * size, TUTTI_INT32);
    for (int r = 0; r < size; r++) { /* rank a sends (a + b) % size elements to b, zero among them */
        in_splits[r] = out_splits[r] = (rank + r) % size;
        fill(part(from, in_total, in_splits[r]), of_rank, (int[]){rank, r});
        in_total += in_splits[r];
    }
    EXPECT(tutti_all_to_all_single(part(to, 0, in_total), part(from, 0, in_total), out_splits, in_splits, &opts) ==
           TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; total += out_splits[r++])
        EXPECT(holds(part(to, total, out_splits[r]), of_rank, (int[]){r, rank}));
    for (int r = 0; r < size; r++) {
        drop(group, list[r]);
        drop(group, other[r]);
    }
    drop(group, one);
    drop(group, from);
    drop(group, to);
    cu.stream_free(stream);
    return 0;
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

int case_messages(tutti_group *group, int rank, int size)
{
    if (size == 1) return 0;
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int64_t n = 2 << 20;
    tutti_tensor a = on_device(group, n, TUTTI_INT32), b = on_device(group, n, TUTTI_INT32);
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    for (int round = 0; round < 3; round++) { /* all ranks send first */
        tutti_work *works[2];
        fill(a, of_rank, (int[]){rank, round});
        EXPECT(tutti_isend(a, to, &opts, &works[0]) == TUTTI_OK);
        EXPECT(tutti_irecv(b, from, &opts, &works[1]) == TUTTI_OK);
        EXPECT(tutti_wait_all(works, 2, 60000) == TUTTI_OK);
        EXPECT(holds(b, of_rank, (int[]){from, round}));
    }
    for (int round = 0; round < 4; round++) { /* in order, one blocking and one not */
        tutti_work *work = NULL;
        fill(part(a, 0, 10), of_rank, (int[]){rank, round});
        if (rank % 2 == 0) {
            EXPECT(tutti_send(part(a, 0, 10), to, &opts) == TUTTI_OK);
            EXPECT(tutti_isend(part(a, 0, 10), to, &opts, &work) == TUTTI_OK);
        }
        if (from % 2 == 0) {
            int source = -1;
            EXPECT(tutti_recv(part(b, 0, 10), from,
                              &(tutti_opts){.group = group, .stream = stream, .source = &source}) == TUTTI_OK);
            EXPECT(tutti_recv(part(b, 10, 10), from, &opts) == TUTTI_OK);
            wait_stream(stream);
            EXPECT(source == from && holds(part(b, 0, 10), of_rank, (int[]){from, round}) &&
                   holds(part(b, 10, 10), of_rank, (int[]){from, round}));
        }
        if (work != NULL) EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
    }
    wait_stream(stream);
    /* a waiting receive does not delay collectives */
    tutti_work *late = NULL;
    EXPECT(tutti_irecv(part(b, 0, 5), from, &opts, &late) == TUTTI_OK);
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    EXPECT(!tutti_work_is_completed(late));
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    EXPECT(tutti_send(part(a, 0, 5), to, &opts) == TUTTI_OK);
    EXPECT(tutti_wait(&late, 60000) == TUTTI_OK);
    wait_stream(stream);
    drop(group, a);
    drop(group, b);
    cu.stream_free(stream);
    return 0;
}

/* ---- groups, and what is refused --------------------------------------------------------------------------- */

int case_groups(tutti_group *group, int rank, int size)
{
    int evens[CASES_RANKS], n = 0;
    tutti_group *even = NULL, *half = NULL;
    for (int r = 0; r < size; r += 2) evens[n++] = r;
    EXPECT(tutti_new_group(evens, n, &(tutti_group_opts){.parent = group, .high_priority = true}, &even) == TUTTI_OK);
    EXPECT(tutti_split_group(rank % 2, -rank, &(tutti_group_opts){.parent = group}, &half) == TUTTI_OK);
    tutti_tensor x = on_device(group, 3, TUTTI_INT64);
    if (rank % 2 == 0) {
        fill(x, of_rank, (int[]){0, 0});
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = even}) == TUTTI_OK);
        wait_stream(NULL);
        int64_t *host = to_host(x);
        bool right = host[0] == n;
        free(host);
        EXPECT(right);
    }
    fill(x, of_rank, (int[]){rank, 0});
    int lowest = rank % 2, members = tutti_get_world_size(half);
    EXPECT(members == (size - lowest + 1) / 2);
    EXPECT(tutti_broadcast(x, lowest, &(tutti_opts){.group = half}) == TUTTI_OK);
    EXPECT(tutti_barrier(&(tutti_opts){.group = half}) == TUTTI_OK);
    wait_stream(NULL);
    EXPECT(holds(x, of_rank, (int[]){lowest, 0}));
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    drop(group, x);
    EXPECT(tutti_destroy_process_group(even) == TUTTI_OK && tutti_destroy_process_group(half) == TUTTI_OK);
    return 0;
}

int foreign_memory(tutti_group *group, tutti_tensor x, const tutti_opts *opts)
{
    tutti_tensor mine = x;
    int32_t *host = calloc((size_t)x.numel, sizeof *host);
    mine.data = host;
    EXPECT(tutti_all_reduce(mine, TUTTI_SUM, opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "memory unknown to CUDA") != NULL);
    free(host);
    mine = x;
    mine.device.index += 1;
    EXPECT(tutti_all_reduce(mine, TUTTI_SUM, opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "this rank's device") != NULL);
    return 0;
}

int foreign_stream(tutti_group *group, tutti_tensor x, int size)
{
    int devices = 0;
    void *of_thread = (void *)2;
    cu.count(&devices);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group, .stream = of_thread}) ==
           TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "create a stream") != NULL);
    if (devices <= size) return 0;
    EXPECT(cu_use(devices - 1));
    cu_stream far = new_stream();
    EXPECT(cu_use(tutti_get_device(group).index));
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group, .stream = far}) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "does not belong to cuda") != NULL);
    cu.stream_free(far);
    cu.release(devices - 1);
    return 0;
}

static void keep_all(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    (void)inout, (void)in, (void)n, (void)dtype, (void)argument;
}

int own_op_is_refused(tutti_group *group, tutti_tensor x, const tutti_opts *opts)
{
    tutti_reduce_op op;
    EXPECT(tutti_op_create("keep all", keep_all, NULL, NULL, &op) == TUTTI_OK);
    EXPECT(tutti_all_reduce(x, op, opts) == TUTTI_ERR_UNSUPPORTED);
    EXPECT(strstr(tutti_last_error(), "op keep all reduces CPU tensors only") != NULL);
    EXPECT(tutti_op_free(op) == TUTTI_OK);
    return 0;
}

int case_refused(tutti_group *group, int rank, int size)
{
    tutti_opts opts = {.group = group};
    tutti_tensor x = on_device(group, 8, TUTTI_INT32);
    EXPECT(tutti_all_reduce(x, TUTTI_BXOR, &opts) == TUTTI_ERR_UNSUPPORTED);
    EXPECT(tutti_all_reduce((tutti_tensor){x.data, 4, TUTTI_INT16, x.device}, TUTTI_SUM, &opts) ==
           TUTTI_ERR_UNSUPPORTED);
    EXPECT(tutti_all_reduce((tutti_tensor){x.data, 4, TUTTI_COMPLEX64, x.device}, TUTTI_PRODUCT, &opts) ==
           TUTTI_ERR_UNSUPPORTED);
    EXPECT(own_op_is_refused(group, x, &opts) == 0);
    EXPECT(foreign_memory(group, x, &opts) == 0);
    EXPECT(foreign_stream(group, x, size) == 0);
    if (size > 1) {
        int peer = (rank + 1) % size;
        tutti_opts tagged = {.group = group, .tag = 5};
        EXPECT(tutti_send(x, peer, &tagged) == TUTTI_ERR_UNSUPPORTED);
        EXPECT(tutti_recv(x, TUTTI_ANY_SOURCE, &opts) == TUTTI_ERR_UNSUPPORTED);
    }
    EXPECT(tutti_barrier(&opts) == TUTTI_OK); /* the group is still usable */
    drop(group, x);
    return 0;
}

const struct device_case nccl_cases[] = {{"moves", case_moves},
                                         {"reductions", case_reductions},
                                         {"bool", case_bool},
                                         {"counts", case_counts},
                                         {"uneven", case_uneven},
                                         {"messages", case_messages},
                                         {"streams", case_streams},
                                         {"crowded", case_crowded},
                                         {"coalesced", case_coalesced},
                                         {"capture", case_capture},
                                         {"groups", case_groups},
                                         {"duration", case_duration},
                                         {"refused", case_refused},
                                         {"capture_legacy", case_capture_legacy},
                                         {NULL, NULL}};
