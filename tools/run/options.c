#include "options.h"

#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

static const char usage[] =
    "usage: tutti-run [options] PROGRAM [arguments]\n"
    "\n"
    "Starts PROGRAM once per rank, with the variables that tutti_init_process_group(\"env://\") reads.\n"
    "\n"
    "  -n, --nproc-per-node N   ranks on this node; auto: one per usable core (default 1)\n"
    "      --nnodes N           number of nodes; start tutti-run once on each (default 1)\n"
    "      --node-rank R        number of this node, from 0\n"
    "      --master-addr A      address of node 0, as the others reach it (default 127.0.0.1)\n"
    "      --master-port P      port of the rendezvous; 0: any free one (default, on one node)\n"
    "      --token-file FILE    the job's secret, the same file on all nodes: 32 bytes or 64 hex digits, mode 0600\n"
    "      --log-dir DIR        write each rank's output to DIR/rank_R.out and DIR/rank_R.err\n"
    "      --no-prefix          leave the ranks' output unchanged, without \"[rank] \" before each line\n"
    "      --grace S            seconds between SIGTERM and SIGKILL at the end of the job (default 5)\n"
    "      --timeout S          end the job after this many seconds (exit status 124); 0: never (default)\n"
    "      --mpi[=NAME]         start the ranks through the launcher of an MPI (openmpi or mpich; default: the first\n"
    "                           that is installed), which backend mpi needs; one tutti-run for all nodes\n"
    "      --bind WHAT          bind each rank to a core or a socket, or to none (default): the library moves ranks\n"
    "                           that share a core; with --mpi, an option for its launcher\n"
    "      --standalone         one node, any free port: the default, accepted for torchrun's sake\n"
    "  -h, --help               this text\n"
    "      --version            the version\n"
    "\n"
    "Options may have '_' for '-', and may be written --option=value or --option value.\n"
    "The exit status is 0 if all ranks succeed, else that of the first failed rank, or 128 + its signal.\n";

struct option {
    const char *name;
    char letter;
    enum { WITHOUT, WITH, EITHER } value;
    bool (*set)(struct options *options, const char *name, const char *value);
};

static bool refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bool refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("tutti-run: ", stderr);
    vfprintf(stderr, format, args);
    fputs(" (tutti-run --help lists the options)\n", stderr);
    va_end(args);
    return false;
}

static bool parse_int(const char *name, const char *text, int low, int high, int *value)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end || number < low || number > high)
        return refuse("--%s takes a number from %d to %d, not \"%s\"", name, low, high, text);
    *value = (int)number;
    return true;
}

static bool parse_seconds(const char *name, const char *text, int64_t *ms)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds >= 0) || seconds > 1e9)
        return refuse("--%s takes a number of seconds, not \"%s\"", name, text);
    *ms = (int64_t)(seconds * 1000 + 0.5);
    return true;
}

static int usable_cores(void)
{
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

static bool set_nproc(struct options *options, const char *name, const char *value)
{
    if (strcmp(value, "auto") == 0 || strcmp(value, "cpu") == 0) {
        options->nproc = usable_cores();
        return true;
    }
    return parse_int(name, value, 1, 1 << 20, &options->nproc);
}

static bool set_nnodes(struct options *options, const char *name, const char *value)
{
    if (strchr(value, ':'))
        return refuse("--%s takes one number, not a range such as torchrun's \"%s\": a job's number of nodes is fixed",
                      name, value);
    return parse_int(name, value, 1, 1 << 20, &options->nnodes);
}

static bool set_node_rank(struct options *options, const char *name, const char *value)
{
    return parse_int(name, value, 0, 1 << 20, &options->node_rank);
}

static bool set_master_addr(struct options *options, const char *name, const char *value)
{
    if (!*value) return refuse("--%s is empty; give it a value", name);
    options->master_addr = value;
    return true;
}

static bool set_master_port(struct options *options, const char *name, const char *value)
{
    return parse_int(name, value, 0, 65535, &options->master_port);
}

static bool set_token_file(struct options *options, const char *name, const char *value)
{
    if (!*value) return refuse("--%s is empty; give it a value", name);
    options->token_file = value;
    return true;
}

static bool set_log_dir(struct options *options, const char *name, const char *value)
{
    if (!*value) return refuse("--%s is empty; give it a value", name);
    options->log_dir = value;
    return true;
}

static bool set_no_prefix(struct options *options, const char *name, const char *value)
{
    (void)name, (void)value;
    options->no_prefix = true;
    return true;
}

static bool set_grace(struct options *options, const char *name, const char *value)
{
    return parse_seconds(name, value, &options->grace_ms);
}

static bool set_timeout(struct options *options, const char *name, const char *value)
{
    return parse_seconds(name, value, &options->timeout_ms);
}

static bool set_mpi(struct options *options, const char *name, const char *value)
{
    if (value && strcmp(value, "openmpi") != 0 && strcmp(value, "mpich") != 0)
        return refuse("--%s takes openmpi or mpich, not \"%s\"", name, value);
    options->mpi = OPTIONS_START_MPI;
    options->mpi_name = value;
    return true;
}

static bool set_bind(struct options *options, const char *name, const char *value)
{
    options->bind = bind_of(value);
    return options->bind != BIND_UNSET || refuse("--%s takes none, core or socket, not \"%s\"", name, value);
}

/* Sets the mode of a rank that MPI's launcher starts: --mpi passes --mpi-rank to it. */
static bool set_mpi_rank(struct options *options, const char *name, const char *value)
{
    (void)name, (void)value;
    options->mpi = OPTIONS_MPI_RANK;
    return true;
}

static bool set_standalone(struct options *options, const char *name, const char *value)
{
    (void)options, (void)name, (void)value;
    return true;
}

static const struct option table[] = {
    {"nproc-per-node", 'n', WITH, set_nproc},
    {"nnodes", 0, WITH, set_nnodes},
    {"node-rank", 0, WITH, set_node_rank},
    {"master-addr", 0, WITH, set_master_addr},
    {"master-port", 0, WITH, set_master_port},
    {"token-file", 0, WITH, set_token_file},
    {"log-dir", 0, WITH, set_log_dir},
    {"no-prefix", 0, WITHOUT, set_no_prefix},
    {"grace", 0, WITH, set_grace},
    {"timeout", 0, WITH, set_timeout},
    {"mpi", 0, EITHER, set_mpi},
    {"mpi-rank", 0, WITHOUT, set_mpi_rank},
    {"bind", 0, WITH, set_bind},
    {"standalone", 0, WITHOUT, set_standalone},
};

/* True if text is `name` up to its '=' or end.  '_' counts as '-', as for torchrun. */
static bool same_name(const char *text, const char *name)
{
    for (; *name; text++, name++)
        if ((*text == '_' ? '-' : *text) != *name) return false;
    return *text == '\0' || *text == '=';
}

/* Returns why tutti-run lacks an option of torchrun, or NULL if torchrun has no such option. */
static const char *why_not(const char *argument)
{
    static const char own_rendezvous[] = "the rendezvous is Tutti's own: give --master-addr and --master-port";
    static const char fixed[] = "tutti-run ends a job when a rank fails, and never restarts it";
    static const char logs[] = "--log-dir DIR writes each rank's output to files of its own";
    static const char *const theirs[][2] = {
        {"rdzv-backend", own_rendezvous},
        {"rdzv-endpoint", own_rendezvous},
        {"rdzv-id", own_rendezvous},
        {"rdzv-conf", own_rendezvous},
        {"local-addr", own_rendezvous},
        {"use-agent-store", own_rendezvous},
        {"max-restarts", fixed},
        {"monitor-interval", fixed},
        {"redirects", logs},
        {"tee", logs},
        {"logs-specs", logs},
        {"local-ranks-filter", logs},
        {"no-python", "tutti-run starts any program as it is: omit the option"},
        {"run-path", "tutti-run starts any program as it is: omit the option"},
        {"module", "give `python -m MODULE` as the program"},
        {"start-method", "each rank is always a process of its own"},
        {"role", "all ranks have the same role"},
        {"shutdown-timeout", "use --grace SECONDS for this time"},
        {"virtual-local-rank", "LOCAL_RANK always differs by rank"},
        {"event-log-handler", "tutti-run reports events on stderr only"},
        {"numa-binding", "use --bind socket, or start the ranks under numactl"},
    };
    if (argument[1] != '-') {
        if (argument[1] == 'm') return "give `python -m MODULE` as the program";
        return argument[1] == 'r' || argument[1] == 't' ? logs : NULL;
    }
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        if (same_name(argument + 2, theirs[i][0])) return theirs[i][1];
    return NULL;
}

static const struct option *find(const char *argument)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct option *option = &table[i];
        if (argument[1] == '-' ? same_name(argument + 2, option->name)
                               : option->letter && argument[1] == option->letter)
            return option;
    }
    return NULL;
}

/* Returns the value in the argument itself (--name=value, -nVALUE), or NULL. */
static const char *value_within(const char *argument)
{
    if (argument[1] != '-') return argument[2] ? argument + 2 + (argument[2] == '=') : NULL;
    const char *equals = strchr(argument, '=');
    return equals ? equals + 1 : NULL;
}

/* Sets the option at argv[*at] and moves *at past it and its value. */
static bool take(struct options *options, char **argv, int *at)
{
    const char *argument = argv[(*at)++];
    const struct option *option = find(argument);
    if (!option && why_not(argument))
        return refuse("tutti-run does not have torchrun's %s: %s", argument, why_not(argument));
    if (!option) return refuse("unknown option %s", argument);
    const char *value = value_within(argument);
    if (value && option->value == WITHOUT) return refuse("--%s takes no value", option->name);
    if (option->value == WITH && !value) value = argv[*at] ? argv[(*at)++] : NULL;
    if (option->value == WITH && !value) return refuse("%s needs a value", argument);
    return option->set(options, option->name, value);
}

/* Checks the options together. */
static bool check(struct options *options)
{
    if (!options->program[0]) return refuse("no program to run; give one after the options");
    if ((int64_t)options->nproc * options->nnodes > INT_MAX)
        return refuse("--nproc-per-node %d times --nnodes %d is more than %d ranks", options->nproc, options->nnodes,
                      INT_MAX);
    if (options->mpi == OPTIONS_START_MPI && options->nnodes > 1)
        return refuse(
            "--mpi starts the ranks of all nodes at once, so omit --nnodes and name the hosts to MPI's launcher "
            "(Open MPI: OMPI_MCA_orte_default_hostfile, MPICH: HYDRA_HOST_FILE)");
    if (options->nnodes > 1) {
        if (options->node_rank < 0) return refuse("--nnodes %d needs --node-rank on each node", options->nnodes);
        if (!options->master_addr)
            return refuse("--nnodes %d needs --master-addr, the address of node 0", options->nnodes);
        if (!options->master_port)
            return refuse("--nnodes %d needs --master-port, the same on each node", options->nnodes);
    }
    if (options->node_rank < 0) options->node_rank = 0;
    if (options->node_rank >= options->nnodes)
        return refuse("--node-rank is %d, but with --nnodes %d it must be from 0 to %d", options->node_rank,
                      options->nnodes, options->nnodes - 1);
    if (!options->master_addr) options->master_addr = "127.0.0.1";
    return true;
}

int options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.nproc = 1, .nnodes = 1, .node_rank = -1, .grace_ms = 5000};
    int at = 1;
    while (at < argc && argv[at][0] == '-' && argv[at][1]) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) return fputs(usage, stdout) < 0;
        if (strcmp(argv[at], "--version") == 0) return printf("tutti-run %s\n", tutti_version()) < 0;
        if (!take(options, argv, &at)) return 2;
    }
    options->program = argv + at;
    return check(options) ? OPTIONS_GO_ON : 2;
}
