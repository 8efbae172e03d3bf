/* Operations that reduce, and the mapping of dtypes and reduce operations to NCCL's. */
#include <math.h>
#include <string.h>

#include "ncclb.h"

/* NCCL enum values that headers before 2.24 lack, or define only with CUDA's type headers. */
enum { BFLOAT16 = 9, FLOAT8E4M3 = 10, FLOAT8E5M2 = 11 };

/* A dtype as NCCL sees it: bool is a byte whose maximum is OR, a complex number is two reals. */
struct form {
    ncclDataType_t type;
    size_t parts;
    bool known;
};

static struct form map_dtype(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_INT8:
        return (struct form){ncclInt8, 1, true};
    case TUTTI_BOOL:
    case TUTTI_UINT8:
        return (struct form){ncclUint8, 1, true};
    case TUTTI_INT32:
        return (struct form){ncclInt32, 1, true};
    case TUTTI_UINT32:
        return (struct form){ncclUint32, 1, true};
    case TUTTI_INT64:
        return (struct form){ncclInt64, 1, true};
    case TUTTI_UINT64:
        return (struct form){ncclUint64, 1, true};
    case TUTTI_FLOAT16:
        return (struct form){ncclFloat16, 1, true};
    case TUTTI_BFLOAT16:
        return (struct form){(ncclDataType_t)BFLOAT16, 1, true};
    case TUTTI_FLOAT32:
        return (struct form){ncclFloat32, 1, true};
    case TUTTI_FLOAT64:
        return (struct form){ncclFloat64, 1, true};
    case TUTTI_COMPLEX64:
        return (struct form){ncclFloat32, 2, true};
    case TUTTI_COMPLEX128:
        return (struct form){ncclFloat64, 2, true};
    case TUTTI_FLOAT8_E4M3FN:
        return (struct form){(ncclDataType_t)FLOAT8E4M3, 1, true};
    case TUTTI_FLOAT8_E5M2:
        return (struct form){(ncclDataType_t)FLOAT8E5M2, 1, true};
    default:
        return (struct form){ncclInt8, 1, false};
    }
}

static bool is_fp8(tutti_dtype dtype)
{
    return dtype == TUTTI_FLOAT8_E4M3FN || dtype == TUTTI_FLOAT8_E5M2;
}

static bool is_complex(tutti_dtype dtype)
{
    return dtype == TUTTI_COMPLEX64 || dtype == TUTTI_COMPLEX128;
}

/* Returns ncclNumOps if NCCL has no such operation; PREMUL_SUM's operator is created per factor. */
static ncclRedOp_t map_op(tutti_reduce_op op, tutti_dtype dtype)
{
    bool is_bool = dtype == TUTTI_BOOL;
    switch (op) {
    case TUTTI_SUM:
        return is_bool ? ncclMax : ncclSum;
    case TUTTI_PRODUCT:
        return is_complex(dtype) ? ncclNumOps : is_bool ? ncclMin : ncclProd;
    case TUTTI_MIN:
        return ncclMin;
    case TUTTI_MAX:
        return ncclMax;
    case TUTTI_AVG:
        return ncclAvg;
    case TUTTI_PREMUL_SUM:
        return is_fp8(dtype) ? ncclNumOps : ncclSum;
    case TUTTI_BAND:
        return is_bool ? ncclMin : ncclNumOps;
    case TUTTI_BOR:
        return is_bool ? ncclMax : ncclNumOps;
    default:
        return ncclNumOps;
    }
}

int ncclb_reduce_check(const struct ncclb_group *group, const tutti_op *op)
{
    bool dtype = map_dtype(op->dtype).known && (!is_fp8(op->dtype) || group->fp8_reduces);
    if (dtype && map_op(op->reduce_op, op->dtype) != ncclNumOps) return TUTTI_OK;
    return group->host->error(TUTTI_ERR_UNSUPPORTED,
                              "nccl: NCCL does not support reduce op %d for dtype 0x%x; use another backend for it",
                              (int)op->reduce_op, (unsigned)op->dtype);
}

/* ---- PREMUL_SUM -------------------------------------------------------------------------------------------- */

/* Rounds to nearest even and keeps the upper bits of the float. */
static uint16_t to_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_float16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value);
    if (isnan(value)) return 0x7e00;
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size < 0x1p-14f)
        return (uint16_t)(sign | (uint16_t)lrintf(size * 0x1p24f)); /* multiples of the smallest subnormal */
    int exponent;
    float mantissa = frexpf(size, &exponent); /* 0.5 .. 1 */
    long steps = lrintf(mantissa * 2048.0f);  /* 1024 .. 2048; 2048 carries into the exponent */
    return (uint16_t)(sign | (uint16_t)(((exponent + 13) << 10) + (int)steps));
}

static void make_scalar(double factor, ncclDataType_t type, void *scalar)
{
    float single = (float)factor;
    uint16_t half = type == ncclFloat16 ? to_float16(single) : to_bfloat16(single);
    if (type == ncclFloat64)
        memcpy(scalar, &factor, sizeof factor);
    else if (type == ncclFloat32)
        memcpy(scalar, &single, sizeof single);
    else
        memcpy(scalar, &half, sizeof half);
}

/* Caches the operator for the next operation with the same factor; the oldest is evicted. */
static ncclResult_t premul_sum_op(struct ncclb_comm_stream *cs, double factor, ncclDataType_t type, ncclRedOp_t *op)
{
    for (int i = 0; i < cs->n_scaled; i++)
        if (cs->scaled[i].type == type && memcmp(&cs->scaled[i].factor, &factor, sizeof factor) == 0) {
            *op = cs->scaled[i].op;
            return ncclSuccess;
        }
    uint64_t scalar = 0;
    make_scalar(factor, type, &scalar);
    ncclResult_t result = ncclb_lib.ncclRedOpCreatePreMulSum(op, &scalar, type, ncclScalarHostImmediate, cs->comm);
    if (result != ncclSuccess) return result;
    int at = cs->next_scaled++ % NCCLB_SCALED;
    if (cs->n_scaled == NCCLB_SCALED)
        ncclb_lib.ncclRedOpDestroy(cs->scaled[at].op, cs->comm);
    else
        cs->n_scaled++;
    cs->scaled[at].op = *op;
    cs->scaled[at].type = type;
    cs->scaled[at].factor = factor;
    return ncclSuccess;
}

/* ---- kinds of operation ---------------------------------------------------------------------------------------- */

/* Reduces once per rank, in one NCCL group, because blocks of a list differ in size. */
static ncclResult_t reduce_scatter_list(struct ncclb_comm_stream *cs, const tutti_op *op, struct form form,
                                        ncclRedOp_t reduce, CUstream stream)
{
    ncclResult_t first = ncclb_lib.ncclGroupStart();
    for (int r = 0; r < cs->size; r++) {
        if (op->in[r].numel == 0) continue;
        ncclResult_t result =
            ncclb_lib.ncclReduce(op->in[r].data, r == cs->rank ? op->out->data : NULL,
                                 (size_t)op->in[r].numel * form.parts, form.type, reduce, r, cs->comm, stream);
        if (result != ncclSuccess && result != ncclInProgress && first == ncclSuccess) first = result;
    }
    ncclResult_t result = ncclb_lib.ncclGroupEnd();
    return first != ncclSuccess ? first : result;
}

ncclResult_t ncclb_reduce(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream)
{
    struct form form = map_dtype(op->dtype);
    ncclRedOp_t reduce = map_op(op->reduce_op, op->dtype);
    if (op->reduce_op == TUTTI_PREMUL_SUM) {
        ncclResult_t result = premul_sum_op(cs, op->factor, form.type, &reduce);
        if (result != ncclSuccess) return result;
    }
    if (op->kind == TUTTI_ALL_REDUCE)
        return ncclb_lib.ncclAllReduce(op->in->data, op->out->data, (size_t)op->in->numel * form.parts, form.type,
                                       reduce, cs->comm, stream);
    if (op->kind == TUTTI_REDUCE)
        return ncclb_lib.ncclReduce(op->in->data, cs->rank == op->root ? op->out->data : NULL,
                                    (size_t)op->in->numel * form.parts, form.type, reduce, op->root, cs->comm, stream);
    if (op->list) return reduce_scatter_list(cs, op, form, reduce, stream);
    return ncclb_lib.ncclReduceScatter(op->in->data, op->out->data, (size_t)op->out->numel * form.parts, form.type,
                                       reduce, cs->comm, stream);
}
