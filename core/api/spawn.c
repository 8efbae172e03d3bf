/* tutti_spawn: ranks as forked children of the program itself.
 *
 * The store's server is a thread, and a fork after it would copy its locks in whatever state they are.  So the children
 * are forked first and wait at a gate, which is a pipe.  Then the parent starts the server, and writes its port to the
 * pipe once per child.  If the gate is closed instead, the children exit. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_limit.h"
#include "base/token.h"
#include "portable/environment.h"
#include "portable/files.h"
#include "portable/process.h"
#include "portable/sockets.h"

enum { SPAWN_GRACE_MS = 5000, SPAWN_NAP_MS = 10 };

struct child {
    pid_t pid;  /* 0: not started, or reaped */
    int pidfd;  /* readable once it has ended; -1 if the system has none */
    int code;   /* how it ended: CLD_EXITED, CLD_KILLED, CLD_DUMPED; 0 if another thread has reaped it */
    int status; /* exit code or signal */
};

struct spawn {
    struct child *children;
    struct pollfd *polled;
    int n, running;
    int first; /* the child that failed first, or -1 */
    int token_fd;
    int gate[2];
    tutti_store *store; /* the store of the ranks */
};

/* ---- in the child ------------------------------------------------------------------------------------------ */

static void set_int(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void set_environment(const struct spawn *spawn, int rank, uint16_t port)
{
    set_int("RANK", rank);
    set_int("WORLD_SIZE", spawn->n);
    set_int("LOCAL_RANK", rank);
    set_int("LOCAL_WORLD_SIZE", spawn->n);
    set_int("NODE_RANK", 0);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_int("MASTER_PORT", port);
    set_int("TUTTI_STORE_HOSTED", 1);
    set_int("TUTTI_TOKEN_FD", spawn->token_fd);
}

/* Waits at the gate.  Returns false if the parent has closed it. */
static bool pass_gate(const struct spawn *spawn, uint16_t *port)
{
    ssize_t n;
    close(spawn->gate[1]); /* otherwise the child would keep the gate open */
    do n = read(spawn->gate[0], port, sizeof *port);
    while (n < 0 && errno == EINTR);
    close(spawn->gate[0]);
    return n == sizeof *port;
}

/* Runs fn as a rank.  Ends with _exit, because functions that the program has registered with atexit belong to the
 * parent. */
_Noreturn static void be_rank(struct spawn *spawn, int rank, pid_t parent, int (*fn)(int, void *), void *argument)
{
    uint16_t port;
    process_end_with_parent();
    if (getppid() != parent) _exit(1); /* the parent died before that */
    for (int i = 0; i < rank; i++)
        if (spawn->children[i].pidfd >= 0) close(spawn->children[i].pidfd);
    if (!pass_gate(spawn, &port)) _exit(1);
    fcntl(spawn->token_fd, F_SETFD, 0); /* a program that fn executes needs it too */
    set_environment(spawn, rank, port);
    free(spawn->children);
    free(spawn->polled);
    int result = fn(rank, argument);
    fflush(NULL);
    _exit(result && !(result & 0xff) ? 1 : result);
}

/* ---- in the parent: waiting and ending ---------------------------------------------------------------------- */

/* Publishes that a rank has ended, because the others may wait for it in init. */
static void publish_end(const struct spawn *spawn, int rank)
{
    char value[100];
    if (spawn->store == NULL || spawn->running == 0) return;
    snprintf(value, sizeof value, "L%d rank %d is lost: its process has ended", TUTTI_ERR_PEER_LOST, rank);
    tutti_store_compare_set(spawn->store, "tutti/world/lost", "", 0, value, strlen(value), NULL, 0, NULL);
}

static bool failed(const struct child *child)
{
    return child->code != CLD_EXITED || child->status != 0;
}

static bool reap(struct child *child)
{
    siginfo_t info = {0};
    int result;
    if (!child->pid) return false;
    do result = waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG);
    while (result != 0 && errno == EINTR);
    if (result == 0 && info.si_pid == 0) return false;
    child->code = result == 0 ? info.si_code : 0;
    child->status = info.si_status;
    child->pid = 0;
    if (child->pidfd >= 0) close(child->pidfd);
    child->pidfd = -1;
    return true;
}

/* Reaps children and records the first failure.  If several have failed since the last call, the cause is more likely
 * one that a signal ended. */
static void reap_all(struct spawn *spawn)
{
    int candidate = -1;
    for (int i = 0; i < spawn->n; i++) {
        struct child *child = &spawn->children[i];
        if (!reap(child)) continue;
        spawn->running--;
        publish_end(spawn, i);
        if (!failed(child)) continue;
        if (candidate < 0 || (spawn->children[candidate].code == CLD_EXITED && child->code != CLD_EXITED))
            candidate = i;
    }
    if (spawn->first < 0) spawn->first = candidate;
}

/* Waits until a child has ended, a signal has arrived, or the time is over. */
static void wait_for_event(struct spawn *spawn, int left_ms)
{
    int n = 0;
    for (int i = 0; i < spawn->n; i++) {
        if (!spawn->children[i].pid) continue;
        if (spawn->children[i].pidfd < 0)
            left_ms = left_ms < 0 || left_ms > SPAWN_NAP_MS ? SPAWN_NAP_MS : left_ms;
        else
            spawn->polled[n++] = (struct pollfd){.fd = spawn->children[i].pidfd, .events = POLLIN};
    }
    poll(spawn->polled, (nfds_t)n, left_ms);
}

static void signal_all(const struct spawn *spawn, int signal)
{
    for (int i = 0; i < spawn->n; i++)
        if (spawn->children[i].pid) kill(spawn->children[i].pid, signal);
}

/* Waits until all have ended or, with until_failure, one has failed.  Returns false if the time is over. */
static bool wait_children(struct spawn *spawn, bool until_failure, int64_t timeout_ms)
{
    int64_t deadline = clock_deadline_ns(timeout_ms);
    for (;;) {
        reap_all(spawn);
        if (!spawn->running || (until_failure && spawn->first >= 0)) return true;
        int left = clock_left_ms(deadline);
        if (left == 0) return false;
        wait_for_event(spawn, left);
    }
}

static void end_children(struct spawn *spawn)
{
    signal_all(spawn, SIGTERM);
    if (wait_children(spawn, false, SPAWN_GRACE_MS)) return;
    signal_all(spawn, SIGKILL);
    wait_children(spawn, false, TUTTI_INFINITE);
}

static int result_of(const struct spawn *spawn)
{
    if (spawn->first < 0) return TUTTI_OK;
    const struct child *child = &spawn->children[spawn->first];
    if (child->code == CLD_EXITED)
        return error_set(TUTTI_ERR_SYSTEM, "tutti_spawn: rank %d exited with code %d", spawn->first, child->status);
    if (child->code == 0)
        return error_set(TUTTI_ERR_SYSTEM,
                         "tutti_spawn: the exit status of rank %d is lost, because the program ignores SIGCHLD or "
                         "waits for any child; let tutti_spawn wait for its own children",
                         spawn->first);
    const char *name = environment_signal(child->status), *dumped = child->code == CLD_DUMPED ? " (core dumped)" : "";
    if (!name)
        return error_set(TUTTI_ERR_SYSTEM, "tutti_spawn: rank %d died of signal %d%s", spawn->first, child->status,
                         dumped);
    return error_set(TUTTI_ERR_SYSTEM, "tutti_spawn: rank %d died of SIG%s%s", spawn->first, name, dumped);
}

/* ---- in the parent: starting ---------------------------------------------------------------------------------- */

static int make_token(uint8_t token[TUTTI_TOKEN_BYTES], int *fd)
{
    int status = token_init();
    if (status != TUTTI_OK) return status;
    token_random(token, TUTTI_TOKEN_BYTES);
    *fd = files_unnamed("tutti-token");
    if (*fd < 0 || !file_limit_allows(TUTTI_TOKEN_BYTES) ||
        pwrite(*fd, token, TUTTI_TOKEN_BYTES, 0) != TUTTI_TOKEN_BYTES || !files_seal(*fd))
        return error_errno(TUTTI_ERR_SYSTEM, "tutti_spawn: cannot keep the job token in a file without a name");
    return TUTTI_OK;
}

static int fork_children(struct spawn *spawn, int (*fn)(int, void *), void *argument)
{
    pid_t parent = getpid();
    fflush(NULL); /* otherwise each child would write buffered text again */
    for (int i = 0; i < spawn->n; i++) {
        pid_t pid = fork();
        if (pid < 0) return error_errno(TUTTI_ERR_SYSTEM, "tutti_spawn: cannot fork rank %d of %d", i, spawn->n);
        if (pid == 0) be_rank(spawn, i, parent, fn, argument);
        spawn->running++;
        spawn->children[i].pid = pid;
        spawn->children[i].pidfd = process_watch(pid);
    }
    return TUTTI_OK;
}

/* Writes one port per child.  A read of two bytes takes exactly one. */
static int open_gate(const struct spawn *spawn, uint16_t port)
{
    for (int i = 0; i < spawn->n; i++) {
        ssize_t n;
        do n = write(spawn->gate[1], &port, sizeof port);
        while (n < 0 && errno == EINTR);
        if (n < 0) return error_errno(TUTTI_ERR_SYSTEM, "tutti_spawn: cannot send rank %d the port", i);
    }
    return TUTTI_OK;
}

static int run(struct spawn *spawn, int (*fn)(int, void *), void *argument)
{
    uint8_t token[TUTTI_TOKEN_BYTES];
    tutti_store_opts opts = {.token = token, .server = true, .world_size = spawn->n};
    int status = make_token(token, &spawn->token_fd);
    if (status == TUTTI_OK && sockets_pipe(spawn->gate) != 0)
        status = error_errno(TUTTI_ERR_SYSTEM, "tutti_spawn: cannot make a pipe");
    if (status == TUTTI_OK) status = fork_children(spawn, fn, argument);
    if (status == TUTTI_OK) status = tutti_store_tcp("127.0.0.1", 0, &opts, &spawn->store);
    if (status == TUTTI_OK) status = open_gate(spawn, tutti_store_port(spawn->store));
    token_wipe(token, sizeof token);
    if (status == TUTTI_OK) wait_children(spawn, true, TUTTI_INFINITE);
    if (spawn->running) end_children(spawn);
    tutti_store_free(spawn->store);
    return status != TUTTI_OK ? status : result_of(spawn);
}

static void release(struct spawn *spawn)
{
    if (spawn->token_fd >= 0) close(spawn->token_fd);
    if (spawn->gate[0] >= 0) close(spawn->gate[0]);
    if (spawn->gate[1] >= 0) close(spawn->gate[1]);
    free(spawn->children);
    free(spawn->polled);
}

int tutti_spawn(int (*fn)(int rank, void *argument), void *argument, int nprocs)
{
    if (!fn) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tutti_spawn: fn is NULL; pass a function");
    if (nprocs < 1)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tutti_spawn: nprocs is %d; it must be at least 1", nprocs);
    if (tutti_is_initialized())
        return error_set(
            TUTTI_ERR_INVALID_ARGUMENT,
            "tutti_spawn: the default group exists already; call tutti_spawn before tutti_init_process_group");
    struct spawn spawn = {.n = nprocs, .first = -1, .token_fd = -1, .gate = {-1, -1}};
    spawn.children = calloc((size_t)nprocs, sizeof *spawn.children);
    spawn.polled = calloc((size_t)nprocs, sizeof *spawn.polled);
    int status = spawn.children && spawn.polled
                     ? run(&spawn, fn, argument)
                     : error_set(TUTTI_ERR_NO_MEMORY, "tutti_spawn: out of memory for %d ranks", nprocs);
    release(&spawn);
    return status;
}
