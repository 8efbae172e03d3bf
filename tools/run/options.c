#include "options.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "options_text.h"

enum { RDZV_PORT = 29400 /* torchrun's default */, SSH_TIMEOUT_MAX_MS = 1000000000 };

static bool set(void *target, int id, const char *value);

static const struct cli cli = {.program = "tutti-run",
                               .usage = "tutti-run [options] PROGRAM [arguments]",
                               .summary = "Starts PROGRAM once per rank, with the variables that "
                                          "tutti_init_process_group(\"env://\") reads.",
                               .options = options_table,
                               .end = "Options may have '_' for '-', and may be written --option=value or --option "
                                      "value.\n"
                                      "The exit status is 0 if all ranks succeed, else that of the first failed rank, "
                                      "or 128 + its signal.",
                               .runs_program = true,
                               .set = set,
                               .why_not = options_why_not};

#define refuse(...) cli_refuse(&cli, __VA_ARGS__)

static bool parse_int(const char *name, const char *text, int low, int high, int *value)
{
    long long number = 0;
    bool good = cli_int(&cli, name, text, low, high, &number);
    if (good) *value = (int)number;
    return good;
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
        return options->nproc_is_auto = true;
    }
    return parse_int(name, value, 1, 1 << 20, &options->nproc);
}

/* Takes N or, like torchrun, MIN:MAX. */
static bool set_nnodes(struct options *options, const char *name, const char *value)
{
    const char *colon = strchr(value, ':');
    char low[16];
    if (!colon) return parse_int(name, value, 1, 1 << 20, &options->nnodes) && (options->nnodes_min = options->nnodes);
    snprintf(low, sizeof low, "%.*s", (int)(colon - value < 15 ? colon - value : 15), value);
    if (!parse_int(name, low, 1, 1 << 20, &options->nnodes_min) ||
        !parse_int(name, colon + 1, 1, 1 << 20, &options->nnodes))
        return false;
    return options->nnodes_min <= options->nnodes ||
           refuse("--%s %s: the least number of nodes is larger than the most", name, value);
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

static bool set_hosts(struct options *options, const char *name, const char *value)
{
    const char *wrong = hosts_add(&options->hosts, value);
    return !wrong || refuse("--%s: %s", name, wrong);
}

static bool set_hostfile(struct options *options, const char *name, const char *value)
{
    const char *wrong = hosts_read(&options->hosts, value);
    return !wrong || refuse("--%s: %s", name, wrong);
}

static bool set_ssh_command(struct options *options, const char *name, const char *value)
{
    if (!*value) return refuse("--%s is empty; give it a value", name);
    options->ssh_command = value;
    return true;
}

static bool set_ssh_timeout(struct options *options, const char *name, const char *value)
{
    if (!parse_seconds(name, value, &options->ssh_timeout_ms)) return false;
    return options->ssh_timeout_ms <= SSH_TIMEOUT_MAX_MS ||
           refuse("--%s takes at most %d seconds, not %s", name, SSH_TIMEOUT_MAX_MS / 1000, value);
}

static bool set_export(struct options *options, const char *name, const char *value)
{
    const char *wrong = exports_add(&options->exports, value);
    return !wrong || refuse("--%s: %s", name, wrong);
}

static bool set_env_file(struct options *options, const char *name, const char *value)
{
    const char *wrong = exports_read(&options->exports, value);
    return !wrong || refuse("--%s: %s", name, wrong);
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

static bool set_rdzv_id(struct options *options, const char *name, const char *value)
{
    size_t length = strlen(value);
    if (length < 1 || length > 200 || strpbrk(value, " \t\n"))
        return refuse("--%s takes a name of 1 to 200 characters without blanks, not \"%s\"", name, value);
    options->rdzv_id = value;
    return true;
}

/* Takes HOST, HOST:PORT or [IPv6]:PORT. */
static bool set_rdzv_endpoint(struct options *options, const char *name, const char *value)
{
    bool bracket = *value == '[';
    const char *end = bracket ? strchr(value, ']') : strchr(value, ':');
    if (!bracket && end && strchr(end + 1, ':')) end = NULL; /* an IPv6 address without a port */
    const char *port = end ? end + bracket : NULL;
    size_t length = end ? (size_t)(end - value) - bracket : strlen(value) - bracket;
    if (length == 0 || (bracket && !end) || (port && *port && *port != ':'))
        return refuse("--%s takes HOST:PORT, not \"%s\"", name, value);
    if (length >= sizeof options->rdzv_name) return refuse("--%s: the host's name is too long", name);
    memcpy(options->rdzv_name, value + bracket, length);
    options->rdzv_name[length] = '\0';
    options->rdzv_host = options->rdzv_name;
    options->elastic = true;
    return !port || !*port || parse_int(name, port + 1, 0, 65535, &options->rdzv_port);
}

/* Takes KEY=SECONDS,.. with two of torchrun's keys. */
static bool set_rdzv_conf(struct options *options, const char *name, const char *value)
{
    while (*value) {
        char word[32];
        size_t length = strcspn(value, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), value);
        char *seconds = strchr(word, '=');
        if (seconds) *seconds++ = '\0';
        int64_t *ms = strcmp(word, "join_timeout") == 0        ? &options->join_timeout_ms
                      : strcmp(word, "last_call_timeout") == 0 ? &options->last_call_ms
                                                               : NULL;
        if (!ms || !seconds)
            return refuse("--%s takes join_timeout=SECONDS and last_call_timeout=SECONDS, not \"%s\"", name, value);
        if (!parse_seconds(name, seconds, ms)) return false;
        value += length + (value[length] == ',');
    }
    return true;
}

static bool set_on_failure(struct options *options, const char *name, const char *value)
{
    static const char *const names[] = {
        [OPTIONS_END] = "end", [OPTIONS_RESTART] = "restart", [OPTIONS_CONTINUE] = "continue"};
    for (int i = OPTIONS_END; i <= OPTIONS_CONTINUE; i++) {
        if (strcmp(value, names[i]) != 0) continue;
        options->on_failure = (enum options_on_failure)i;
        return true;
    }
    return refuse("--%s takes end, restart or continue, not \"%s\"", name, value);
}

static bool set_max_restarts(struct options *options, const char *name, const char *value)
{
    return parse_int(name, value, 0, 1 << 20, &options->max_restarts);
}

static bool set_replace(struct options *options, const char *name, const char *value)
{
    return parse_int(name, value, 0, 1 << 20, &options->replace);
}

static bool set_backoff(struct options *options, const char *name, const char *value)
{
    return parse_seconds(name, value, &options->backoff_ms);
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

/* Sets the mode of a node that another tutti-run has started over ssh. */
static bool set_node(struct options *options, const char *name, const char *value)
{
    (void)name, (void)value;
    return options->is_node = true;
}

/* By enum options_id. */
static bool (*const setters[OPTIONS])(struct options *options, const char *name, const char *value) = {
    [OPTION_NPROC] = set_nproc,
    [OPTION_NNODES] = set_nnodes,
    [OPTION_NODE_RANK] = set_node_rank,
    [OPTION_MASTER_ADDR] = set_master_addr,
    [OPTION_MASTER_PORT] = set_master_port,
    [OPTION_HOSTS] = set_hosts,
    [OPTION_HOSTFILE] = set_hostfile,
    [OPTION_SSH_COMMAND] = set_ssh_command,
    [OPTION_SSH_TIMEOUT] = set_ssh_timeout,
    [OPTION_EXPORT] = set_export,
    [OPTION_ENV_FILE] = set_env_file,
    [OPTION_TOKEN_FILE] = set_token_file,
    [OPTION_LOG_DIR] = set_log_dir,
    [OPTION_NO_PREFIX] = set_no_prefix,
    [OPTION_GRACE] = set_grace,
    [OPTION_TIMEOUT] = set_timeout,
    [OPTION_RDZV_ENDPOINT] = set_rdzv_endpoint,
    [OPTION_RDZV_ID] = set_rdzv_id,
    [OPTION_RDZV_CONF] = set_rdzv_conf,
    [OPTION_ON_FAILURE] = set_on_failure,
    [OPTION_MAX_RESTARTS] = set_max_restarts,
    [OPTION_REPLACE] = set_replace,
    [OPTION_BACKOFF] = set_backoff,
    [OPTION_MPI] = set_mpi,
    [OPTION_MPI_RANK] = set_mpi_rank,
    [OPTION_NODE] = set_node,
    [OPTION_BIND] = set_bind,
    [OPTION_STANDALONE] = set_standalone,
};

static bool set(void *target, int id, const char *value)
{
    return setters[id](target, options_table[id].name, value);
}

/* Checks the options about failures, and sets the ones that were not given. */
static bool check_failures(struct options *options)
{
    bool given = options->on_failure != OPTIONS_FAILURE_UNSET;
    if (options->max_restarts >= 0 && options->replace >= 0)
        return refuse("--max-restarts starts all ranks again and --replace only the failed one; give one of them");
    if (!given)
        options->on_failure = options->max_restarts >= 0              ? OPTIONS_RESTART
                              : options->replace >= 0                 ? OPTIONS_CONTINUE
                              : options->nnodes_min < options->nnodes ? OPTIONS_RESTART
                                                                      : OPTIONS_END;
    if (options->max_restarts >= 0 && options->on_failure != OPTIONS_RESTART)
        return refuse("--max-restarts needs --on-failure=restart");
    if (options->replace >= 0 && options->on_failure != OPTIONS_CONTINUE)
        return refuse("--replace needs --on-failure=continue");
    if (options->on_failure != OPTIONS_END && options->mpi != OPTIONS_NO_MPI)
        return refuse("--mpi goes with --on-failure=end only: MPI's launcher ends the job when a rank fails");
    if (options->max_restarts < 0) options->max_restarts = OPTIONS_MAX_RESTARTS;
    if (options->replace < 0) options->replace = 0;
    return true;
}

/* Checks the options of nodes that find each other. */
static bool check_elastic(const struct options *options)
{
    if (options->nnodes_min < options->nnodes && !options->elastic)
        return refuse("--nnodes %d:%d needs --rdzv-endpoint HOST:PORT, where the nodes meet", options->nnodes_min,
                      options->nnodes);
    if (!options->elastic) return true;
    if (options->node_rank >= 0) return refuse("--rdzv-endpoint numbers the nodes itself: omit --node-rank");
    if (options->master_addr || options->master_port)
        return refuse("--rdzv-endpoint says where the nodes meet: omit --master-addr and --master-port");
    if (!options->rdzv_port && options->nnodes > 1)
        return refuse("--rdzv-endpoint needs a port other than 0, the same on each node");
    return options->mpi == OPTIONS_NO_MPI || refuse("--mpi does without --rdzv-endpoint: MPI's launcher has the hosts");
}

/* Checks that MPI's launchers take the names of the hosts. */
static bool check_mpi_hosts(const struct hosts *hosts)
{
    for (int i = 0; i < hosts->n; i++)
        if (strpbrk(hosts->list[i].name, "@:"))
            return refuse("with --mpi a host is a name or an address of IPv4, not \"%s\"; set users in ~/.ssh/config",
                          hosts->list[i].name);
    return true;
}

/* Checks the options of jobs that are started over ssh, and sets the ranks of each host. */
static bool check_hosts(struct options *options)
{
    const struct hosts *hosts = &options->hosts;
    int64_t world = 0;
    if (!hosts->n) return true;
    if (options->nnodes > 1 || options->node_rank >= 0 || options->elastic)
        return refuse("--hosts starts all hosts of its list: omit --nnodes, --node-rank and --rdzv-endpoint; if hosts "
                      "come and go, start tutti-run --nnodes MIN:MAX --rdzv-endpoint HOST:PORT on each");
    for (int i = 0; i < hosts->n; i++) {
        if (!hosts->list[i].slots && options->nproc_is_auto)
            return refuse("-n auto is not known for other hosts; give host %s a number of ranks, as in %s:4",
                          hosts->list[i].name, hosts->list[i].name);
        if (!hosts->list[i].slots) hosts->list[i].slots = options->nproc;
        world += hosts->list[i].slots;
    }
    if (world > INT_MAX) return refuse("the hosts have more than %d ranks", INT_MAX);
    if (options->mpi != OPTIONS_NO_MPI) return check_mpi_hosts(hosts);
    if (hosts->n > 1 && !options->master_addr && hosts_is_loopback(&hosts->list[0]) &&
        !hosts_is_loopback(&hosts->list[1]))
        return refuse("the other hosts cannot reach the first one as %s; list it by a name that they know, or give "
                      "--master-addr",
                      hosts->list[0].name);
    return true;
}

/* Checks the options together. */
static bool check(struct options *options)
{
    if (options->is_node) return true; /* its configuration is to come */
    if (!options->program[0]) return refuse("no program to run; give one after the options");
    if ((int64_t)options->nproc * options->nnodes > INT_MAX)
        return refuse("--nproc-per-node %d times --nnodes %d is more than %d ranks", options->nproc, options->nnodes,
                      INT_MAX);
    if (options->mpi == OPTIONS_START_MPI && options->nnodes > 1 && !options->hosts.n)
        return refuse("--mpi starts the ranks of all nodes at once: omit --nnodes, and list the hosts with --hosts or "
                      "--hostfile");
    if (!check_failures(options) || !check_hosts(options) || !check_elastic(options)) return false;
    if (options->nnodes > 1 && !options->elastic) {
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
    if (options->hosts.n && options->mpi == OPTIONS_NO_MPI) return true;
    if (!options->master_addr) options->master_addr = "127.0.0.1";
    if (!options->elastic) options->rdzv_host = options->master_addr;
    if (!options->elastic) options->rdzv_port = options->master_port;
    return true;
}

int options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.nproc = 1,
                                .nnodes = 1,
                                .nnodes_min = 1,
                                .rdzv_port = RDZV_PORT,
                                .join_timeout_ms = 600000,
                                .last_call_ms = 3000,
                                .node_rank = -1,
                                .grace_ms = 5000,
                                .rdzv_id = "none",
                                .max_restarts = -1,
                                .replace = -1,
                                .backoff_ms = 500,
                                .ssh_timeout_ms = 30000};
    int first = 0, status = cli_parse(&cli, argc, argv, options, &first);
    options->program = argv + first;
    if (status != CLI_GO_ON) return status;
    return check(options) ? OPTIONS_GO_ON : CLI_USAGE;
}

void options_free(struct options *options)
{
    exports_free(&options->exports);
    hosts_free(&options->hosts);
}
