/* Starts tutti-run, collects its output, and bounds every wait.
 *
 * The test becomes a subreaper, so processes that a job leaves behind become its children and launch_nothing_left finds
 * them. */
#ifndef TESTS_LAUNCH_H
#define TESTS_LAUNCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "text.h"

#define LAUNCH_HANG_MS 120000

struct text {
    char *data; /* NUL-terminated after `used` bytes */
    size_t used, capacity;
};

struct launch {
    pid_t pid;
    int from_out, from_err; /* -1 after their end */
    struct text out, err;
    int status; /* exit status, or 128 + signal */
    long max_rss_kb;
};

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define RUN(...) launch_run(ARGS(__VA_ARGS__))

/* In a rank's script whose $0 is a folder: waits until the folder has the file.  The wait ends with the launcher. */
#define AWAIT(file) "until test -e $0/" file "; do sleep 0.01; done; "

/* Returns the path of tutti-run: TUTTI_RUN, or the built one. */
const char *launch_path(void);

int64_t launch_now_ms(void);

/* Replaces the process.  A terminal >= 0 becomes its controlling terminal and all its streams. */
_Noreturn void launch_exec(char **argv, int in, int out, int err, int terminal);

/* Start tutti-run with the arguments (NULL-terminated), stdin from `in` or empty. */
struct launch launch_start_from(int in, const char *const *arguments);
struct launch launch_start(const char *const *arguments);

/* Starts a command in the foreground of its own terminal, whose other side is launch.from_out. */
struct launch launch_on_terminal(const char *const *command);

/* Starts tutti-run and waits for its end.  Fails the test if a process is left. */
struct launch launch_run(const char *const *arguments);

/* Runs a job with the option --timeout, a longer one each time, until its ranks have printed `word` n times before the
 * limit ends them.  Ranks may take long to start. */
struct launch launch_run_to_limit(const char *const *arguments, const char *word, int n);

/* Appends the readable bytes to text.  At the end of the stream closes *fd and sets it to -1. */
void launch_read(int *fd, struct text *text);

/* Waits for output on either stream.  Fails the test after the deadline. */
void launch_step(struct launch *launch, int64_t deadline);

/* Reads until stdout contains `word` n times. */
void launch_expect(struct launch *launch, const char *word, int n);

/* Reaps tutti-run within LAUNCH_HANG_MS. */
void launch_wait(struct launch *launch);

/* Reads both streams to their end and reaps tutti-run. */
void launch_finish(struct launch *launch);

/* Fails the test if a process that the job started is still alive after LAUNCH_HANG_MS. */
void launch_nothing_left(void);

void launch_free(struct launch *launch);

/* Fail the test unless the text contains the word, or if it contains the word. */
#define assert_has(text, word) launch_assert_has((text), (word), __FILE__, __LINE__)
#define assert_has_not(text, word) launch_assert_has_not((text), (word), __FILE__, __LINE__)
void launch_assert_has(const struct text *text, const char *word, const char *file, int line);
void launch_assert_has_not(const struct text *text, const char *word, const char *file, int line);

/* Runs tutti-run and checks its exit status and that stderr contains the message. */
void launch_assert_refused(const char *const *arguments, int status, const char *message);

#endif
