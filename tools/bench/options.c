#include "bench/options.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

static const char help[] =
    "usage: tutti-run -n RANKS tutti-bench [options]\n"
    "Measures operations and checks their results.\n\n"
    "  --backend B      tcp, mpi, nccl, a map as tutti_init_process_group takes it, or a comma-separated list,\n"
    "                   whose backends are measured one after another (tcp)\n"
    "  --ops A,B|all    barrier broadcast all_reduce reduce all_gather reduce_scatter all_to_all\n"
    "                   gather scatter pingpong (all); not in all: scan, exscan,\n"
    "                   all_reduce_in_place, and local_reduce, out = out op in\n"
    "  --sizes X,Y      sizes in bytes, for example 4, 64K, 1M or 2G (4,64,1K,8K,64K,512K,4M,32M)\n"
    "  --ms M           approximate time to measure each case, in ms (40)\n"
    "  --dtype D        name of a dtype (float32)\n"
    "  --reduce-op R    name of a reduce op (SUM)\n"
    "  --async          start each operation with async_op, then wait for it\n"
    "  --alloc A        allocate buffers from the system, or with tutti_alloc: system or tutti (system)\n"
    "  --csv            print peer,op,ranks,bytes,us,us_mean,us_min,us_p95,iters,check\n"
    "  --name N         text of the first column of --csv (tutti)\n"
    "  --ranks N        refuse to run with another number of ranks\n"
    "  --explain OP X   run OP of X bytes for a moment; print how it ran here, and why\n"
    "  --regret         compare the automatic choice with each algorithm and path that could serve a case\n"
    "  --tune FILE      measure each operation's algorithms, and write the thresholds to FILE for TUTTI_TUNING\n"
    "  --plot FILE.svg  draw the times with gnuplot (or FILE.png), one line per backend\n";

void options_refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("tutti-bench: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(2);
}

/* Calls `each` with each part of a comma-separated list. */
static void split(const char *list, void (*each)(struct options *options, const char *part), struct options *options)
{
    char *copy = strdup(list), *rest = NULL;
    if (!copy) options_refuse("no memory to copy \"%s\"", list);
    for (char *part = strtok_r(copy, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) each(options, part);
    free(copy);
}

static void add_op(struct options *options, const char *part)
{
    bool all = !strcmp(part, "all"), known = all;
    for (int i = 0; bench_ops[i].name; i++) {
        if (all ? bench_ops[i].by_name : strcmp(part, bench_ops[i].name) != 0) continue;
        options->op[i] = known = true;
    }
    if (!known) options_refuse("--ops: there is no operation \"%s\"; see --help", part);
}

static int64_t read_size(const char *option, const char *part)
{
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    long long size = strtoll(part, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    bool number = end != part && *part != '-' && end[unit != NULL] == '\0';
    if (!number || errno || size > (1LL << 50) >> shift)
        options_refuse("%s: \"%s\" is not a size; write bytes, such as 4, 64K, 1M or 2G", option, part);
    return (int64_t)size << shift;
}

static void add_size(struct options *options, const char *part)
{
    if (options->sizes == SIZES_MAX) options_refuse("--sizes: the list has more than %d sizes", SIZES_MAX);
    options->size[options->sizes++] = read_size("--sizes", part);
}

static void add_backend(struct options *options, const char *part)
{
    if (options->backends == BACKENDS_MAX) options_refuse("--backend: the list has more than %d names", BACKENDS_MAX);
    options->backend[options->backends++] = part;
}

/* Sets the backends from comma-separated names.  A map, which has colons, is one name. */
static void set_backends(struct options *options, const char *text)
{
    options->backends = 0;
    if (strchr(text, ':') != NULL) {
        add_backend(options, text);
        return;
    }
    char *copy = strdup(text), *rest = NULL; /* never freed */
    if (!copy) options_refuse("no memory to copy \"%s\"", text);
    for (char *part = strtok_r(copy, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) add_backend(options, part);
    if (options->backends == 0) options_refuse("--backend: \"%s\" contains no name", text);
}

static void set_explain(struct options *options, const char *op, const char *size)
{
    for (int i = 0; bench_ops[i].name && !options->explain; i++)
        if (!strcmp(bench_ops[i].name, op) && bench_ops[i].kind >= 0) options->explain = &bench_ops[i];
    if (!options->explain) options_refuse("--explain: there is no operation \"%s\"; see --help", op);
    options->explain_bytes = read_size("--explain", size);
}

static double number(const char *name, const char *text, double low, double high)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high))
        options_refuse("%s: \"%s\" is not a number from %g to %g", name, text, low, high);
    return value;
}

static void set_reduce_op(struct options *options, const char *text)
{
    static const char known[] =
#define NAME(op, name, ...) " " name
        TUTTI_REDUCE_OPS(NAME);
#undef NAME
    for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++) {
        const char *name = tutti_reduce_op_name((tutti_reduce_op)op);
        if (strcasecmp(text, name) != 0) continue;
        options->reduce_op = (tutti_reduce_op)op;
        options->reduce_op_name = name;
        return;
    }
    options_refuse("--reduce-op: there is no \"%s\"; there are%s", text, known);
}

static void set_dtype(struct options *options, const char *text)
{
    options->dtype = dtype_find(text);
    if (!options->dtype) options_refuse("--dtype: there is no \"%s\"; there are%s", text, dtype_names());
}

/* Sets an option that takes no value.  Returns false if there is none with this name. */
static bool set_flag(struct options *options, const char *name)
{
    if (!strcmp(name, "--async")) return options->async = true;
    if (!strcmp(name, "--csv")) return options->csv = true;
    if (!strcmp(name, "--regret")) return options->regret = true;
    return false;
}

static void set_alloc(struct options *options, const char *text)
{
    options->from_tutti = !strcmp(text, "tutti");
    if (!options->from_tutti && strcmp(text, "system") != 0)
        options_refuse("--alloc takes system or tutti, not \"%s\"", text);
}

/* Sets an option that takes a value.  Returns false if there is none with this name. */
static bool set_value(struct options *options, const char *name, const char *value)
{
    if (!strcmp(name, "--backend"))
        set_backends(options, value);
    else if (!strcmp(name, "--name"))
        options->name = value;
    else if (!strcmp(name, "--ops"))
        split(value, add_op, options);
    else if (!strcmp(name, "--sizes"))
        split(value, add_size, options);
    else if (!strcmp(name, "--ms"))
        options->milliseconds = number(name, value, 0, 1e6);
    else if (!strcmp(name, "--tune"))
        options->tune = value;
    else if (!strcmp(name, "--plot"))
        options->plot = value;
    else if (!strcmp(name, "--ranks"))
        options->ranks = (int)number(name, value, 1, 1e6);
    else if (!strcmp(name, "--dtype"))
        set_dtype(options, value);
    else if (!strcmp(name, "--alloc"))
        set_alloc(options, value);
    else if (!strcmp(name, "--reduce-op"))
        set_reduce_op(options, value);
    else
        return false;
    return true;
}

static int compare_sizes(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){
        .backend = {"tcp"}, .backends = 1, .name = "tutti", .milliseconds = 40, .reduce_op_name = "SUM"};
    options->dtype = dtype_find("float32");
    bool ops = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            fputs(help, stdout);
            exit(0);
        }
        ops |= !strcmp(argv[i], "--ops");
        if (set_flag(options, argv[i])) continue;
        if (!strcmp(argv[i], "--explain") && i + 2 < argc) {
            set_explain(options, argv[i + 1], argv[i + 2]);
            i += 2;
            continue;
        }
        if (i + 1 == argc) options_refuse("\"%s\" is not an option, or lacks its value; see --help", argv[i]);
        if (!set_value(options, argv[i], argv[i + 1])) options_refuse("unknown option \"%s\"; see --help", argv[i]);
        i++;
    }
    if (!ops) add_op(options, "all");
    if (!options->sizes) split("4,64,1K,8K,64K,512K,4M,32M", add_size, options);
    if (options->tune || options->plot) /* thresholds and curves need increasing sizes */
        qsort(options->size, (size_t)options->sizes, sizeof *options->size, compare_sizes);
}
