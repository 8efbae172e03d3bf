#include "info/support.h"

#include <string.h>
#include <tutti/tutti.h>

enum { ELEMENT_MAX = 16 };

static const tutti_dtype dtypes[] = {
#define DTYPE(name, ...) TUTTI_##name,
    TUTTI_DTYPES(DTYPE)
#undef DTYPE
};

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static char *memory; /* two parts, each with an element for each rank */
static bool failed;

/* True if the call was done, false if it is not supported. */
static bool is_done(int status, const char *what)
{
    if (status != TUTTI_OK && status != TUTTI_ERR_UNSUPPORTED) {
        fprintf(stderr, "tutti-info: %s: %s: %s\n", what, tutti_status_string(status), tutti_last_error());
        failed = true;
    }
    return status == TUTTI_OK;
}

/* Returns the i-th part as a tensor: an element, or one for each rank. */
static tutti_tensor part(int i, int64_t numel, tutti_dtype dtype)
{
    int64_t bytes = (int64_t)tutti_get_world_size(NULL) * ELEMENT_MAX;
    return tutti_on(tutti_tensor_of(memory + i * bytes, numel, dtype), tutti_get_device(NULL));
}

/* ---- operations with a dtype -------------------------------------------------------------------------------- */

static int try_message(tutti_tensor x, const tutti_opts *opts)
{
    int rank = tutti_get_rank(NULL);
    if (rank > 1) return TUTTI_OK;
    return rank == 1 ? tutti_send(x, 0, opts) : tutti_recv(x, 1, opts);
}

static int try_kind(tutti_kind kind, tutti_dtype dtype, tutti_reduce_op op)
{
    int64_t n = tutti_get_world_size(NULL);
    tutti_tensor one = part(0, 1, dtype), all = part(1, n, dtype);
    const tutti_opts *opts = tutti_with(.factor = op == TUTTI_PREMUL_SUM ? 2 : 0);
    switch (kind) {
    case TUTTI_BROADCAST:
        return tutti_broadcast(one, 0, opts);
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(one, op, opts);
    case TUTTI_REDUCE:
        return tutti_reduce(one, 0, op, opts);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather_into_tensor(all, one, opts);
    case TUTTI_GATHER:
        return tutti_gather_into_tensor(all, one, 0, opts);
    case TUTTI_SCATTER:
        return tutti_scatter_tensor(one, all, 0, opts);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter_tensor(one, all, op, opts);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all_single(part(0, n, dtype), all, NULL, NULL, opts);
    case TUTTI_SCAN:
        return tutti_scan(one, op, opts);
    case TUTTI_EXSCAN:
        return tutti_exscan(one, op, opts);
    default:
        return try_message(one, opts);
    }
}

/* What a kind supports: the reduce ops of each dtype as bits, or 1 for a kind that does not reduce. */
struct row {
    uint32_t ops[DTYPES];
};

static struct row find_row(tutti_kind kind)
{
    struct row row = {{0}};
    int n = tutti_kind_reduces(kind) ? TUTTI_REDUCE_OP_COUNT : 1;
    for (int d = 0; d < DTYPES; d++)
        for (int op = 0; op < n; op++)
            if (is_done(try_kind(kind, dtypes[d], (tutti_reduce_op)op), tutti_kind_name(kind))) row.ops[d] |= 1u << op;
    return row;
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static int column;

/* Prints a part of a line, on the next one if it does not fit. */
static void print_part(const char *text)
{
    enum { WIDTH = 96 };
    if (column + (int)strlen(text) + 2 > WIDTH) column = printf("\n ") - 1;
    column += printf("%s%s", column > 0 ? " " : "", text);
}

/* Prints a set of dtypes, as those in it or as those that are not. */
static void print_dtypes(uint32_t set)
{
    uint32_t every = (1u << DTYPES) - 1, listed = set;
    int left = __builtin_popcount(set);
    if (set == every || set == 0) {
        print_part(set == 0 ? "none" : "all");
        return;
    }
    if (left > 10) {
        print_part("all but");
        listed = every & ~set;
        left = DTYPES - left;
    }
    for (int d = 0; d < DTYPES; d++) {
        char text[40];
        if (!(listed & 1u << d)) continue;
        snprintf(text, sizeof text, "%s%s", tutti_dtype_name(dtypes[d]), --left > 0 ? "," : "");
        print_part(text);
    }
}

/* Returns the dtypes that a reduce op reduces, or with op 0 those that a kind moves. */
static uint32_t dtypes_of(const struct row *row, int op)
{
    uint32_t set = 0;
    for (int d = 0; d < DTYPES; d++)
        if (row->ops[d] & 1u << op) set |= 1u << d;
    return set;
}

/* Prints a line for the reduce ops with the same dtypes, named together. */
static void print_ops(const struct row *row)
{
    printf("\n");
    for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++) {
        bool is_first = true;
        uint32_t set = dtypes_of(row, op);
        for (int before = 0; before < op; before++) is_first &= dtypes_of(row, before) != set;
        if (!is_first) continue;
        column = printf("\n-") - 1;
        for (int same = op, last = op; same < TUTTI_REDUCE_OP_COUNT; same++) {
            char text[40];
            if (dtypes_of(row, same) != set) continue;
            for (last = same + 1; last < TUTTI_REDUCE_OP_COUNT && dtypes_of(row, last) != set;) last++;
            snprintf(text, sizeof text, "%s%s", tutti_reduce_op_name((tutti_reduce_op)same),
                     last < TUTTI_REDUCE_OP_COUNT ? "," : ":");
            print_part(text);
        }
        print_dtypes(set);
    }
}

static bool has_data(tutti_kind kind)
{
    const tutti_kind_row *row = tutti_kind_find(kind);
    return row->in != TUTTI_SIDE_NONE || row->out != TUTTI_SIDE_NONE;
}

/* Prints a paragraph for kinds that support the same, named together: those that reduce, or those that do not. */
static void print_kinds(const struct row *rows, bool reduces)
{
    uint32_t printed = 0;
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++) {
        const char *before = "\n";
        for (int same = kind; same < TUTTI_KIND_COUNT && !(printed & 1u << kind); same++) {
            if (!has_data((tutti_kind)same) || tutti_kind_reduces((tutti_kind)same) != reduces) continue;
            if (!has_data((tutti_kind)kind) || memcmp(&rows[same], &rows[kind], sizeof *rows) != 0) continue;
            printf("%s%s", before, tutti_kind_name((tutti_kind)same));
            before = ", ";
            if (same != kind) printed |= 1u << same;
        }
        if (before[0] == '\n') continue;
        printf(":");
        column = 60;
        if (reduces)
            print_ops(&rows[kind]);
        else
            print_dtypes(dtypes_of(&rows[kind], 0));
        printf("\n");
    }
}

/* ---- forms of messages ----------------------------------------------------------------------------------------- */

/* Rank 1 sends with a tag, and rank 0 receives in one of the forms.  Returns whether rank 0 supports it. */
static bool try_receive(const tutti_opts *opts, int src, const char *what)
{
    int rank = tutti_get_rank(NULL);
    tutti_tensor x = part(0, 1, TUTTI_FLOAT32);
    if (rank > 1) return true;
    if (rank == 1) return is_done(tutti_send(x, 0, NULL), what);
    bool done = is_done(tutti_recv(x, src, opts), what);
    if (!done) is_done(tutti_recv(x, 1, NULL), what); /* takes the message */
    return done;
}

static bool try_probe(void)
{
    tutti_tensor x = part(0, 1, TUTTI_FLOAT32);
    if (tutti_get_rank(NULL) != 0) return try_message(x, NULL) == TUTTI_OK;
    bool done = is_done(tutti_probe(1, NULL, NULL), "probe");
    is_done(tutti_recv(x, 1, NULL), "probe");
    return done;
}

static void add(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    (void)dtype, (void)argument;
    for (int64_t i = 0; i < n; i++) ((float *)inout)[i] += ((const float *)in)[i];
}

static bool try_user_op(void)
{
    tutti_reduce_op op;
    TUTTI_CHECK(tutti_op_create("support", add, NULL, NULL, &op));
    bool done = is_done(tutti_all_reduce(part(0, 1, TUTTI_FLOAT32), op, NULL), "tutti_op_create");
    TUTTI_CHECK(tutti_op_free(op));
    return done;
}

static bool try_barrier(void)
{
    return is_done(tutti_barrier(NULL), "barrier");
}

static bool try_monitored_barrier(void)
{
    return is_done(tutti_monitored_barrier(NULL), "monitored_barrier");
}

static bool try_tag(void)
{
    return is_done(try_message(part(0, 1, TUTTI_FLOAT32), tutti_with(.tag = 5)), "tag");
}

static bool try_any_source(void)
{
    return try_receive(NULL, TUTTI_ANY_SOURCE, "any source");
}

static bool try_any_tag(void)
{
    return try_receive(tutti_with(.tag = TUTTI_ANY_TAG), 1, "any tag");
}

static bool try_up_to(void)
{
    static int64_t received;
    return try_receive(tutti_with(.received = &received), 1, "up to a size");
}

static const struct form {
    const char *name;
    bool (*run)(void);
} forms[] = {{"barrier", try_barrier},
             {"monitored_barrier", try_monitored_barrier},
             {"messages with a tag", try_tag},
             {"receive from any source", try_any_source},
             {"receive of any tag", try_any_tag},
             {"receive of up to a size", try_up_to},
             {"probe", try_probe},
             {"reductions of the program's own", try_user_op}};

static void print_forms(bool speaks)
{
    if (speaks) printf("\n| form | |\n|---|---|\n");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        bool done = forms[i].run();
        if (speaks) printf("| %s | %s |\n", forms[i].name, done ? "yes" : "-");
    }
}

int print_support(void)
{
    static struct row rows[TUTTI_KIND_COUNT];
    int64_t bytes = 2 * (int64_t)tutti_get_world_size(NULL) * ELEMENT_MAX;
    TUTTI_CHECK(tutti_alloc(NULL, bytes, (void **)&memory));
    if (tutti_get_device(NULL).type == TUTTI_CPU) memset(memory, 0, (size_t)bytes);
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++)
        if (has_data((tutti_kind)kind)) rows[kind] = find_row((tutti_kind)kind);
    bool speaks = tutti_get_rank(NULL) == 0;
    if (speaks) {
        printf("## %s\n", tutti_get_backend(NULL));
        print_kinds(rows, true);
        print_kinds(rows, false);
    }
    print_forms(speaks);
    TUTTI_CHECK(tutti_barrier(NULL));
    TUTTI_CHECK(tutti_free(NULL, memory));
    return failed;
}
