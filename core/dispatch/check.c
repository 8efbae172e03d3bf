#include "dispatch/check.h"

#include <inttypes.h>
#include <limits.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/user_op.h"
#include "op/op.h"
#include "state/group_state.h"

/* Returns INVALID_ARGUMENT with a message such as "all_reduce: tag is -1". */
#define REFUSE(format, ...)                                                                                            \
    error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s: " format, tutti_kind_find(op->kind)->name, ##__VA_ARGS__)

/* Writes "the out tensor" or "out[3]".  Called only for errors, because it takes longer than all checks together. */
static const char *tensor_name(const char *side, int at, char text[40])
{
    if (at >= 0)
        snprintf(text, 40, "%s[%d]", side, at);
    else
        snprintf(text, 40, "the %s tensor", side);
    return text;
}

/* Checks one tensor.  at: its index in a list, or -1. */
static int check_tensor(const struct tutti_group *group, const tutti_op *op, const char *side, int at,
                        const tutti_tensor *tensor)
{
    char text[40];
    int64_t bytes;
    if (!dtype_valid(tensor->dtype))
        return REFUSE("%s: dtype 0x%x does not exist; use one of tutti_dtype", tensor_name(side, at, text),
                      (unsigned)tensor->dtype);
    if (tensor->numel < 0)
        return REFUSE("%s: numel is %" PRId64 "; it must not be negative", tensor_name(side, at, text), tensor->numel);
    if (__builtin_mul_overflow(tensor->numel, (int64_t)tutti_dtype_bytes(tensor->dtype), &bytes))
        return REFUSE("%s: %" PRId64 " elements of %s are more than 2^63 bytes; pass fewer",
                      tensor_name(side, at, text), tensor->numel, dtype_name(tensor->dtype));
    if (tensor->data == NULL && tensor->numel > 0)
        return REFUSE("%s: data is NULL but numel is %" PRId64 "; pass memory for the elements",
                      tensor_name(side, at, text), tensor->numel);
    int device = group_device_index(tensor->device);
    if (device < 0)
        return REFUSE("%s: device type %d does not exist; TUTTI_CPU (1) and TUTTI_CUDA (2) do",
                      tensor_name(side, at, text), tensor->device.type);
    if (group->n_entries[device] == 0)
        return REFUSE("%s is a %s tensor, but group %s (%s) has no backend for that device; add one to its backends",
                      tensor_name(side, at, text), device == 0 ? "CPU" : "CUDA", group->name, group->backend_text);
    return TUTTI_OK;
}

static int check_side(const struct tutti_group *group, const tutti_op *op, const char *side,
                      const tutti_tensor *tensors, int n, bool list)
{
    if (n == 0) return TUTTI_OK;
    if (list && n != group->size)
        return REFUSE("the %s list has %d tensors and group %s has %d ranks; pass one tensor per rank", side, n,
                      group->name, group->size);
    if (tensors == NULL) return REFUSE("the %s list is NULL; pass one tensor per rank", side);
    for (int i = 0; i < n; i++) {
        int status = check_tensor(group, op, side, list ? i : -1, &tensors[i]);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

static int check_alike(const tutti_op *op, const tutti_tensor *first, const tutti_tensor *other)
{
    if (other->dtype != first->dtype)
        return REFUSE("the tensors differ in dtype: %s and %s; use one dtype", dtype_name(first->dtype),
                      dtype_name(other->dtype));
    if (other->device.type != first->device.type || other->device.index != first->device.index)
        return REFUSE("the tensors are on different devices (%d:%d and %d:%d); use one device", first->device.type,
                      first->device.index, other->device.type, other->device.index);
    return TUTTI_OK;
}

/* Checks that all tensors have one dtype and one device. */
static int check_all_alike(tutti_op *op)
{
    const tutti_tensor *first = op->n_in > 0 ? op->in : op->out;
    int status = TUTTI_OK;
    op->dtype = first->dtype;
    for (int i = 1; i < op->n_in && status == TUTTI_OK; i++) status = check_alike(op, first, &op->in[i]);
    for (int i = 0; i < op->n_out && status == TUTTI_OK; i++) status = check_alike(op, first, &op->out[i]);
    return status;
}

/* Checks that `whole` has one->numel elements per rank. */
static int check_parts(const struct tutti_group *group, const tutti_op *op, const char *whole_name,
                       const tutti_tensor *whole, int n, const char *one_name, const tutti_tensor *one)
{
    if (n == 0) return TUTTI_OK;
    if (op->list) {
        if (whole[group->rank].numel != one->numel)
            return REFUSE("%s[%d] has %" PRId64 " elements and the %s tensor of this rank has %" PRId64
                          "; both must have the same number",
                          whole_name, group->rank, whole[group->rank].numel, one_name, one->numel);
        return TUTTI_OK;
    }
    if (one->numel > INT64_MAX / group->size || whole->numel != one->numel * group->size)
        return REFUSE("the %s tensor has %" PRId64 " elements; it must have %d times the %s tensor's %" PRId64,
                      whole_name, whole->numel, group->size, one_name, one->numel);
    return TUTTI_OK;
}

static int check_splits(const struct tutti_group *group, const tutti_op *op, const char *side, const int64_t *splits,
                        int64_t numel)
{
    if (splits == NULL) {
        if (numel % group->size != 0)
            return REFUSE("the %s tensor's %" PRId64 " elements do not divide by %d ranks; give splits", side, numel,
                          group->size);
        return TUTTI_OK;
    }
    int64_t left = numel;
    for (int i = 0; i < group->size; i++) {
        if (splits[i] < 0) return REFUSE("%s_splits[%d] is %" PRId64 "; it must not be negative", side, i, splits[i]);
        if (splits[i] > left)
            return REFUSE("%s_splits add up to more than the tensor's %" PRId64 " elements; both must be equal", side,
                          numel);
        left -= splits[i];
    }
    if (left != 0)
        return REFUSE("%s_splits add up to %" PRId64 " and the tensor has %" PRId64 " elements; both must be equal",
                      side, numel - left, numel);
    return TUTTI_OK;
}

static int check_all_to_all(const struct tutti_group *group, const tutti_op *op)
{
    if (op->list) {
        if (op->in[group->rank].numel != op->out[group->rank].numel)
            return REFUSE("in[%d] has %" PRId64 " elements and out[%d] has %" PRId64
                          "; a rank's block for itself must have one size",
                          group->rank, op->in[group->rank].numel, group->rank, op->out[group->rank].numel);
        return TUTTI_OK;
    }
    if ((op->in_splits == NULL) != (op->out_splits == NULL))
        return REFUSE("give both in_splits and out_splits, or neither");
    int status = check_splits(group, op, "in", op->in_splits, op->in->numel);
    if (status == TUTTI_OK) status = check_splits(group, op, "out", op->out_splits, op->out->numel);
    if (status != TUTTI_OK) return status;
    if (op->in_splits != NULL && op->in_splits[group->rank] != op->out_splits[group->rank])
        return REFUSE("in_splits[%d] is %" PRId64 " and out_splits[%d] is %" PRId64
                      "; a rank's block for itself must have one size",
                      group->rank, op->in_splits[group->rank], group->rank, op->out_splits[group->rank]);
    if (op->in_splits == NULL && op->in->numel != op->out->numel)
        return REFUSE("in has %" PRId64 " elements and out has %" PRId64 "; both must have the same number",
                      op->in->numel, op->out->numel);
    return TUTTI_OK;
}

static int check_shape(const struct tutti_group *group, const tutti_op *op)
{
    bool in_blocks = tutti_kind_in_blocks(op->kind), out_blocks = tutti_kind_out_blocks(op->kind);
    if (in_blocks && out_blocks) return check_all_to_all(group, op);
    if (out_blocks) return check_parts(group, op, "out", op->out, op->n_out, "in", op->in);
    if (in_blocks) return check_parts(group, op, "in", op->in, op->n_in, "out", op->out);
    if (op->n_in > 0 && op->n_out > 0 && op->in->numel != op->out->numel)
        return REFUSE("in has %" PRId64 " elements and out has %" PRId64 "; both must have the same number",
                      op->in->numel, op->out->numel);
    return TUTTI_OK;
}

/* ---- overlap ----------------------------------------------------------------------------------------------- */

static bool same_splits(const struct tutti_group *group, const tutti_op *op)
{
    for (int i = 0; op->in_splits != NULL && i < group->size; i++)
        if (op->in_splits[i] != op->out_splits[i]) return false;
    return true;
}

static int refuse_overlap(const tutti_op *op, int i, int k)
{
    static const char *const allowed[2][2] = {
        {"they must be disjoint or the same", "in must be disjoint from out, or this rank's own block of it"},
        {"out must be disjoint from in, or this rank's own block of it",
         "all must be disjoint, or the same with blocks of the same sizes on both sides"},
    };
    char in[24] = "in", out[24] = "out";
    if (op->list && op->n_in > 1) snprintf(in, sizeof in, "in[%d]", i);
    if (op->list && op->n_out > 1) snprintf(out, sizeof out, "out[%d]", k);
    return REFUSE("%s and %s overlap; %s", in, out,
                  allowed[tutti_kind_in_blocks(op->kind)][tutti_kind_out_blocks(op->kind)]);
}

static int check_overlap(const struct tutti_group *group, const tutti_op *op)
{
    if (!op_overlap(op_span_of_all(op->in, op->n_in), op_span_of_all(op->out, op->n_out))) return TUTTI_OK;
    for (int i = 0; i < op->n_in; i++)
        for (int k = 0; k < op->n_out; k++)
            if (op_overlap(op_span_of(&op->in[i]), op_span_of(&op->out[k])) &&
                !(tutti_op_may_share(op, group->rank, i, k) && same_splits(group, op)))
                return refuse_overlap(op, i, k);
    return TUTTI_OK;
}

int check_root(const struct tutti_group *group, tutti_op *op, const tutti_opts *opts)
{
    bool message = op_is_message(op);
    const char *word = op->kind == TUTTI_SEND ? "dst" : message ? "src" : "root";
    if (message && op->kind != TUTTI_SEND && op->root == TUTTI_ANY_SOURCE) {
        if (group->size > 1) return TUTTI_OK;
        return REFUSE("src is any rank, but group %s has no other rank than this one", group->name);
    }
    int local =
        opts->group_rank ? (op->root >= 0 && op->root < group->size ? op->root : -1) : group_rank_of(group, op->root);
    if (local < 0)
        return REFUSE("%s is %d, which is not a %s of group %s (%d ranks); name a member", word, op->root,
                      opts->group_rank ? "rank" : "global rank", group->name, group->size);
    if (message && local == group->rank) return REFUSE("%s is %d, this rank itself; name another rank", word, op->root);
    op->root = local;
    return TUTTI_OK;
}

/* Checks one tensor of a reduction by an op of the program. */
static int check_user_tensor(const tutti_op *op, const struct user_op *user_op, const tutti_tensor *tensor)
{
    if (tensor->device.type != TUTTI_CPU)
        return error_set(TUTTI_ERR_UNSUPPORTED, "%s: op %s reduces CPU tensors only; copy the tensor to the host",
                         tutti_kind_find(op->kind)->name, user_op->name);
    if (user_op->element_bytes > 0 && tensor->dtype != TUTTI_UINT8)
        return REFUSE("op %s has elements of %" PRId64 " bytes and the tensor is %s; pass it as uint8", user_op->name,
                      user_op->element_bytes, dtype_name(tensor->dtype));
    if (tensor->numel % user_op_units(user_op) != 0)
        return REFUSE("the tensor has %" PRId64 " bytes; op %s needs whole elements of %" PRId64, tensor->numel,
                      user_op->name, user_op->element_bytes);
    return TUTTI_OK;
}

static int check_user_op(const tutti_op *op)
{
    struct user_op user_op;
    if (!user_op_find_usable(op->reduce_op, &user_op))
        return REFUSE("reduce op 0x%x does not exist, or has been freed; use the one that tutti_op_create returned",
                      (unsigned)op->reduce_op);
    int status = TUTTI_OK;
    for (int i = 0; i < op->n_in && status == TUTTI_OK; i++) status = check_user_tensor(op, &user_op, &op->in[i]);
    for (int i = 0; i < op->n_out && status == TUTTI_OK; i++) status = check_user_tensor(op, &user_op, &op->out[i]);
    return status;
}

static int check_reduce(const tutti_op *op)
{
    if (user_op_is(op->reduce_op)) return check_user_op(op);
    if ((unsigned)op->reduce_op >= TUTTI_REDUCE_OP_COUNT)
        return REFUSE("reduce op %d does not exist; use one of tutti_reduce_op", (int)op->reduce_op);
    if (op->reduce_op == TUTTI_PREMUL_SUM && op->factor == 0)
        return REFUSE("PREMUL_SUM needs a factor other than 0; set opts->factor");
    if (!dtype_reduces(op->dtype, op->reduce_op))
        return error_set(TUTTI_ERR_UNSUPPORTED, "%s: %s does not reduce %s; use another op or dtype",
                         tutti_kind_find(op->kind)->name, reduce_op_name(op->reduce_op), dtype_name(op->dtype));
    return TUTTI_OK;
}

/* Removes the side that this rank does not have.  Only root has a list. */
static int check_presence(const struct tutti_group *group, tutti_op *op)
{
    bool has_in = tutti_kind_has_in(op->kind, group->rank, op->root);
    bool has_out = tutti_kind_has_out(op->kind, group->rank, op->root);
    if (tutti_kind_has_blocks(op->kind) && tutti_kind_has_root(op->kind) && op->list) {
        bool out = tutti_kind_out_blocks(op->kind);
        int n = out ? op->n_out : op->n_in;
        const tutti_tensor *list = out ? op->out : op->in;
        const char *side = out ? "out" : "in";
        bool root = op->root == group->rank;
        if (!root && (n != 0 || list != NULL))
            return REFUSE("this rank passes an %s list, but only the root (rank %d) has one; pass NULL", side,
                          group->global_ranks[op->root]);
        if (root && (n == 0 || list == NULL))
            return REFUSE("root passes no %s list; it needs one of %d tensors", side, group->size);
    }
    if (!has_in) op->n_in = 0;
    if (!has_out) op->n_out = 0;
    return TUTTI_OK;
}

static int check_own(const struct tutti_group *group, tutti_op *op, const tutti_opts *opts)
{
    if (group->rank < 0) return REFUSE("this rank is not in group %s; only members may call this", group->name);
    if (opts->timeout_ms < 0 && opts->timeout_ms != TUTTI_NOW)
        return REFUSE("timeout_ms is %" PRId64 "; it must not be negative", opts->timeout_ms);
    if (tutti_kind_has_root(op->kind) || op_is_message(op)) {
        int status = check_root(group, op, opts);
        if (status != TUTTI_OK) return status;
    } else {
        op->root = -1;
    }
    bool any_tag = opts->tag == TUTTI_ANY_TAG && (op->kind == TUTTI_RECV || op->kind == TUTTI_PROBE);
    if (opts->tag < 0 && !any_tag) return REFUSE("tag is %d; it must not be negative", opts->tag);
    return TUTTI_OK;
}

static int check_tensors(const struct tutti_group *group, tutti_op *op)
{
    bool in_list = op->list && tutti_kind_in_blocks(op->kind), out_list = op->list && tutti_kind_out_blocks(op->kind);
    int status = check_side(group, op, "in", op->in, op->n_in, in_list);
    if (status == TUTTI_OK) status = check_side(group, op, "out", op->out, op->n_out, out_list);
    if (status == TUTTI_OK) status = check_all_alike(op);
    if (status == TUTTI_OK) status = check_shape(group, op);
    return status == TUTTI_OK ? check_overlap(group, op) : status;
}

/* True if the op has at most one tensor, or one that is both sides.  Such a tensor cannot disagree with another one. */
static bool has_one_tensor(const tutti_op *op)
{
    bool both = op->in == op->out && op->n_in == 1 && op->n_out == 1 && !tutti_kind_has_blocks(op->kind);
    return both || op->n_in + op->n_out <= 1;
}

int check_op(const struct tutti_group *group, tutti_op *op, const tutti_opts *opts)
{
    int status = check_own(group, op, opts);
    if (status == TUTTI_OK) status = check_presence(group, op);
    if (status != TUTTI_OK) return status;
    if (has_one_tensor(op)) {
        const tutti_tensor *one = op->n_in > 0 ? op->in : op->n_out > 0 ? op->out : NULL;
        op->dtype = one != NULL ? one->dtype : TUTTI_UINT8; /* a barrier has no tensor, but needs a dtype */
        if (one != NULL) status = check_tensor(group, op, one == op->in ? "in" : "out", -1, one);
    } else {
        status = check_tensors(group, op);
    }
    return status == TUTTI_OK && tutti_kind_reduces(op->kind) ? check_reduce(op) : status;
}
