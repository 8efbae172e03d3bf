/* Ranks as processes of the test: forked first, while nothing runs but the parent's own thread; then the parent hosts
 * the store and lets them through a gate.  env:// works in each.
 *
 * A rank's function returns 0, or prints why and returns something else; only the parent asserts.  The board is memory
 * that all share: ranks say there how far they are, the parent and the ranks wait for each other through it, without
 * the library under test.  All waits are bounded; what stands still is shown with its stacks and killed. */
#ifndef PROCS_H
#define PROCS_H

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <setjmp.h>
#include <stddef.h>

#include <cmocka.h>

#define PROCS_MOST 96
#define PROCS_LIMIT_S 60
#define PROCS_UNUSED __attribute__((unused)) /* not every test needs all of it */
#define PROCS_TOKEN "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"
#define PROCS_HUNG (-1000)

typedef int (*proc_fn)(int rank, int size, void *argument);

/* What ranks and parent see of each other. */
struct procs_board {
    atomic_int step[PROCS_MOST]; /* how far each rank is */
    atomic_int go;               /* how far the parent lets them */
    atomic_bool broken;          /* a rank returned an error: nobody need wait for it */
    _Atomic int64_t at_ns[PROCS_MOST], value[PROCS_MOST];
};

struct procs {
    int size;
    proc_fn fn;
    void *argument;
    void (*act)(struct procs *procs, void *argument); /* meanwhile, in the parent; may be NULL */
    int limit_s;                                      /* 0: PROCS_LIMIT_S */
    bool may_fail;                                    /* codes are not asserted: the caller looks at them */
    bool failed;                                      /* set by act: what it saw was wrong */

    pid_t pid[PROCS_MOST]; /* 0: has ended */
    int code[PROCS_MOST];  /* exit code, minus the signal that ended it, or PROCS_HUNG */
    bool killed[PROCS_MOST];
    int64_t deadline_ns;
    struct procs_board *board;
    tutti_store *store; /* the ranks', for act to look into, or to end: it sets NULL then */
};

static struct procs_board *proc_board; /* in a rank */
static int proc_rank = -1;

static inline int64_t procs_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double procs_seconds(int64_t since_ns)
{
    return (double)(procs_now_ns() - since_ns) / 1e9;
}

static inline void procs_nap_ms(int ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* ---- in a rank --------------------------------------------------------------------------------------------- */

/* Leaves with the line number, and says why on stderr. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s; last error: %s\n", __FILE__, __LINE__, proc_rank, #condition,         \
                    tutti_last_error());                                                                               \
            return __LINE__;                                                                                           \
        }                                                                                                              \
    } while (0)

/* The call fails with this status and a sentence in which all the given words are. */
#define EXPECT_ERROR(call, expected, ...)                                                                              \
    do {                                                                                                               \
        if (!proc_is_error(__FILE__, __LINE__, #call, (call), (expected), NULL,                                        \
                           (const char *const[]){__VA_ARGS__, NULL}))                                                  \
            return __LINE__;                                                                                           \
    } while (0)

/* The same where the sentence is another one than tutti_last_error(). */
#define EXPECT_TEXT(text, status, expected, ...)                                                                       \
    do {                                                                                                               \
        if (!proc_is_error(__FILE__, __LINE__, #status, (status), (expected), (text),                                  \
                           (const char *const[]){__VA_ARGS__, NULL}))                                                  \
            return __LINE__;                                                                                           \
    } while (0)

#define EXPECT_WITHIN(since_ns, low_s, high_s)                                                                         \
    do {                                                                                                               \
        double took = procs_seconds(since_ns);                                                                         \
        if (took < (low_s) || took > (high_s)) {                                                                       \
            fprintf(stderr, "%s:%d: rank %d: took %.3f s, not %g to %g; last error: %s\n", __FILE__, __LINE__,         \
                    proc_rank, took, (double)(low_s), (double)(high_s), tutti_last_error());                           \
            return __LINE__;                                                                                           \
        }                                                                                                              \
    } while (0)

static PROCS_UNUSED bool proc_is_error(const char *file, int line, const char *call, int status, int expected,
                                       const char *text, const char *const *words)
{
    if (text == NULL) text = tutti_last_error();
    if (status != expected) {
        fprintf(stderr, "%s:%d: rank %d: %s gives %s, not %s: %s\n", file, line, proc_rank, call,
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

static PROCS_UNUSED void proc_say(int step)
{
    atomic_store(&proc_board->at_ns[proc_rank], procs_now_ns());
    atomic_store(&proc_board->step[proc_rank], step);
}

/* A moment of a rank's wait on the board. */
static inline void proc_nap(void)
{
    if (atomic_load(&proc_board->broken)) _exit(98); /* the rank that broke it has said why */
    procs_nap_ms(1);
}

/* Says step, then waits until the parent lets go of it; the watchdog bounds this. */
static PROCS_UNUSED void proc_say_and_wait(int step)
{
    proc_say(step);
    while (atomic_load(&proc_board->go) < step) proc_nap();
}

/* Until all of the first n ranks are at step. */
static PROCS_UNUSED void proc_meet(int n, int step)
{
    proc_say(step);
    for (int i = 0; i < n; i++)
        while (atomic_load(&proc_board->step[i]) < step) proc_nap();
}

static PROCS_UNUSED int proc_init(int64_t timeout_ms)
{
    return tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = timeout_ms, .store_timeout_ms = 20000});
}

/* A client of the parent's store. */
static PROCS_UNUSED tutti_store *proc_store(void)
{
    tutti_store *store = NULL;
    int status = tutti_store_tcp("127.0.0.1", (uint16_t)atoi(getenv("MASTER_PORT")), NULL, &store);
    if (status != TUTTI_OK) fprintf(stderr, "rank %d: store: %s\n", proc_rank, tutti_last_error());
    return store;
}

/* A group of all ranks besides the default one; name must be new.  *part is to be freed after the group. */
static PROCS_UNUSED int proc_group(tutti_store *store, const char *name, int size, int64_t timeout_ms,
                                   tutti_store **part, tutti_group **group)
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

/* What the rank says on stderr from now on goes to a file without a name. */
static PROCS_UNUSED int proc_capture_stderr(int *saved)
{
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    fflush(stderr);
    *saved = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    return fd;
}

static PROCS_UNUSED void proc_end_capture(int fd, int saved, char *text, size_t size)
{
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    ssize_t n = pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(saved);
    close(fd);
}

/* How often a word is in a text. */
static PROCS_UNUSED int proc_count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; n++) at += strlen(word);
    return n;
}

static inline void proc_set_int(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static inline void proc_crashed(int number)
{
    void *frames[40];
    backtrace_symbols_fd(frames, backtrace(frames, 40), STDERR_FILENO);
    raise(number); /* SA_RESETHAND: it ends the rank */
}

/* CMocka's handlers would go on with the next test, in the child. */
static inline void proc_reset_signals(void)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    void *frame[1];
    backtrace(frame, 1); /* loads what it needs */
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        sigaction(fatal[i], &(struct sigaction){.sa_handler = proc_crashed, .sa_flags = (int)SA_RESETHAND}, NULL);
}

_Noreturn static inline void proc_be(struct procs *procs, int rank, const int gate[2], pid_t parent)
{
    uint16_t port;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    proc_reset_signals();
    close(gate[1]);
    if (read(gate[0], &port, sizeof port) != sizeof port) _exit(1);
    close(gate[0]);
    proc_rank = rank;
    proc_board = procs->board;
    proc_set_int("RANK", rank);
    proc_set_int("WORLD_SIZE", procs->size);
    proc_set_int("LOCAL_RANK", rank);
    proc_set_int("LOCAL_WORLD_SIZE", procs->size);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    proc_set_int("MASTER_PORT", port);
    setenv("TUTTI_STORE_HOSTED", "1", 1);
    int result = procs->fn(rank, procs->size, procs->argument);
    if (result != 0) atomic_store(&proc_board->broken, true);
    fflush(NULL);
    _exit(result != 0 && (result & 0xff) == 0 ? 1 : result & 0xff);
}

/* ---- in the parent ----------------------------------------------------------------------------------------- */

static inline bool procs_reap(struct procs *procs)
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

static inline void procs_show_file(pid_t pid, const char *name)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (n > 0) fprintf(stderr, "%s: %.*s\n", path, (int)n, text);
    if (fd >= 0) close(fd);
}

/* Where a rank stands: by gdb where it is there, else what /proc says. */
static inline void procs_show(const struct procs *procs, int rank)
{
    char command[160];
    fprintf(stderr, "rank %d (pid %d) stands still at step %d\n", rank, (int)procs->pid[rank],
            atomic_load(&procs->board->step[rank]));
    procs_show_file(procs->pid[rank], "wchan");
    snprintf(command, sizeof command,
             "timeout 20 gdb -batch -p %d -ex 'thread apply all bt 14' 2>&1 | grep -v '^\\[New'",
             (int)procs->pid[rank]);
    fflush(NULL);
    if (access("/usr/bin/gdb", X_OK) != 0 || system(command) != 0) fprintf(stderr, "(no stacks: gdb is not there)\n");
}

static inline void procs_end(struct procs *procs)
{
    for (int i = 0; i < procs->size; i++)
        if (procs->pid[i] != 0) procs_show(procs, i);
    for (int i = 0; i < procs->size; i++) {
        if (procs->pid[i] == 0) continue;
        kill(procs->pid[i], SIGKILL);
        waitpid(procs->pid[i], NULL, 0);
        procs->pid[i] = 0;
        procs->code[i] = PROCS_HUNG;
    }
}

/* Until all have ended. */
static inline void procs_wait(struct procs *procs)
{
    while (procs_reap(procs)) {
        if (procs_now_ns() > procs->deadline_ns) procs_end(procs);
        procs_nap_ms(1);
    }
}

/* Until every rank that still runs is at step; false when the time is over, or none runs. */
static PROCS_UNUSED bool procs_await(struct procs *procs, int step)
{
    while (procs_reap(procs)) {
        bool all = true;
        for (int i = 0; i < procs->size; i++) all &= procs->pid[i] == 0 || atomic_load(&procs->board->step[i]) >= step;
        if (all) return true;
        if (procs_now_ns() > procs->deadline_ns) return false;
        procs_nap_ms(1);
    }
    return false;
}

static PROCS_UNUSED void procs_go(struct procs *procs, int step)
{
    atomic_store(&procs->board->go, step);
}

/* Only to what this harness started and has not reaped. */
static PROCS_UNUSED void procs_signal(struct procs *procs, int rank, int signal)
{
    if (procs->pid[rank] == 0) return;
    if (signal == SIGKILL) procs->killed[rank] = true;
    kill(procs->pid[rank], signal);
}

/* A port that nobody has just now. */
static PROCS_UNUSED int procs_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static inline bool procs_start(struct procs *procs, int gate[2])
{
    pid_t parent = getpid();
    fflush(NULL);
    for (int i = 0; i < procs->size; i++) {
        pid_t pid = fork();
        if (pid == 0) proc_be(procs, i, gate, parent);
        if (pid < 0) return false;
        procs->pid[i] = pid;
    }
    return true;
}

static inline void procs_collect(struct procs *procs, const int gate[2])
{
    tutti_store *store = NULL;
    if (tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true}, &store) != TUTTI_OK) {
        fprintf(stderr, "the tests' store: %s\n", tutti_last_error());
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

/* Runs the ranks to their end.  Unless may_fail is set, asserts that each returned 0 or was killed by the
 * test. */
static inline void procs_run(struct procs *procs)
{
    int gate[2];
    setenv("TUTTI_TOKEN", PROCS_TOKEN, 1);
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    procs->board = mmap(NULL, sizeof *procs->board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(procs->board, MAP_FAILED);
    procs->deadline_ns = procs_now_ns() + (int64_t)(procs->limit_s > 0 ? procs->limit_s : PROCS_LIMIT_S) * 1000000000;
    bool started = procs_start(procs, gate);
    if (started) procs_collect(procs, gate);
    close(gate[0]);
    close(gate[1]); /* children that still wait there end */
    procs_wait(procs);
    munmap(procs->board, sizeof *procs->board);
    procs->board = NULL;
    assert_true(started);
    assert_false(procs->failed);
    for (int i = 0; i < procs->size && !procs->may_fail; i++)
        if (!(procs->killed[i] && procs->code[i] == -SIGKILL)) {
            if (procs->code[i] != 0) fprintf(stderr, "rank %d of %d: code %d\n", i, procs->size, procs->code[i]);
            assert_int_equal(procs->code[i], 0);
        }
}

static PROCS_UNUSED void run_procs(int size, proc_fn fn, void *argument)
{
    struct procs procs = {.size = size, .fn = fn, .argument = argument};
    procs_run(&procs);
}

static PROCS_UNUSED void run_procs_acting(int size, proc_fn fn, void (*act)(struct procs *procs, void *argument),
                                          void *argument)
{
    struct procs procs = {.size = size, .fn = fn, .argument = argument, .act = act};
    procs_run(&procs);
}

#endif
