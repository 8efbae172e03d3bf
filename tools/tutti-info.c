/* tutti-info: prints what Tutti finds on this machine, and what it uses in a job.
 *
 *     tutti-info                                  the machine: version, cores, backends and what each has found
 *     tutti-run -n 4 tutti-info [--backend B]     also the world: each rank's host, what its backends use, and the
 *                                                 algorithms by size
 *     tutti-info --watch PID [--interval S] [--count N]
 *                                                 the counters of a running job: docs/tools.md
 *
 * Exit status: 0; 1 if the world could not be made, or there is no such job; 2 if the command line was refused.
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "info/watch.h"

enum { TEXT_MAX = 16 * 1024 };

/* Prints text with a prefix before each of its lines. */
static void print_lines(const char *lead, const char *text)
{
    while (*text != '\0') {
        int length = (int)strcspn(text, "\n");
        printf("%s%.*s\n", lead, length, text);
        text += length + (text[length] == '\n');
    }
}

/* ---- this machine ------------------------------------------------------------------------------------------- */

static int cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

static void print_machine(void)
{
    char name[256] = "?";
    gethostname(name, sizeof name - 1);
    printf("tutti %s\n", tutti_version());
    printf("host %s: %d cores in the affinity mask, %ld online\n", name, cores_allowed(),
           sysconf(_SC_NPROCESSORS_ONLN));
}

static int print_backend(const char *name)
{
    char text[TEXT_MAX] = "";
    int status = tutti_describe_backend(name, text, sizeof text);
    printf("backend %s: %s\n", name, status == TUTTI_OK ? "found" : "refused");
    print_lines("    ", status == TUTTI_OK ? text : tutti_last_error());
    fflush(stdout);
    return 0;
}

/* Describes a backend in a process of its own, because the libraries of two backends may conflict. */
static void print_backend_apart(const char *name)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) _exit(print_backend(name));
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (pid < 0 || status != 0)
        printf("backend %s: refused\n    the process that describes it ended with status %d\n", name, status);
}

static void print_backends(void)
{
    static const char *const usual[] = {"tcp", "mpi", "nccl"};
    char names[TEXT_MAX] = "", *rest = NULL;
    TUTTI_CHECK(tutti_list_backends(names, sizeof names));
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) print_backend_apart(usual[i]);
    for (char *name = strtok_r(names, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        bool known = false;
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) known |= strcmp(name, usual[i]) == 0;
        if (!known) print_backend_apart(name);
    }
}

/* ---- this world --------------------------------------------------------------------------------------------- */

/* Gathers the lines of every rank on rank 0, which prints them. */
static void print_ranks(void)
{
    char text[TEXT_MAX], host[256] = "?";
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    gethostname(host, sizeof host - 1);
    int used = snprintf(text, sizeof text, "rank %d: host %d (%s), process %d, %d cores\n", rank,
                        tutti_get_host(NULL, rank), host, (int)getpid(), cores_allowed());
    TUTTI_CHECK(tutti_describe_group(NULL, text + used, sizeof text - (size_t)used));
    tutti_bytes *all = calloc((size_t)world, sizeof *all);
    if (all == NULL) abort();
    TUTTI_CHECK(tutti_all_gather_bytes(all, world, text, strlen(text), NULL));
    for (int i = 0; rank == 0 && i < world; i++) {
        const char *lines = all[i].data;
        printf("%.*s\n", (int)strcspn(lines, "\n"), lines);
        snprintf(text, sizeof text, "%.*s", (int)all[i].bytes, lines);
        print_lines("    ", text + strcspn(text, "\n") + 1);
    }
    tutti_bytes_free(all, world);
    free(all);
}

/* Returns the first line that begins with `word`, or "". */
static const char *line_of(char *text, const char *word)
{
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        if (strncmp(line, word, strlen(word)) == 0) return line;
    return "";
}

/* Prints a line for each size at which the chosen algorithm changes. */
static void print_choices(const char *name, tutti_kind kind)
{
    char text[TEXT_MAX], last[TEXT_MAX] = "";
    for (int64_t bytes = 4; bytes <= INT64_C(1) << 30; bytes *= 2) {
        if (tutti_explain(kind, bytes, NULL, text, sizeof text) != TUTTI_OK) {
            printf("%s: %s\n", name, tutti_last_error());
            return;
        }
        char *second = strchr(text, '\n') + 1, copy[TEXT_MAX];
        snprintf(copy, sizeof copy, "%s", second);
        const char *line = line_of(copy, "algorithm ");
        if (*line == '\0') line = strtok(second, "\n");
        if (strcmp(line, last) != 0) printf("%s from %lld bytes: %s\n", name, (long long)bytes, line);
        snprintf(last, sizeof last, "%s", line);
        if (kind == TUTTI_BARRIER) return;
    }
}

static void print_world(void)
{
    static const struct {
        const char *name;
        tutti_kind kind;
    } kinds[] = {{"barrier", TUTTI_BARRIER},       {"broadcast", TUTTI_BROADCAST},
                 {"all_reduce", TUTTI_ALL_REDUCE}, {"reduce", TUTTI_REDUCE},
                 {"all_gather", TUTTI_ALL_GATHER}, {"gather", TUTTI_GATHER},
                 {"scatter", TUTTI_SCATTER},       {"reduce_scatter", TUTTI_REDUCE_SCATTER},
                 {"all_to_all", TUTTI_ALL_TO_ALL}, {"scan", TUTTI_SCAN},
                 {"exscan", TUTTI_EXSCAN}};
    bool speaks = tutti_get_rank(NULL) == 0;
    if (speaks) printf("world of %d ranks on %s\n", tutti_get_world_size(NULL), tutti_get_backend(NULL));
    TUTTI_CHECK(tutti_barrier(NULL)); /* makes the connections, so that the ranks can describe them */
    print_ranks();
    for (size_t i = 0; speaks && i < sizeof kinds / sizeof *kinds; i++) print_choices(kinds[i].name, kinds[i].kind);
}

/* ---- the command line --------------------------------------------------------------------------------------- */

static const char help[] =
    "usage: tutti-info, tutti-run -n RANKS tutti-info [--backend B], or tutti-info --watch PID\n"
    "Prints what Tutti finds on this machine and, under a launcher, what it uses in that world.\n\n"
    "  --backend B   tcp, mpi, nccl, or a map as tutti_init_process_group takes it (tcp)\n"
    "  --watch PID   show the counters of a running job, of which PID is tutti-run or a rank, until it ends\n"
    "  --interval S  seconds between two tables of --watch (1)\n"
    "  --count N     the number of tables (0: no limit)\n";

/* Parses --watch and the options after it. */
static int watch(int argc, char **argv)
{
    double seconds = 1;
    int count = 0;
    for (int i = 3; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--interval") == 0) seconds = atof(argv[i + 1]);
        if (strcmp(argv[i], "--count") == 0) count = atoi(argv[i + 1]);
    }
    if (argc % 2 == 0 || !(seconds >= 0.01 && seconds <= 3600) || count < 0) {
        fprintf(stderr, "tutti-info: --watch takes a process id, --interval 0.01 to 3600 and --count from 0\n");
        return 2;
    }
    return watch_job(argv[2], (int)(seconds * 1000), count);
}

int main(int argc, char **argv)
{
    const char *backend = "tcp", *rank = getenv("RANK");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) return fputs(help, stdout) < 0;
    if (argc >= 3 && strcmp(argv[1], "--watch") == 0) return watch(argc, argv);
    if (argc == 3 && strcmp(argv[1], "--backend") == 0) {
        backend = argv[2];
    } else if (argc > 1) {
        fprintf(stderr, "tutti-info: \"%s\" is not an option, or lacks its value; see --help\n", argv[1]);
        return 2;
    }
    if (rank == NULL || strcmp(rank, "0") == 0) {
        print_machine();
        print_backends();
    }
    if (rank == NULL) return 0;
    TUTTI_CHECK(tutti_init_process_group(backend, NULL));
    print_world();
    return tutti_destroy_process_group(NULL) == TUTTI_OK ? 0 : 1;
}
