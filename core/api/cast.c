/* Converts a tensor to another dtype in this process. */
#include "base/cast.h"

#include <inttypes.h>
#include <tutti/tutti.h>

#include "base/dtype.h"
#include "base/error.h"
#include "op/op.h"

static int check_tensor(const char *name, const tutti_tensor *tensor)
{
    if (!dtype_valid(tensor->dtype))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "cast: %s: dtype 0x%x does not exist; use one of tutti_dtype",
                         name, (unsigned)tensor->dtype);
    if (!cast_possible(tensor->dtype))
        return error_set(TUTTI_ERR_UNSUPPORTED, "cast: %s is %s; only floating dtypes are converted", name,
                         dtype_name(tensor->dtype));
    if (tensor->device.type != TUTTI_CPU)
        return error_set(TUTTI_ERR_UNSUPPORTED, "cast: %s has device type %d; only CPU tensors are supported", name,
                         tensor->device.type);
    if (tensor->numel < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "cast: %s: numel is %" PRId64 "; it must not be negative", name,
                         tensor->numel);
    if (tensor->numel > 0 && tensor->data == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "cast: %s: data is NULL but numel is %" PRId64, name,
                         tensor->numel);
    if (tensor->numel > INT64_MAX / tutti_dtype_bytes(tensor->dtype))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "cast: %s: %" PRId64 " elements exceed 2^63 bytes", name,
                         tensor->numel);
    return TUTTI_OK;
}

static int check_pair(const tutti_tensor *out, const tutti_tensor *in)
{
    if (out->numel != in->numel)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "cast: out has %" PRId64 " elements and in has %" PRId64 "; both must have the same number",
                         out->numel, in->numel);
    if (!op_overlap(op_span_of(out), op_span_of(in))) return TUTTI_OK;
    if (out->data == in->data && tutti_dtype_bytes(out->dtype) <= tutti_dtype_bytes(in->dtype)) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "cast: out (%s) and in (%s) overlap; they must be disjoint, or begin at the same address if out's "
                     "elements are not larger",
                     dtype_name(out->dtype), dtype_name(in->dtype));
}

int tutti_cast(tutti_tensor out, tutti_tensor in)
{
    int status = check_tensor("out", &out);
    if (status == TUTTI_OK) status = check_tensor("in", &in);
    if (status == TUTTI_OK) status = check_pair(&out, &in);
    if (status == TUTTI_OK && in.numel > 0) cast_elements(out.dtype, out.data, in.dtype, in.data, in.numel);
    return status;
}
