/* tutti-store-bench: measures how long a large job takes to join the tcp store, and the cost of one operation.
 *
 *   tutti-store-bench [--clients N] [--processes N] [--json]
 *
 * The parent runs the server.  Each process runs its share of the clients as threads.  Each client joins, sets a key,
 * gets its neighbour's key, and passes a barrier.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "common/cli.h"
#include "common/doc.h"
#include "common/output.h"

enum { PHASES = 3, OPS = 3, PROCESSES_MAX = 64, ROUND_TRIPS = 5000 };
static const char *const phase_names[PHASES] = {"join", "exchange", "barrier"};

static uint8_t token[TUTTI_TOKEN_BYTES] = "no secret is needed here";

/* ---- the command line ------------------------------------------------------------------------------------------ */

struct options {
    long long clients, processes;
    bool json, progress;
};

enum { CLIENTS, PROCESSES, JSON, PROGRESS };

static const struct cli_option table[] = {
    {"clients", "N", NULL, "clients that join at once (1000)", 'c', CLIENTS},
    {"processes", "N", NULL, "processes, of which the clients are threads (8, or as many as clients)", 'p', PROCESSES},
    {"json", NULL, NULL, "print a document in JSON: docs/json.md", 0, JSON},
    {"progress", NULL, NULL, "say how far it is on stderr, also where that is no terminal", 0, PROGRESS},
    {0}};

static bool set(void *target, int id, const char *value);

static const struct cli cli = {
    .program = "tutti-store-bench",
    .usage = "tutti-store-bench [options]",
    .summary = "Measures how long a large job takes to join the tcp store, and the cost of one operation.",
    .options = table,
    .set = set,
};

static bool set(void *target, int id, const char *value)
{
    struct options *options = target;
    if (id == CLIENTS) return cli_int(&cli, "clients", value, 1, 1 << 20, &options->clients);
    if (id == PROCESSES) return cli_int(&cli, "processes", value, 1, PROCESSES_MAX, &options->processes);
    *(id == JSON ? &options->json : &options->progress) = true;
    return true;
}

/* ---- the clients ------------------------------------------------------------------------------------------------ */

struct shared {
    pthread_barrier_t barrier;
    double end[PROCESSES_MAX][PHASES]; /* time at which each process's last client finished */
    int failed;
};

struct client {
    tutti_store *store;
    int id, clients;
    uint16_t port;
    int status;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *client_join(void *argument)
{
    struct client *client = argument;
    tutti_store_opts opts = {.token = token, .timeout_ms = 60000};
    client->status = tutti_store_tcp("127.0.0.1", client->port, &opts, &client->store);
    return NULL;
}

static void *client_exchange(void *argument)
{
    struct client *client = argument;
    char key[32], want[32], value[32] = "";
    size_t bytes;
    snprintf(key, sizeof key, "client/%d", client->id);
    client->status = tutti_store_set(client->store, key, key, strlen(key));
    snprintf(want, sizeof want, "client/%d", (client->id + 1) % client->clients);
    if (client->status == TUTTI_OK)
        client->status = tutti_store_get(client->store, want, value, sizeof value - 1, &bytes, 60000);
    if (client->status == TUTTI_OK && strcmp(value, want) != 0) client->status = TUTTI_ERR_MISMATCH;
    return NULL;
}

static void *client_barrier(void *argument)
{
    struct client *client = argument;
    client->status = tutti_store_barrier(client->store, "all", client->clients, 60000);
    return NULL;
}

/* Runs one phase on all clients of this process, each in its own thread. */
static int run_phase(struct client *clients, int n, void *(*run)(void *))
{
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    pthread_attr_t small;
    int status = threads == NULL ? TUTTI_ERR_NO_MEMORY : TUTTI_OK, started = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    while (status == TUTTI_OK && started < n) {
        if (pthread_create(&threads[started], &small, run, &clients[started]) == 0)
            started++;
        else
            status = TUTTI_ERR_SYSTEM;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        if (clients[i].status != TUTTI_OK) status = clients[i].status;
    }
    pthread_attr_destroy(&small);
    free(threads);
    return status;
}

static int process_main(struct shared *shared, int process, int processes, int n_clients, uint16_t port)
{
    static void *(*const phases[PHASES])(void *) = {client_join, client_exchange, client_barrier};
    int first = n_clients * process / processes, n = n_clients * (process + 1) / processes - first;
    struct client *clients = calloc((size_t)n, sizeof *clients);
    if (clients == NULL) return 1;
    for (int i = 0; i < n; i++) clients[i] = (struct client){.id = first + i, .clients = n_clients, .port = port};
    for (int phase = 0; phase < PHASES; phase++) {
        pthread_barrier_wait(&shared->barrier);
        int status = shared->failed ? TUTTI_OK : run_phase(clients, n, phases[phase]);
        shared->end[process][phase] = now();
        if (status != TUTTI_OK) {
            fprintf(stderr, "process %d: %s failed with status %d\n", process, phase_names[phase], status);
            shared->failed = 1;
        }
        pthread_barrier_wait(&shared->barrier);
    }
    for (int i = 0; i < n; i++) tutti_store_free(clients[i].store);
    free(clients);
    return shared->failed;
}

/* What is measured. */
struct figures {
    double phase_s[PHASES];
    double requests; /* of a client */
    double us[OPS];
};

static const char *const op_names[OPS] = {"set", "get", "add"};

static void measure_ops(tutti_store *store, struct figures *figures)
{
    char value[64] = {0};
    size_t bytes;
    for (int op = 0; op < OPS; op++) {
        double begun = now();
        for (int i = 0; i < ROUND_TRIPS; i++) {
            if (op == 0) tutti_store_set(store, "latency", value, sizeof value);
            if (op == 1) tutti_store_get(store, "latency", value, sizeof value, &bytes, 1000);
            if (op == 2) tutti_store_add(store, "counter", 1, NULL);
        }
        figures->us[op] = (now() - begun) / ROUND_TRIPS * 1e6;
    }
}

/* Returns 0, or 1 if a process failed. */
static int reap(int processes)
{
    int failed = 0;
    for (int i = 0; i < processes; i++) {
        int status = 1;
        wait(&status);
        failed |= status != 0;
    }
    return failed;
}

static int bench(struct shared *shared, tutti_store *store, const struct options *options, struct figures *figures)
{
    int processes = (int)options->processes;
    struct progress progress;
    progress_begin(&progress, PHASES + 1, options->progress);
    for (int phase = 0; phase < PHASES; phase++) {
        progress_step(&progress, phase_names[phase]);
        double begin = now(), last = 0;
        pthread_barrier_wait(&shared->barrier); /* start the phase */
        pthread_barrier_wait(&shared->barrier); /* wait until all have finished */
        for (int i = 0; i < processes; i++)
            if (shared->end[i][phase] > last) last = shared->end[i][phase];
        figures->phase_s[phase] = last - begin;
    }
    int64_t requests = 0;
    int failed = reap(processes);
    if (!failed && tutti_store_num_requests(store, &requests) == TUTTI_OK)
        figures->requests = (double)requests / (double)options->clients;
    progress_step(&progress, "one client's operations");
    if (!failed) measure_ops(store, figures);
    progress_clear(&progress);
    return failed;
}

static void print(const struct options *options, const struct figures *figures)
{
    printf("%lld clients in %lld processes, on %ld cores\n", options->clients, options->processes,
           sysconf(_SC_NPROCESSORS_ONLN));
    for (int i = 0; i < PHASES; i++) printf("%-8s %8.3f s\n", phase_names[i], figures->phase_s[i]);
    printf("requests %8.1f a client\n", figures->requests);
    for (int i = 0; i < OPS; i++) printf("%-8s %8.1f us\n", op_names[i], figures->us[i]);
}

static bool write_document(const struct options *options, const struct figures *figures)
{
    doc *document = doc_begin("tutti-store-bench");
    doc_int(document, "clients", options->clients);
    doc_int(document, "processes", options->processes);
    doc_int(document, "cores_online", sysconf(_SC_NPROCESSORS_ONLN));
    doc *phases = doc_set(document, "seconds", doc_object());
    for (int i = 0; i < PHASES; i++) doc_real(phases, phase_names[i], figures->phase_s[i]);
    doc_real(document, "requests_per_client", figures->requests);
    doc *ops = doc_set(document, "us", doc_object());
    for (int i = 0; i < OPS; i++) doc_real(ops, op_names[i], figures->us[i]);
    return doc_write(document, output_data());
}

/* Raises the limit of descriptors, because the server needs one for each client. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static struct shared *make_shared(int processes)
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    if (shared == MAP_FAILED) return NULL;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, (unsigned)processes + 1);
    return shared;
}

/* Fills the options.  Returns CLI_GO_ON or the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.clients = 1000, .processes = 0};
    int first = 0, status = cli_parse(&cli, argc, argv, options, &first);
    if (status != CLI_GO_ON) return status;
    for (int i = first; i < argc && i < first + 2; i++) /* as before there were options */
        if (!set(options, i == first ? CLIENTS : PROCESSES, argv[i])) return CLI_USAGE;
    if (options->processes == 0) options->processes = options->clients < 8 ? options->clients : 8;
    bool good = true;
    if (argc - first > 2)
        good = cli_refuse(&cli, "unexpected argument \"%s\"", argv[first + 2]);
    else if (options->clients < options->processes)
        good = cli_refuse(&cli, "there are fewer clients (%lld) than processes (%lld)", options->clients,
                          options->processes);
    if (good && options->json) good = doc_is_possible("tutti-store-bench", "--json");
    return good ? CLI_GO_ON : CLI_USAGE;
}

int main(int argc, char **argv)
{
    struct options options;
    struct figures figures = {0};
    int status = parse(argc, argv, &options);
    if (status != CLI_GO_ON) return status;
    int processes = (int)options.processes, clients = (int)options.clients;
    alarm(300); /* ends a run that hangs */
    raise_descriptors();
    struct shared *shared = make_shared(processes);
    tutti_store *store = NULL;
    tutti_store_opts opts = {.token = token, .server = true, .world_size = clients};
    if (shared == NULL || tutti_store_tcp("127.0.0.1", 0, &opts, &store) != TUTTI_OK) {
        fprintf(stderr, "tutti-store-bench: cannot start the store: %s\n",
                shared == NULL ? strerror(errno) : tutti_last_error());
        return 1;
    }
    for (int i = 0; i < processes; i++)
        if (fork() == 0) _exit(process_main(shared, i, processes, clients, tutti_store_port(store)));
    int failed = bench(shared, store, &options, &figures);
    tutti_store_free(store);
    if (failed) return failed;
    if (options.json) return !write_document(&options, &figures);
    print(&options, &figures);
    return 0;
}
