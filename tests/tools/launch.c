#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "monotonic.h"

#ifndef SYS_close_range
#define SYS_close_range 436 /* on all processors; older C libraries do not name it */
#endif

enum { ARGUMENTS_MAX = 32, LIMIT_FIRST_MS = 500, LIMIT_LAST_MS = 32000 };

const char *launch_path(void)
{
    const char *path = getenv("TUTTI_RUN");
#ifdef TUTTI_RUN_PATH
    if (!path) path = TUTTI_RUN_PATH;
#endif
    if (!path) fail_msg("set TUTTI_RUN to the path of tutti-run");
    return path;
}

int64_t launch_now_ms(void)
{
    return monotonic_ns() / 1000000;
}

_Noreturn void launch_exec(char **argv, int in, int out, int err, int terminal)
{
    if (terminal >= 0) {
        setsid();
        ioctl(terminal, TIOCSCTTY, 0);
        in = out = err = terminal;
    }
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    syscall(SYS_close_range, 3, ~0U, 0);
    execv(argv[0], argv);
    _exit(125);
}

struct launch launch_start_from(int in, const char *const *arguments)
{
    char *argv[ARGUMENTS_MAX] = {(char *)(uintptr_t)launch_path()};
    for (int i = 0; arguments[i]; i++) argv[i + 1] = (char *)(uintptr_t)arguments[i];
    int out[2], err[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct launch launch = {.from_out = out[0], .from_err = err[0]};
    launch.pid = fork();
    assert_true(launch.pid >= 0);
    if (launch.pid == 0) launch_exec(argv, in, out[1], err[1], -1);
    close(out[1]);
    close(err[1]);
    return launch;
}

struct launch launch_start(const char *const *arguments)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct launch launch = launch_start_from(in, arguments);
    close(in);
    return launch;
}

struct launch launch_on_terminal(const char *const *command)
{
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0);
    int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(theirs >= 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct launch launch = {.from_out = ours, .from_err = -1};
    launch.pid = fork();
    assert_true(launch.pid >= 0);
    if (launch.pid == 0) launch_exec((char **)(uintptr_t)command, -1, -1, -1, theirs);
    close(theirs);
    return launch;
}

void launch_read(int *fd, struct text *text)
{
    if (text->capacity - text->used < 65537) {
        text->capacity = 2 * text->capacity + 65537;
        text->data = realloc(text->data, text->capacity);
        assert_non_null(text->data);
    }
    ssize_t n = read(*fd, text->data + text->used, 65536);
    if (n > 0) text->used += (size_t)n;
    text->data[text->used] = '\0';
    if (n > 0 || (n < 0 && errno == EINTR)) return;
    close(*fd);
    *fd = -1;
}

void launch_step(struct launch *launch, int64_t deadline)
{
    struct pollfd fds[2] = {{.fd = launch->from_out, .events = POLLIN}, {.fd = launch->from_err, .events = POLLIN}};
    int64_t left = deadline - launch_now_ms();
    if (left <= 0) {
        kill(launch->pid, SIGKILL);
        fail_msg("tutti-run hangs; stdout: %.2000s\nstderr: %.2000s", launch->out.data ? launch->out.data : "",
                 launch->err.data ? launch->err.data : "");
    }
    poll(fds, 2, (int)left);
    if (fds[0].revents) launch_read(&launch->from_out, &launch->out);
    if (fds[1].revents) launch_read(&launch->from_err, &launch->err);
}

void launch_expect(struct launch *launch, const char *word, int n)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while (text_count(launch->out.data, word) < n) {
        if (launch->from_out < 0) fail_msg("no \"%s\" in: %s%s", word, launch->out.data, launch->err.data);
        launch_step(launch, deadline);
    }
}

void launch_wait(struct launch *launch)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    struct rusage usage;
    int status;
    while (wait4(launch->pid, &status, WNOHANG, &usage) == 0) {
        if (launch_now_ms() > deadline) {
            kill(launch->pid, SIGKILL);
            fail_msg("tutti-run does not end");
        }
        usleep(2000);
    }
    launch->max_rss_kb = usage.ru_maxrss;
    launch->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void launch_nothing_left(void)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
        if (launch_now_ms() > deadline) fail_msg("a process of the job is still alive");
        if (pid == 0) usleep(2000);
    }
    assert_int_equal(errno, ECHILD);
}

void launch_finish(struct launch *launch)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while (launch->from_out >= 0 || launch->from_err >= 0) launch_step(launch, deadline);
    launch_wait(launch);
}

struct launch launch_run(const char *const *arguments)
{
    struct launch launch = launch_start(arguments);
    launch_finish(&launch);
    launch_nothing_left();
    return launch;
}

struct launch launch_run_to_limit(const char *const *arguments, const char *word, int n)
{
    char limit[16];
    const char *all[ARGUMENTS_MAX] = {"--timeout", limit};
    for (int i = 0; arguments[i]; i++) all[i + 2] = arguments[i];
    for (int ms = LIMIT_FIRST_MS;; ms *= 2) {
        snprintf(limit, sizeof limit, "%g", ms / 1000.0);
        struct launch launch = launch_run(all);
        if (ms >= LIMIT_LAST_MS || text_count(launch.out.data, word) >= n) return launch;
        launch_free(&launch);
    }
}

void launch_free(struct launch *launch)
{
    if (launch->from_out >= 0) close(launch->from_out);
    if (launch->from_err >= 0) close(launch->from_err);
    free(launch->out.data);
    free(launch->err.data);
}

void launch_assert_has(const struct text *text, const char *word, const char *file, int line)
{
    if (strstr(text->data, word) != NULL) return;
    print_error("no \"%s\" in:\n%s\n", word, text->data);
    _fail(file, line);
}

void launch_assert_has_not(const struct text *text, const char *word, const char *file, int line)
{
    if (strstr(text->data, word) == NULL) return;
    print_error("\"%s\" is in:\n%s\n", word, text->data);
    _fail(file, line);
}

void launch_assert_refused(const char *const *arguments, int status, const char *message)
{
    struct launch launch = launch_run(arguments);
    assert_int_equal(launch.status, status);
    assert_has(&launch.err, message);
    launch_free(&launch);
}
