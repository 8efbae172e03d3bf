/* For tests of tutti-run: starts it, gathers what it prints, and bounds every wait.
 *
 * The test is a subreaper: what a job leaves behind becomes its child, and launch_nothing_left sees it. */
#ifndef TESTS_LAUNCH_H
#define TESTS_LAUNCH_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LAUNCH_HANG_MS 60000
#define LAUNCH_UNUSED __attribute__((unused)) /* not every test needs all of it */

struct text {
    char *data; /* ends with a NUL beyond used */
    size_t used, capacity;
};

struct launch {
    pid_t pid;
    int from_out, from_err; /* -1 after their end */
    struct text out, err;
    int status; /* exit status, or 128 + signal */
    long max_rss_kb;
};

static inline const char *launch_path(void)
{
    const char *path = getenv("TUTTI_RUN");
#ifdef TUTTI_RUN_PATH
    if (!path) path = TUTTI_RUN_PATH;
#endif
    if (!path) fail_msg("set TUTTI_RUN to the path of tutti-run");
    return path;
}

static inline int64_t launch_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* With terminal >= 0, that is its controlling terminal and all its streams. */
_Noreturn static inline void launch_exec(char **argv, int in, int out, int err, int terminal)
{
    if (terminal >= 0) {
        setsid();
        ioctl(terminal, TIOCSCTTY, 0);
        in = out = err = terminal;
    }
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    close_range(3, ~0U, 0);
    execv(argv[0], argv);
    _exit(125);
}

/* Starts tutti-run with the arguments (NULL-terminated), stdin from in. */
static inline struct launch launch_start_from(int in, const char *const *arguments)
{
    char *argv[32] = {(char *)(uintptr_t)launch_path()};
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

static inline struct launch launch_start(const char *const *arguments)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct launch launch = launch_start_from(in, arguments);
    close(in);
    return launch;
}

static inline void launch_read(int *fd, struct text *text)
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

/* Waits for something on either stream; fails the test after the bound. */
static inline void launch_step(struct launch *launch, int64_t deadline)
{
    struct pollfd fds[2] = {{.fd = launch->from_out, .events = POLLIN}, {.fd = launch->from_err, .events = POLLIN}};
    int64_t left = deadline - launch_now_ms();
    if (left <= 0) {
        kill(launch->pid, SIGKILL);
        fail_msg("it hangs; stdout: %.2000s\nstderr: %.2000s", launch->out.data ? launch->out.data : "",
                 launch->err.data ? launch->err.data : "");
    }
    poll(fds, 2, (int)left);
    if (fds[0].revents) launch_read(&launch->from_out, &launch->out);
    if (fds[1].revents) launch_read(&launch->from_err, &launch->err);
}

static inline int count_of(const char *text, const char *what)
{
    int n = 0;
    for (; text && (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

/* Reads until stdout holds what n times. */
static LAUNCH_UNUSED void launch_expect(struct launch *launch, const char *what, int n)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while (count_of(launch->out.data, what) < n) {
        if (launch->from_out < 0) fail_msg("no \"%s\" in: %s%s", what, launch->out.data, launch->err.data);
        launch_step(launch, deadline);
    }
}

/* Reaps it within the bound. */
static inline void launch_wait(struct launch *launch)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    struct rusage usage;
    int status;
    while (wait4(launch->pid, &status, WNOHANG, &usage) == 0) {
        if (launch_now_ms() > deadline) {
            kill(launch->pid, SIGKILL);
            fail_msg("it does not end");
        }
        usleep(2000);
    }
    launch->max_rss_kb = usage.ru_maxrss;
    launch->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Every process that it started has ended, too (they may take a moment to die). */
static inline void launch_nothing_left(void)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
        if (launch_now_ms() > deadline) fail_msg("a process was left over");
        if (pid == 0) usleep(2000);
    }
    assert_int_equal(errno, ECHILD);
}

/* Reads both streams to their end and reaps it. */
static inline void launch_finish(struct launch *launch)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while (launch->from_out >= 0 || launch->from_err >= 0) launch_step(launch, deadline);
    launch_wait(launch);
}

static inline struct launch launch_run(const char *const *arguments)
{
    struct launch launch = launch_start(arguments);
    launch_finish(&launch);
    launch_nothing_left();
    return launch;
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define RUN(...) launch_run(ARGS(__VA_ARGS__))

static inline void launch_free(struct launch *launch)
{
    if (launch->from_out >= 0) close(launch->from_out);
    if (launch->from_err >= 0) close(launch->from_err);
    free(launch->out.data);
    free(launch->err.data);
}

static LAUNCH_UNUSED void assert_has(const struct text *text, const char *what)
{
    if (!strstr(text->data, what)) fail_msg("no \"%s\" in:\n%s", what, text->data);
}

static LAUNCH_UNUSED void assert_has_not(const struct text *text, const char *what)
{
    if (strstr(text->data, what)) fail_msg("\"%s\" is in:\n%s", what, text->data);
}

/* One run, its exit status, and a piece of its stderr. */
static LAUNCH_UNUSED void assert_refused(const char *const *arguments, int status, const char *sentence)
{
    struct launch launch = launch_run(arguments);
    assert_int_equal(launch.status, status);
    assert_has(&launch.err, sentence);
    launch_free(&launch);
}

#endif
