#include "bench/options.h"

#include "common/cli.h"
#include "common/doc.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

enum id {
    BACKEND,
    OPS,
    SIZES,
    MS,
    DTYPE,
    REDUCE_OP,
    ASYNC,
    ALLOC,
    CSV,
    JSON,
    NAME,
    RANKS,
    EXPLAIN,
    REGRET,
    TUNE,
    PLOT,
    COMPARE,
    PROGRESS
};

#define OP_WORDS                                                                                                       \
    "all barrier broadcast all_reduce reduce all_gather reduce_scatter all_to_all gather scatter pingpong scan "       \
    "exscan all_reduce_in_place local_reduce"
#define NAME_OF_DTYPE(dtype, class, name) name " "
#define NAME_OF_REDUCE_OP(op, name, ...) name " "

static const struct cli_option table[] = {
    {"backend", "B", "tcp mpi nccl",
     "tcp, mpi, nccl, a map as tutti_init_process_group takes it, or a comma-separated list,\n"
     "whose backends are measured one after another (tcp)",
     0, BACKEND},
    {"ops", "A,B|all", OP_WORDS,
     "barrier broadcast all_reduce reduce all_gather reduce_scatter all_to_all\n"
     "gather scatter pingpong (all); not in all: scan, exscan,\n"
     "all_reduce_in_place, and local_reduce, out = out op in",
     0, OPS},
    {"sizes", "X,Y", NULL, "sizes in bytes, for example 4, 64K, 1M or 2G (4,64,1K,8K,64K,512K,4M,32M)", 0, SIZES},
    {"ms", "M", NULL, "approximate time to measure each case, in ms (40)", 0, MS},
    {"dtype", "D", TUTTI_DTYPES(NAME_OF_DTYPE), "name of a dtype (float32)", 0, DTYPE},
    {"reduce-op", "R", TUTTI_REDUCE_OPS(NAME_OF_REDUCE_OP), "name of a reduce op (SUM)", 0, REDUCE_OP},
    {"async", NULL, NULL, "start each operation with async_op, then wait for it", 0, ASYNC},
    {"alloc", "A", "system tutti", "allocate buffers from the system, or with tutti_alloc: system or tutti (system)", 0,
     ALLOC},
    {"csv", NULL, NULL, "print peer,op,ranks,bytes,us,us_mean,us_min,us_p95,iters,check", 0, CSV},
    {"json", NULL, NULL, "print a document in JSON: docs/json.md", 0, JSON},
    {"name", "N", NULL, "text of the first column of --csv (tutti)", 0, NAME},
    {"ranks", "N", NULL, "refuse to run with another number of ranks", 0, RANKS},
    {"explain", "OP X", OP_WORDS, "run OP of X bytes for a moment; print how it ran here, and why", 0, EXPLAIN},
    {"regret", NULL, NULL, "compare the automatic choice with each algorithm and path that could serve a case", 0,
     REGRET},
    {"tune", "FILE", CLI_FILE, "measure each operation's algorithms, and write the thresholds to FILE for TUTTI_TUNING",
     0, TUNE},
    {"plot", "FILE", CLI_FILE, "draw times and bandwidths with gnuplot, one line per backend: FILE.svg or FILE.png", 0,
     PLOT},
    {"compare", "A B", CLI_FILE, "compare two files that --json has written; with --plot draw both; measures nothing",
     0, COMPARE},
    {"progress", NULL, NULL, "say how far it is on stderr, also where that is no terminal", 0, PROGRESS},
    {0}};

static bool set(void *target, int id, const char *value);

static const struct cli cli = {.program = "tutti-bench",
                               .usage = "tutti-run -n RANKS tutti-bench [options]",
                               .summary = "Measures operations and checks their results.",
                               .options = table,
                               .set = set};

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

static void set_alloc(struct options *options, const char *text)
{
    options->from_tutti = !strcmp(text, "tutti");
    if (!options->from_tutti && strcmp(text, "system") != 0)
        options_refuse("--alloc takes system or tutti, not \"%s\"", text);
}

static bool set_flag(struct options *options, int id)
{
    bool *flags[] = {[ASYNC] = &options->async,
                     [CSV] = &options->csv,
                     [JSON] = &options->json,
                     [REGRET] = &options->regret,
                     [PROGRESS] = &options->progress};
    return *flags[id] = true;
}

static bool set(void *target, int id, const char *value)
{
    struct options *options = target;
    if (!value) return set_flag(options, id);
    const char **texts[] = {[NAME] = &options->name,
                            [TUNE] = &options->tune,
                            [PLOT] = &options->plot,
                            [EXPLAIN] = &options->explain_op,
                            [COMPARE] = &options->compare[0]};
    switch (id) {
    case BACKEND:
        set_backends(options, value);
        break;
    case OPS:
        options->ops_given = true;
        split(value, add_op, options);
        break;
    case SIZES:
        split(value, add_size, options);
        break;
    case MS:
        options->milliseconds = number("--ms", value, 0, 1e6);
        break;
    case RANKS:
        options->ranks = (int)number("--ranks", value, 1, 1e6);
        break;
    case DTYPE:
        set_dtype(options, value);
        break;
    case ALLOC:
        set_alloc(options, value);
        break;
    case REDUCE_OP:
        set_reduce_op(options, value);
        break;
    default:
        *texts[id] = value;
    }
    return true;
}

static int compare_sizes(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Takes the second values of --explain and --compare. */
static void take_arguments(struct options *options, int n, char **arguments)
{
    if (options->explain_op && n != 1) options_refuse("--explain takes an operation and a size; see --help");
    if (options->compare[0] && n != 1) options_refuse("--compare takes two files; see --help");
    if (options->explain_op && options->compare[0]) options_refuse("--compare measures nothing: omit --explain");
    if (!options->explain_op && !options->compare[0] && n > 0)
        options_refuse("unexpected argument \"%s\"; see --help", arguments[0]);
    if (options->compare[0]) options->compare[1] = arguments[0];
    if (options->explain_op) set_explain(options, options->explain_op, arguments[0]);
}

static void check(const struct options *options)
{
    bool other = options->explain || options->tune || options->regret || options->compare[0];
    if (options->json && (options->csv || other))
        options_refuse("--json is for measured cases; omit --csv, --compare, --explain, --tune and --regret");
    if ((options->json || options->compare[0]) &&
        !doc_is_possible("tutti-bench", options->json ? "--json" : "--compare"))
        exit(2);
}

void options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){
        .backend = {"tcp"}, .backends = 1, .name = "tutti", .milliseconds = 40, .reduce_op_name = "SUM"};
    options->dtype = dtype_find("float32");
    int first = 0, status = cli_parse(&cli, argc, argv, options, &first);
    if (status != CLI_GO_ON) exit(status);
    take_arguments(options, argc - first, argv + first);
    check(options);
    if (!options->ops_given) add_op(options, "all");
    if (!options->sizes) split("4,64,1K,8K,64K,512K,4M,32M", add_size, options);
    if (options->tune || options->plot) /* thresholds and curves need increasing sizes */
        qsort(options->size, (size_t)options->sizes, sizeof *options->size, compare_sizes);
}
