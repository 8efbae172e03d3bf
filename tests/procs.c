#include "procs.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

struct procs_shared *proc_shared;
int proc_rank = -1;

double procs_seconds(int64_t since_ns)
{
    return (double)(monotonic_ns() - since_ns) / 1e9;
}

void procs_sleep_ms(int ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* ---- in a rank --------------------------------------------------------------------------------------------- */

bool proc_is_error(const char *file, int line, const char *call, int status, int expected, const char *text,
                   const char *const *words)
{
    if (text == NULL) text = tutti_last_error();
    if (status != expected) {
        fprintf(stderr, "%s:%d: rank %d: %s returned %s, not %s: %s\n", file, line, proc_rank, call,
                tutti_status_string(status), tutti_status_string(expected), text);
        return false;
    }
    for (int i = 0; words[i] != NULL; i++)
        if (strstr(text, words[i]) == NULL) {
            fprintf(stderr, "%s:%d: rank %d: %s: \"%s\" is not in: %s\n", file, line, proc_rank, call, words[i], text);
            return false;
        }
    return true;
}

void proc_set_step(int step)
{
    atomic_store(&proc_shared->at_ns[proc_rank], monotonic_ns());
    atomic_store(&proc_shared->step[proc_rank], step);
}

void proc_wait_1ms(void)
{
    if (atomic_load(&proc_shared->broken)) _exit(98); /* the failed rank has said why */
    procs_sleep_ms(1);
}

void proc_wait_for_step(int rank, int step)
{
    while (atomic_load(&proc_shared->step[rank]) < step) proc_wait_1ms();
}

void proc_barrier(int n, int step)
{
    proc_set_step(step);
    for (int i = 0; i < n; i++) proc_wait_for_step(i, step);
}

void proc_wait_for_go(int step)
{
    proc_set_step(step);
    while (atomic_load(&proc_shared->go) < step) proc_wait_1ms();
}

int proc_init(int64_t timeout_ms)
{
    return tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = timeout_ms, .store_timeout_ms = 20000});
}

tutti_store *proc_store(void)
{
    tutti_store *store = NULL;
    int status = tutti_store_tcp("127.0.0.1", (uint16_t)atoi(getenv("MASTER_PORT")), NULL, &store);
    if (status != TUTTI_OK) fprintf(stderr, "rank %d: store: %s\n", proc_rank, tutti_last_error());
    return store;
}

int proc_group(tutti_store *store, const char *name, int size, int64_t timeout_ms, tutti_store **part,
               tutti_group **group)
{
    int status = tutti_store_prefix(store, name, part);
    if (status != TUTTI_OK) return status;
    tutti_group_opts opts = {.timeout_ms = timeout_ms, .name = name};
    status = tutti_create_group("tcp", *part, proc_rank, size, &opts, group);
    if (status != TUTTI_OK) {
        tutti_store_free(*part);
        *part = NULL;
    }
    return status;
}

int proc_sum(tutti_group *group, int size, int64_t n)
{
    return proc_sum_within(group, size, n, 0);
}

int proc_sum_within(tutti_group *group, int size, int64_t n, int64_t timeout_ms)
{
    int64_t *data = malloc((size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = i;
    int status = tutti_all_reduce(tutti_view(data, n), TUTTI_SUM, tutti_with(.group = group, .timeout_ms = timeout_ms));
    for (int64_t i = 0; i < n && status == TUTTI_OK; i++)
        if (data[i] != i * size) status = 1; /* the call succeeded, with a wrong result */
    free(data);
    return status;
}

int proc_capture_stderr(int *saved)
{
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    fflush(stderr);
    *saved = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    return fd;
}

void proc_end_capture(int fd, int saved, char *text, size_t size)
{
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    ssize_t n = pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(saved);
    close(fd);
}

void proc_set_int(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

#ifdef __GLIBC__ /* other C libraries have no backtrace */
#include <execinfo.h>

static void print_frames(void)
{
    void *frames[40];
    backtrace_symbols_fd(frames, backtrace(frames, 40), STDERR_FILENO);
}

static void load_unwinder(void)
{
    void *frame[1];
    backtrace(frame, 1); /* loads libgcc, which a signal handler must not */
}
#else
static void print_frames(void)
{
}
static void load_unwinder(void)
{
}
#endif

static void print_stack(int number)
{
    print_frames();
    raise(number); /* SA_RESETHAND: this ends the rank */
}

/* Removes CMocka's handlers, which would continue with the next test in the child. */
static void reset_signals(void)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    load_unwinder();
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        sigaction(fatal[i], &(struct sigaction){.sa_handler = print_stack, .sa_flags = (int)SA_RESETHAND}, NULL);
}

_Noreturn static void be_rank(struct procs *procs, int rank, const int gate[2], pid_t parent)
{
    uint16_t port;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    reset_signals();
    close(gate[1]);
    if (read(gate[0], &port, sizeof port) != sizeof port) _exit(1);
    close(gate[0]);
    proc_rank = rank;
    proc_shared = procs->shared;
    proc_set_int("RANK", rank);
    proc_set_int("WORLD_SIZE", procs->size);
    proc_set_int("LOCAL_RANK", rank);
    proc_set_int("LOCAL_WORLD_SIZE", procs->size);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    proc_set_int("MASTER_PORT", port);
    setenv("TUTTI_STORE_HOSTED", "1", 1);
    int result = procs->fn(rank, procs->size, procs->argument);
    if (result != 0) atomic_store(&proc_shared->broken, true);
    fflush(NULL);
    _exit(result != 0 && (result & 0xff) == 0 ? 1 : result & 0xff);
}

/* ---- in the parent ----------------------------------------------------------------------------------------- */

bool procs_reap(struct procs *procs)
{
    int running = 0;
    for (int i = 0; i < procs->size; i++) {
        int status = 0;
        if (procs->pid[i] == 0) continue;
        pid_t got = waitpid(procs->pid[i], &status, WNOHANG);
        if (got == 0) {
            running++;
            continue;
        }
        procs->pid[i] = 0;
        procs->code[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return running > 0;
}

static void show_file(pid_t pid, const char *name)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (n > 0) fprintf(stderr, "%s: %.*s\n", path, (int)n, text);
    if (fd >= 0) close(fd);
}

/* Prints the stacks of a hanging rank, by gdb if it is installed, and its state in /proc. */
static void show_rank(const struct procs *procs, int rank)
{
    char command[160];
    fprintf(stderr, "rank %d (pid %d) hangs at step %d\n", rank, (int)procs->pid[rank],
            atomic_load(&procs->shared->step[rank]));
    show_file(procs->pid[rank], "wchan");
    snprintf(command, sizeof command,
             "timeout 20 gdb -batch -p %d -ex 'thread apply all bt 14' 2>&1 | grep -v '^\\[New'",
             (int)procs->pid[rank]);
    fflush(NULL);
    if (access("/usr/bin/gdb", X_OK) != 0 || system(command) != 0)
        fprintf(stderr, "(no stacks: gdb is not installed)\n");
}

static void kill_all(struct procs *procs)
{
    for (int i = 0; i < procs->size; i++)
        if (procs->pid[i] != 0) show_rank(procs, i);
    for (int i = 0; i < procs->size; i++) {
        if (procs->pid[i] == 0) continue;
        kill(procs->pid[i], SIGKILL);
        waitpid(procs->pid[i], NULL, 0);
        procs->pid[i] = 0;
        procs->code[i] = PROCS_HUNG;
    }
}

void procs_wait(struct procs *procs)
{
    while (procs_reap(procs)) {
        if (monotonic_ns() > procs->deadline_ns) kill_all(procs);
        procs_sleep_ms(1);
    }
}

bool procs_wait_for_step(struct procs *procs, int step)
{
    while (procs_reap(procs)) {
        bool all = true;
        for (int i = 0; i < procs->size; i++) all &= procs->pid[i] == 0 || atomic_load(&procs->shared->step[i]) >= step;
        if (all) return true;
        if (monotonic_ns() > procs->deadline_ns) return false;
        procs_sleep_ms(1);
    }
    return false;
}

/* Returns the state of a rank's main thread, as /proc shows it: R, S, D, T, Z; 0 once the rank has been reaped. */
static char state_of(const struct procs *procs, int rank)
{
    char path[32], text[256] = "", state = 0;
    if (procs->pid[rank] == 0) return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)procs->pid[rank]);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *end = strrchr(text, ')'); /* of the program's name */
    if (end != NULL) sscanf(end + 1, " %c", &state);
    return state;
}

/* Waits until a rank is in a state at n looks in a row, 1 ms apart. */
static void wait_for_state(struct procs *procs, int rank, char state, int n)
{
    for (int seen = 0; seen < n && procs->pid[rank] != 0 && monotonic_ns() < procs->deadline_ns;) {
        seen = state_of(procs, rank) == state ? seen + 1 : 0;
        procs_sleep_ms(1);
        procs_reap(procs);
    }
}

void procs_wait_until_stopped(struct procs *procs, int rank)
{
    wait_for_state(procs, rank, 'T', 1);
}

void procs_wait_until_asleep(struct procs *procs, int rank)
{
    enum { LOOKS = 5 }; /* a call sleeps for moments before it sleeps for long */
    wait_for_state(procs, rank, 'S', LOOKS);
}

void procs_release(struct procs *procs, int step)
{
    atomic_store(&procs->shared->go, step);
}

void procs_signal(struct procs *procs, int rank, int signal)
{
    if (procs->pid[rank] == 0) return;
    if (signal == SIGKILL) procs->killed[rank] = true;
    kill(procs->pid[rank], signal);
}

void procs_check_notified(struct procs *procs, int victim, int64_t killed_ns, double limit_s)
{
    for (int i = 0; i < procs->size; i++) {
        double took = (double)(atomic_load(&procs->shared->at_ns[i]) - killed_ns) / 1e9;
        if (i == victim || took < limit_s) continue;
        fprintf(stderr, "rank %d was notified after %.1f s\n", i, took);
        procs->failed = true;
    }
}

uint64_t procs_random(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

static bool fork_ranks(struct procs *procs, int gate[2])
{
    pid_t parent = getpid();
    fflush(NULL);
    for (int i = 0; i < procs->size; i++) {
        pid_t pid = fork();
        if (pid == 0) be_rank(procs, i, gate, parent);
        if (pid < 0) return false;
        procs->pid[i] = pid;
    }
    return true;
}

static void serve_ranks(struct procs *procs, const int gate[2])
{
    tutti_store *store = NULL;
    if (tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true}, &store) != TUTTI_OK) {
        fprintf(stderr, "the store of the tests: %s\n", tutti_last_error());
        for (int i = 0; i < procs->size; i++) kill(procs->pid[i], SIGKILL);
    }
    uint16_t port = tutti_store_port(store);
    for (int i = 0; i < procs->size; i++)
        if (write(gate[1], &port, sizeof port) != sizeof port) kill(procs->pid[i], SIGKILL);
    procs->store = store;
    if (procs->act != NULL) procs->act(procs, procs->argument);
    procs_wait(procs);
    tutti_store_free(procs->store);
}

void procs_run(struct procs *procs)
{
    int gate[2];
    setenv("TUTTI_TOKEN", PROCS_TOKEN, 1);
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    procs->shared = mmap(NULL, sizeof *procs->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(procs->shared, MAP_FAILED);
    procs->deadline_ns = monotonic_ns() + (int64_t)(procs->limit_s > 0 ? procs->limit_s : PROCS_LIMIT_S) * 1000000000;
    bool started = fork_ranks(procs, gate);
    if (started) serve_ranks(procs, gate);
    close(gate[0]);
    close(gate[1]); /* children that still wait there exit */
    procs_wait(procs);
    munmap(procs->shared, sizeof *procs->shared);
    procs->shared = NULL;
    assert_true(started);
    assert_false(procs->failed);
    for (int i = 0; i < procs->size && !procs->may_fail; i++)
        if (!(procs->killed[i] && procs->code[i] == -SIGKILL)) {
            if (procs->code[i] != 0) fprintf(stderr, "rank %d of %d: code %d\n", i, procs->size, procs->code[i]);
            assert_int_equal(procs->code[i], 0);
        }
}

void procs_run_ranks(int size, proc_fn fn, void *argument)
{
    struct procs procs = {.size = size, .fn = fn, .argument = argument};
    procs_run(&procs);
}

void procs_run_with(int size, proc_fn fn, void (*act)(struct procs *procs, void *argument), void *argument)
{
    struct procs procs = {.size = size, .fn = fn, .argument = argument, .act = act};
    procs_run(&procs);
}
