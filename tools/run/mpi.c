#include "mpi.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "memory.h"

/* The MPIs and their launchers.  `word` is in the output of the launcher's --version: mpirun may be of either MPI. */
static const struct mpi {
    const char *name, *plug_in, *word, *launchers[3];
} mpis[] = {{"openmpi", "mpi_openmpi", "Open", {"mpirun.openmpi", "mpirun", "mpiexec"}},
            {"mpich", "mpi_mpich", "HYDRA", {"mpiexec.mpich", "mpiexec.hydra", "mpiexec"}}};

/* ---- the MPI ----------------------------------------------------------------------------------------------- */

static bool is_its_launcher(const struct mpi *mpi, const char *launcher)
{
    char said[256], *command = memory_print("%s --version 2>/dev/null", launcher);
    FILE *pipe = popen(command, "r");
    size_t n = pipe ? fread(said, 1, sizeof said - 1, pipe) : 0;
    said[n] = '\0';
    if (pipe) pclose(pipe);
    free(command);
    return strstr(said, mpi->word);
}

static const char *find_launcher(const struct mpi *mpi)
{
    for (size_t i = 0; i < sizeof mpi->launchers / sizeof *mpi->launchers; i++)
        if (is_its_launcher(mpi, mpi->launchers[i])) return mpi->launchers[i];
    return NULL;
}

/* Returns the first MPI whose plug-in and launcher are installed, or NULL after a message about each. */
static const struct mpi *find_mpi(const char *name, const char **launcher)
{
    char why[2000] = "";
    for (size_t i = 0; i < sizeof mpis / sizeof *mpis; i++) {
        const struct mpi *mpi = &mpis[i];
        size_t used = strlen(why);
        if (name && strcmp(name, mpi->name) != 0) continue;
        bool built = tutti_is_backend_available(mpi->plug_in);
        *launcher = built ? find_launcher(mpi) : NULL;
        if (*launcher) return mpi;
        if (built)
            snprintf(why + used, sizeof why - used,
                     "tutti-run: backend %s is installed, but none of the launchers %s, %s and %s is\n", mpi->plug_in,
                     mpi->launchers[0], mpi->launchers[1], mpi->launchers[2]);
        else
            snprintf(why + used, sizeof why - used, "tutti-run: %s\n", tutti_last_error());
    }
    fprintf(stderr, "%stutti-run: --mpi found no MPI to start the ranks with\n", why);
    return NULL;
}

/* ---- the command line -------------------------------------------------------------------------------------- */

struct words {
    char **list;
    size_t n;
};

static void add(struct words *words, const char *word)
{
    words->list = memory_resize(words->list, (words->n + 2) * sizeof *words->list);
    words->list[words->n++] = (char *)(uintptr_t)word;
    words->list[words->n] = NULL;
}

/* Counts the ranks, and those of the host that has the most. */
static void count_ranks(const struct options *options, int *all, int *most)
{
    *all = *most = options->hosts.n ? 0 : options->nproc;
    for (int i = 0; i < options->hosts.n; i++) {
        int slots = options->hosts.list[i].slots;
        *all += slots;
        if (slots > *most) *most = slots;
    }
}

/* Adds options so that the launcher accepts root and more ranks than cores, as tutti-run does.  Ranks that share cores
 * must yield. */
static void add_openmpi_options(struct words *words, int most_on_a_host)
{
    if (geteuid() == 0) add(words, "--allow-run-as-root");
    add(words, "--oversubscribe");
    if (most_on_a_host > sysconf(_SC_NPROCESSORS_ONLN)) {
        add(words, "--mca");
        add(words, "mpi_yield_when_idle");
        add(words, "1");
    }
}

/* Adds the command of one rank: this tutti-run with --mpi-rank, the options for its output, and the program. */
static void add_rank(struct words *words, const struct options *options)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n < 0 ? 0 : n] = '\0';
    add(words, n > 0 ? memory_print("%s", self) : "tutti-run");
    add(words, "--mpi-rank");
    add(words, memory_print("--grace=%g", (double)options->grace_ms / 1000));
    if (options->no_prefix) add(words, "--no-prefix");
    if (options->log_dir) add(words, memory_print("--log-dir=%s", options->log_dir));
    add(words, "--");
    for (char **word = options->program; *word; word++) add(words, *word);
}

/* Adds the hosts, with their numbers of ranks. */
static void add_hosts(struct words *words, const struct mpi *mpi, const struct hosts *hosts)
{
    char *list = memory_print("%s", "");
    for (int i = 0; i < hosts->n; i++) {
        char *longer = memory_print("%s%s%s:%d", list, i ? "," : "", hosts->list[i].name, hosts->list[i].slots);
        free(list);
        list = longer;
    }
    add(words, mpi == &mpis[0] ? "--host" : "-hosts");
    add(words, list);
}

/* Adds the names of the variables that other hosts get.  MPICH's launcher passes all. */
static void add_variables(struct words *words, const struct options *options)
{
    static const char *const more[] = {"TUTTI_TOKEN_FILE", "OMP_NUM_THREADS", "CUDA_DEVICE_MAX_CONNECTIONS"};
    char **list = exports_for_hosts(&options->exports);
    for (char **entry = list; *entry; entry++) {
        add(words, "-x");
        add(words, memory_print("%.*s", (int)strcspn(*entry, "="), *entry));
    }
    free(list);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (!getenv(more[i])) continue;
        add(words, "-x");
        add(words, more[i]);
    }
}

/* Adds what the launcher starts commands on other hosts with.  Returns false after a message. */
static bool add_ssh(struct words *words, const struct mpi *mpi, const struct options *options)
{
    const char *ssh = options->ssh_command ? options->ssh_command : getenv("TUTTI_SSH");
    if (!ssh || !*ssh) return true;
    if (mpi == &mpis[0]) {
        add(words, "--mca");
        add(words, "plm_rsh_agent");
    } else if (strpbrk(ssh, " \t")) {
        fprintf(stderr,
                "tutti-run: MPICH's launcher takes the path of a program, not \"%s\" (--ssh-command, TUTTI_SSH); set "
                "options of ssh in ~/.ssh/config\n",
                ssh);
        return false;
    } else {
        add(words, "-launcher");
        add(words, "ssh");
        add(words, "-launcher-exec");
    }
    add(words, ssh);
    return true;
}

/* Adds what concerns other hosts.  Returns false after a message. */
static bool add_other_hosts(struct words *words, const struct mpi *mpi, const struct options *options)
{
    if (!options->hosts.n) return true;
    add_hosts(words, mpi, &options->hosts);
    if (mpi == &mpis[0]) add_variables(words, options);
    return add_ssh(words, mpi, options);
}

/* The ranks get their rank and rendezvous from the launcher.  Another job's variables would mislead them. */
static void set_variables(const struct options *options, int most_on_a_host)
{
    static const char *const ours[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",         "LOCAL_WORLD_SIZE",
                                       "MASTER_ADDR", "MASTER_PORT", "TUTTI_STORE_HOSTED", "TUTTI_TOKEN_FD"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) unsetenv(ours[i]);
    if (options->token_file) setenv("TUTTI_TOKEN_FILE", options->token_file, 1);
    if (most_on_a_host > 1) setenv("OMP_NUM_THREADS", "1", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

const char *mpi_start_instead(struct options *options)
{
    const char *launcher = NULL;
    const struct mpi *mpi = find_mpi(options->mpi_name, &launcher);
    struct words words = {0};
    int ranks, most;
    if (!mpi) return NULL;
    count_ranks(options, &ranks, &most);
    set_variables(options, most);
    add(&words, launcher);
    if (mpi == &mpis[0]) add_openmpi_options(&words, most);
    if (options->bind != BIND_UNSET) {
        add(&words, mpi == &mpis[0] ? "--bind-to" : "-bind-to");
        add(&words, bind_name(options->bind));
    }
    if (!add_other_hosts(&words, mpi, options)) return NULL;
    add(&words, "-n");
    add(&words, memory_print("%d", ranks));
    add_rank(&words, options);
    hosts_free(&options->hosts); /* they are the launcher's now */
    options->program = words.list;
    options->nproc = 1;
    options->bind = BIND_UNSET;
    options->no_prefix = true;
    options->log_dir = NULL;
    return launcher;
}

/* ---- one rank ---------------------------------------------------------------------------------------------- */

int mpi_take_rank(struct options *options)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (!rank) rank = getenv("PMI_RANK");
    if (!size) size = getenv("PMI_SIZE");
    if (!rank || !size) {
        fputs("tutti-run: --mpi-rank works only in ranks that MPI's launcher has started; use --mpi\n", stderr);
        return -1;
    }
    options->node_rank = atoi(rank);
    options->nnodes = atoi(size);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* this process ends with the launcher, as the rank ends with this process */
    return 0;
}

/* Waits up to a second until the launcher has read the rank's last output. */
static void wait_for_reader(void)
{
    int unread[2] = {0};
    for (int i = 0; i < 1000; i++) {
        for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
            if (ioctl(fd, FIONREAD, &unread[fd - STDOUT_FILENO]) != 0) unread[fd - STDOUT_FILENO] = 0;
        if (unread[0] + unread[1] == 0) return;
        usleep(1000);
    }
}

void mpi_report_failure(int status)
{
    const char *fd = getenv("PMI_FD");
    if (!fd) return;
    wait_for_reader();
    if (dprintf(atoi(fd), "cmd=abort exitcode=%d\n", status) < 0)
        perror("tutti-run: cannot report the failure over PMI_FD");
}
