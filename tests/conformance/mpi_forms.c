/* Runs every operation over tcp and over mpi. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_ranks.h"

static const tutti_dtype all_dtypes[] = {
    TUTTI_INT8,      TUTTI_INT16,      TUTTI_INT32,   TUTTI_INT64,         TUTTI_UINT8,      TUTTI_UINT16,
    TUTTI_UINT32,    TUTTI_UINT64,     TUTTI_FLOAT16, TUTTI_FLOAT32,       TUTTI_FLOAT64,    TUTTI_BFLOAT16,
    TUTTI_COMPLEX64, TUTTI_COMPLEX128, TUTTI_BOOL,    TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2};

static void fill(uint64_t seed, tutti_dtype dtype, int64_t bytes)
{
    uint64_t state = seed * 1000003u + (uint64_t)mpi_ranks.rank * 7919u + 1;
    for (int64_t i = 0; i < bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        mpi_ranks.in[i] = (char)(dtype == TUTTI_BOOL ? state >> 40 & 1 : state >> 40);
    }
}

/* True if the result does not depend on the order of a sum, which each backend chooses.  With two ranks there is only
 * one order. */
static bool is_exact(tutti_dtype dtype, tutti_reduce_op op)
{
    bool inexact = (dtype >> 8 != 0 && dtype >> 8 != 1 && dtype != TUTTI_BOOL) && op != TUTTI_MIN && op != TUTTI_MAX;
    return mpi_ranks.size <= 2 || !inexact;
}

/* ---- every operation over both ------------------------------------------------------------------------------- */

enum form {
    BROADCAST,
    ALL_REDUCE,
    ALL_REDUCE_SAME,
    REDUCE,
    ALL_GATHER,
    ALL_GATHER_SAME,
    ALL_GATHER_LIST,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    REDUCE_SCATTER_SAME,
    ALL_TO_ALL,
    ALL_TO_ALL_SAME,
    ALL_TO_ALL_SPLITS,
    FORMS
};

static const char *const form_names[FORMS] = {"broadcast",
                                              "all_reduce",
                                              "all_reduce in place",
                                              "reduce",
                                              "all_gather",
                                              "all_gather in place",
                                              "all_gather of a list",
                                              "gather",
                                              "scatter",
                                              "reduce_scatter",
                                              "reduce_scatter in place",
                                              "all_to_all",
                                              "all_to_all in place",
                                              "all_to_all with splits"};

static int run_splits(char *out, int64_t n, tutti_dtype dtype, const tutti_opts *opts)
{
    int64_t ins[8], outs[8], in_sum = 0, out_sum = 0; /* rank r sends n * ((r + k) % 3) elements to rank k */
    for (int k = 0; k < mpi_ranks.size; k++) {
        ins[k] = n * ((mpi_ranks.rank + k) % 3);
        outs[k] = n * ((mpi_ranks.rank + k) % 3);
        in_sum += ins[k];
        out_sum += outs[k];
    }
    return tutti_all_to_all_single(tutti_tensor_of(out, out_sum, dtype), tutti_tensor_of(mpi_ranks.in, in_sum, dtype),
                                   outs, ins, opts);
}

static int run_list(char *out, int64_t n, tutti_dtype dtype, const tutti_opts *opts)
{
    tutti_tensor list[8];
    int64_t element = tutti_dtype_bytes(dtype);
    for (int k = 0; k < mpi_ranks.size; k++) /* at reversed positions */
        list[k] = tutti_tensor_of(out + (mpi_ranks.size - 1 - k) * n * element, n, dtype);
    return tutti_all_gather(list, mpi_ranks.size, tutti_tensor_of(mpi_ranks.in, n, dtype), opts);
}

/* Runs one form with n elements a part. */
static int run(enum form form, char *out, int64_t n, tutti_dtype dtype, tutti_reduce_op op, int root,
               const tutti_opts *opts)
{
    int64_t bytes = n * tutti_dtype_bytes(dtype), all = n * mpi_ranks.size;
    tutti_tensor in1 = tutti_tensor_of(mpi_ranks.in, n, dtype), in_all = tutti_tensor_of(mpi_ranks.in, all, dtype);
    tutti_tensor out1 = tutti_tensor_of(out, n, dtype), out_all = tutti_tensor_of(out, all, dtype);
    tutti_tensor own = tutti_tensor_of(out + mpi_ranks.rank * bytes, n, dtype);
    switch (form) {
    case BROADCAST:
        memcpy(out, mpi_ranks.in, (size_t)bytes);
        return tutti_broadcast(out1, root, opts);
    case ALL_REDUCE:
        return tutti_all_reduce_into(out1, in1, op, opts);
    case ALL_REDUCE_SAME:
        memcpy(out, mpi_ranks.in, (size_t)bytes);
        return tutti_all_reduce(out1, op, opts);
    case REDUCE:
        return tutti_reduce_into(out1, in1, root, op, opts);
    case ALL_GATHER:
        return tutti_all_gather_into_tensor(out_all, in1, opts);
    case ALL_GATHER_SAME:
        memcpy(own.data, mpi_ranks.in, (size_t)bytes);
        return tutti_all_gather_into_tensor(out_all, own, opts);
    case ALL_GATHER_LIST:
        return run_list(out, n, dtype, opts);
    case GATHER:
        return tutti_gather_into_tensor(out_all, in1, root, opts);
    case SCATTER:
        return tutti_scatter_tensor(out1, in_all, root, opts);
    case REDUCE_SCATTER:
        return tutti_reduce_scatter_tensor(out1, in_all, op, opts);
    case REDUCE_SCATTER_SAME: {
        memcpy(out, mpi_ranks.in, (size_t)(bytes * mpi_ranks.size));
        int status = tutti_reduce_scatter_tensor(own, out_all, op, opts);
        memmove(out, own.data, (size_t)bytes); /* the other parts are undefined */
        memset(out + bytes, 0, (size_t)(bytes * (mpi_ranks.size - 1)));
        return status;
    }
    case ALL_TO_ALL:
        return tutti_all_to_all_single(out_all, in_all, NULL, NULL, opts);
    case ALL_TO_ALL_SAME:
        memcpy(out, mpi_ranks.in, (size_t)(bytes * mpi_ranks.size));
        return tutti_all_to_all_single(out_all, out_all, NULL, NULL, opts);
    case ALL_TO_ALL_SPLITS:
        return run_splits(out, n, dtype, opts);
    default:
        return -1;
    }
}

static int compare(enum form form, int64_t n, tutti_dtype dtype, tutti_reduce_op op, int root)
{
    size_t bytes = (size_t)(3 * n * mpi_ranks.size * tutti_dtype_bytes(dtype)) + 64;
    int status[2];
    fill((uint64_t)(form * 131 + n + (int)op * 17 + root), dtype, (int64_t)bytes);
    for (int k = 0; k < 2; k++) {
        memset(mpi_ranks.out[k], 0x5a, bytes);
        status[k] = run(form, mpi_ranks.out[k], n, dtype, op, root,
                        tutti_with(.group = k == 0 ? NULL : mpi_ranks.mpi, .factor = 0.5));
        if (status[k] != TUTTI_OK && status[k] != TUTTI_ERR_UNSUPPORTED)
            return mpi_ranks_wrong(form_names[form], tutti_last_error());
    }
    char text[200];
    snprintf(text, sizeof text, "%s of %" PRId64 " elements of 0x%x, op %d, root %d", form_names[form], n,
             (unsigned)dtype, (int)op, root);
    if (status[0] != status[1]) return mpi_ranks_wrong(text, "one backend does it, the other does not");
    return memcmp(mpi_ranks.out[0], mpi_ranks.out[1], bytes) == 0 ? 0 : mpi_ranks_wrong(text, "tcp and mpi differ");
}

static int all_reductions(void)
{
    static const int64_t counts[] = {0, 1, 5, 3001};
    for (size_t d = 0; d < sizeof all_dtypes / sizeof *all_dtypes; d++)
        for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                if (is_exact(all_dtypes[d], (tutti_reduce_op)op) &&
                    compare(ALL_REDUCE, counts[c], all_dtypes[d], (tutti_reduce_op)op, 0) != 0)
                    return 1;
    return 0;
}

static int all_forms(void)
{
    static const int64_t counts[] = {1, 700, 100000 / 3};
    static const tutti_dtype dtypes[] = {TUTTI_INT32, TUTTI_UINT8, TUTTI_COMPLEX128};
    for (int form = 0; form < FORMS; form++)
        for (int d = 0; d < 3; d++)
            for (int c = 0; c < 3; c++)
                for (int root = 0; root < mpi_ranks.size; root++) {
                    bool reduces = form == REDUCE || form == REDUCE_SCATTER || form == REDUCE_SCATTER_SAME ||
                                   form == ALL_REDUCE || form == ALL_REDUCE_SAME;
                    if (reduces && !is_exact(dtypes[d], TUTTI_SUM)) continue;
                    if (compare((enum form)form, counts[c], dtypes[d], TUTTI_SUM, root) != 0) return 1;
                }
    return 0;
}

int mpi_forms_compare(void)
{
    return all_reductions() != 0 || all_forms() != 0;
}
