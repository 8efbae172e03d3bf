#include "user_op_cases.h"

#include <stdlib.h>
#include <string.h>

#include "expect.h"

enum { COUNTS = 4 };
static const int64_t counts[COUNTS] = {0, 1, 300, 5000}; /* elements of a rank's part */

struct pair {
    double value;
    int64_t index;
};

/* Integers wrap, so every product is exact. */
struct matrix {
    uint64_t m[4];
};

static void keep_least(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    struct pair *a = inout;
    const struct pair *b = in;
    (void)dtype, (void)argument;
    for (int64_t i = 0; i < n; i++)
        if (b[i].value < a[i].value || (b[i].value <= a[i].value && b[i].index < a[i].index)) a[i] = b[i];
}

static void multiply(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    struct matrix *right = inout;
    const struct matrix *left = in;
    if (dtype != TUTTI_UINT8 || strcmp(argument, "argument") != 0) abort();
    for (int64_t i = 0; i < n; i++) {
        const uint64_t *a = left[i].m, *b = right[i].m;
        right[i] = (struct matrix){{a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                                    a[2] * b[1] + a[3] * b[3]}};
    }
}

/* Composes x -> (x >> 16) + (x & 0xffff) * .., as 16-bit affine maps in an int32: without elements of its own. */
static void compose(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    uint32_t *right = inout;
    const uint32_t *left = in;
    (void)argument;
    if (dtype != TUTTI_INT32) abort();
    for (int64_t i = 0; i < n; i++) {
        uint32_t factor = (left[i] >> 16) * (right[i] >> 16), sum = (left[i] >> 16) * (right[i] & 0xffff) + left[i];
        right[i] = factor << 16 | (sum & 0xffff);
    }
}

static void fill_pair(void *to, int rank, int64_t i)
{
    *(struct pair *)to = (struct pair){.value = (double)((rank * 7 + i * 3) % 5), .index = rank};
}

static void fill_matrix(void *to, int rank, int64_t i)
{
    uint64_t r = (uint64_t)rank, k = (uint64_t)i;
    *(struct matrix *)to = (struct matrix){{r + 2, k + 1, 3 * r + 1, k % 7 + r}};
}

static void fill_map(void *to, int rank, int64_t i)
{
    *(uint32_t *)to = (uint32_t)(2 * rank + 3) << 16 | (uint32_t)((i + 5 * rank) & 0xffff);
}

struct case_op {
    const char *name;
    tutti_op_fn fn;
    void (*fill)(void *to, int rank, int64_t i);
    int64_t bytes;
    tutti_dtype dtype;
    tutti_op_opts opts;
};

static const struct case_op ops[] = {
    {"least pair", keep_least, fill_pair, 16, TUTTI_UINT8, {.element_bytes = 16, .commutative = true}},
    {"matrix product", multiply, fill_matrix, 32, TUTTI_UINT8, {.element_bytes = 32}},
    {"affine maps", compose, fill_map, 4, TUTTI_INT32, {.element_bytes = 0}},
};

struct forms {
    tutti_group *group;
    const struct case_op *op;
    tutti_reduce_op reduce_op;
    int rank, size;
    int64_t count; /* elements of a rank's part */
    char *in, *out;
};

static tutti_tensor tensor_at(const struct forms *f, char *base, int64_t first, int64_t n)
{
    int64_t width = tutti_dtype_bytes(f->op->dtype);
    return tutti_tensor_of(base + first * f->op->bytes, n * f->op->bytes / width, f->op->dtype);
}

static void fill(const struct forms *f, char *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) f->op->fill(to + i * f->op->bytes, f->rank, i);
}

/* True if n elements at x are those from `first` on, combined over the ranks from 0 to `ranks` - 1 in this order. */
static bool holds(const struct forms *f, const char *x, int64_t first, int64_t n, int ranks)
{
    char sum[32], next[32], argument[] = "argument";
    for (int64_t i = 0; i < n; i++) {
        f->op->fill(sum, 0, first + i);
        for (int r = 1; r < ranks; r++) {
            f->op->fill(next, r, first + i);
            f->op->fn(next, sum, 1, f->op->dtype, argument);
            memcpy(sum, next, sizeof sum);
        }
        if (memcmp(x + i * f->op->bytes, sum, (size_t)f->op->bytes) != 0) return false;
    }
    return true;
}

static int all_reduces(const struct forms *f)
{
    tutti_group *group = f->group;
    tutti_opts opts = {.group = group};
    fill(f, f->in, f->count);
    EXPECT(tutti_all_reduce_into(tensor_at(f, f->out, 0, f->count), tensor_at(f, f->in, 0, f->count), f->reduce_op,
                                 &opts) == TUTTI_OK);
    EXPECT(holds(f, f->out, 0, f->count, f->size));
    EXPECT(tutti_all_reduce(tensor_at(f, f->in, 0, f->count), f->reduce_op, &opts) == TUTTI_OK);
    EXPECT(holds(f, f->in, 0, f->count, f->size));
    return 0;
}

static int reduces(const struct forms *f)
{
    tutti_group *group = f->group;
    for (int root = 0; root<f->size; root += f->size> 2 ? f->size - 2 : 1) {
        tutti_opts opts = {.group = group, .group_rank = true};
        fill(f, f->in, f->count);
        EXPECT(tutti_reduce_into(tensor_at(f, f->out, 0, f->count), tensor_at(f, f->in, 0, f->count), root,
                                 f->reduce_op, &opts) == TUTTI_OK);
        if (f->rank == root) EXPECT(holds(f, f->out, 0, f->count, f->size));
        EXPECT(tutti_reduce(tensor_at(f, f->in, 0, f->count), root, f->reduce_op, &opts) == TUTTI_OK);
        if (f->rank == root) EXPECT(holds(f, f->in, 0, f->count, f->size));
    }
    return 0;
}

static int scans(const struct forms *f)
{
    tutti_group *group = f->group;
    tutti_opts opts = {.group = group};
    tutti_tensor in = tensor_at(f, f->in, 0, f->count), out = tensor_at(f, f->out, 0, f->count);
    fill(f, f->in, f->count);
    EXPECT(tutti_scan_into(out, in, f->reduce_op, &opts) == TUTTI_OK);
    EXPECT(holds(f, f->out, 0, f->count, f->rank + 1));
    EXPECT(tutti_exscan_into(out, in, f->reduce_op, &opts) == TUTTI_OK);
    if (f->rank > 0) EXPECT(holds(f, f->out, 0, f->count, f->rank));
    EXPECT(tutti_exscan(in, f->reduce_op, &opts) == TUTTI_OK);
    if (f->rank > 0) EXPECT(holds(f, f->in, 0, f->count, f->rank));
    fill(f, f->in, f->count);
    EXPECT(tutti_scan(in, f->reduce_op, &opts) == TUTTI_OK);
    EXPECT(holds(f, f->in, 0, f->count, f->rank + 1));
    return 0;
}

/* Even parts of one tensor, then parts of differing sizes as a list. */
static int reduce_scatters(const struct forms *f)
{
    tutti_group *group = f->group;
    tutti_opts opts = {.group = group};
    tutti_tensor list[64];
    int64_t at = 0, own = 0;
    fill(f, f->in, f->count * f->size);
    EXPECT(tutti_reduce_scatter_tensor(tensor_at(f, f->out, 0, f->count), tensor_at(f, f->in, 0, f->count * f->size),
                                       f->reduce_op, &opts) == TUTTI_OK);
    EXPECT(holds(f, f->out, f->rank * f->count, f->count, f->size));
    for (int r = 0; r < f->size; r++) {
        int64_t n = f->count * (r + 1) / f->size;
        list[r] = tensor_at(f, f->in, at, n);
        if (r < f->rank) own += n;
        at += n;
    }
    int64_t n = f->count * (f->rank + 1) / f->size;
    EXPECT(tutti_reduce_scatter(tensor_at(f, f->out, 0, n), list, f->size, f->reduce_op, &opts) == TUTTI_OK);
    EXPECT(holds(f, f->out, own, n, f->size));
    return 0;
}

/* The op is freed while the operations are pending. */
static int asynchronous(const struct forms *f)
{
    tutti_group *group = f->group;
    tutti_work *work[2] = {NULL, NULL};
    tutti_tensor in = tensor_at(f, f->in, 0, f->count), out = tensor_at(f, f->out, 0, f->count);
    char argument[] = "argument";
    tutti_reduce_op op;
    EXPECT(tutti_op_create(f->op->name, f->op->fn, argument, &f->op->opts, &op) == TUTTI_OK);
    fill(f, f->in, f->count);
    EXPECT(tutti_all_reduce_into(out, in, op, tutti_with(.group = group, .async_op = &work[0])) == TUTTI_OK);
    EXPECT(tutti_scan(in, op, tutti_with(.group = group, .async_op = &work[1])) == TUTTI_OK);
    EXPECT(tutti_op_free(op) == TUTTI_OK);
    EXPECT(tutti_op_free(op) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_scan(in, op, tutti_with(.group = group)) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_wait_all(work, 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(holds(f, f->out, 0, f->count, f->size));
    EXPECT(holds(f, f->in, 0, f->count, f->rank + 1));
    return 0;
}

static int coalesced(const struct forms *f)
{
    tutti_group *group = f->group;
    tutti_opts opts = {.group = group};
    int64_t n = f->count / 2;
    fill(f, f->in, f->count);
    EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
    EXPECT(tutti_all_reduce_into(tensor_at(f, f->out, 0, n), tensor_at(f, f->in, 0, n), f->reduce_op, &opts) ==
           TUTTI_OK);
    EXPECT(tutti_all_reduce_into(tensor_at(f, f->out, n, f->count - n), tensor_at(f, f->in, n, f->count - n),
                                 f->reduce_op, &opts) == TUTTI_OK);
    EXPECT(tutti_coalesce_end(group, NULL) == TUTTI_OK);
    EXPECT(holds(f, f->out, 0, f->count, f->size));
    return 0;
}

static int run_forms(struct forms *f)
{
    static int (*const forms[])(const struct forms *) = {all_reduces,     reduces,      scans,
                                                         reduce_scatters, asynchronous, coalesced};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        int line = forms[i](f);
        if (line != 0) fprintf(stderr, "%s, %lld elements: line %d\n", f->op->name, (long long)f->count, line);
        if (line != 0) return line;
    }
    return 0;
}

int user_op_cases(tutti_group *group)
{
    struct forms f = {.group = group, .rank = tutti_get_rank(group), .size = tutti_get_world_size(group)};
    size_t bytes = (size_t)(counts[COUNTS - 1] * f.size) * 32 + 1;
    char argument[] = "argument";
    f.in = malloc(bytes);
    f.out = malloc(bytes);
    int line = f.in != NULL && f.out != NULL ? 0 : __LINE__;
    for (size_t i = 0; i < sizeof ops / sizeof *ops && line == 0; i++) {
        f.op = &ops[i];
        EXPECT(tutti_op_create(f.op->name, f.op->fn, argument, &f.op->opts, &f.reduce_op) == TUTTI_OK);
        for (int k = 0; k < COUNTS && line == 0; k++) {
            f.count = counts[k];
            line = run_forms(&f);
        }
        EXPECT(tutti_op_free(f.reduce_op) == TUTTI_OK);
    }
    free(f.in);
    free(f.out);
    return line;
}

int user_op_minloc(tutti_reduce_op *op)
{
    return tutti_op_create("minloc", keep_least, NULL, &ops[0].opts, op);
}
