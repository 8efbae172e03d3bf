/* The log: levels by subsystem, lines, files, the program's logger, and limits.  The environment is read once in a
 * process, so each case logs in a child, whose stderr the parent reads. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <regex.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/log_levels.h"
#include "base/log_limit.h"
#include "text.h"

static char folder[PATH_MAX];

static char *path_of(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned n;
    char *path = paths[n++ % 8];
    snprintf(path, PATH_MAX, "%.1000s/%.200s", folder, name);
    return path;
}

/* Returns the file's text, or "" if there is none.  The caller frees it. */
static char *read_file(const char *path)
{
    char *text = calloc(1, 1 << 20);
    FILE *file = fopen(path, "r");
    assert_non_null(text);
    if (file == NULL) return text;
    text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* Runs act in a child with these variables ("NAME=VALUE", up to a NULL) and returns its stderr.  The caller frees it.
 */
static char *run_child(void (*act)(void), const char *const *variables)
{
    char *path = path_of("stderr");
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
        dup2(fd, STDERR_FILENO);
        close(fd);
        for (int i = 0; variables[i] != NULL; i++) putenv((char *)(uintptr_t)variables[i]);
        act();
        exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    char *text = read_file(path);
    if (status != 0) fail_msg("the child ended with %d: %s", status, text);
    return text;
}

#define RUN(act, ...) run_child(act, (const char *const[]){__VA_ARGS__, NULL})

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("no \"%s\" in: %s", part, text);
}

static void assert_lines(const char *text, int n)
{
    if (text_count(text, "\n") != n) fail_msg("not %d lines: %s", n, text);
}

/* ---- levels -------------------------------------------------------------------------------------------------- */

static void test_levels(void **state)
{
    (void)state;
    signed char levels[LOG_SUBSYSTEMS];
    char wrong[400] = "";
    assert_true(log_levels_parse("INFO,store:debug,net:off", levels, wrong, sizeof wrong));
    assert_int_equal(levels[LOG_GROUP], LOG_INFO);
    assert_int_equal(levels[LOG_STORE], LOG_DEBUG);
    assert_int_equal(levels[LOG_NET], LOG_OFF);
    assert_true(log_levels_parse("store:debug", levels, wrong, sizeof wrong));
    assert_int_equal(levels[LOG_GROUP], LOG_WARN);
    assert_string_equal(wrong, "");
    static const char *const bad[] = {"x", "info,", ",", "store", "store:", ":info", "stor:info", "store:info:debug"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (log_levels_parse(bad[i], levels, wrong, sizeof wrong) != (strcmp(bad[i], "info,") == 0))
            fail_msg("%s: %s", bad[i], wrong);
    assert_false(log_levels_parse("nonsense,store:info", levels, wrong, sizeof wrong));
    assert_int_equal(levels[LOG_STORE], LOG_INFO);
    assert_string_equal(wrong,
                        "TUTTI_LOG: \"nonsense\" is neither a level (off, error, warn, info, debug) nor "
                        "SUBSYSTEM:LEVEL, and is ignored; the subsystems are init, store, group, op, net, shm, mpi, "
                        "nccl, cuda, train, plugin");
    for (int i = 0; i < LOG_SUBSYSTEMS; i++) assert_int_equal(log_subsystem_find(log_subsystem_names[i]), i);
    assert_int_equal(log_subsystem_find("ucx"), LOG_PLUGIN);
}

static int n_computed;

static int compute(void)
{
    return ++n_computed;
}

static void log_some(void)
{
    log_write(LOG_DEBUG, LOG_OP, "not wanted %d", compute());
    log_write(LOG_DEBUG, LOG_STORE, "wanted %d", compute());
    tutti_log("ucx", TUTTI_LOG_INFO, "of a plug-in");
    tutti_log("ucx", TUTTI_LOG_DEBUG, "not of a plug-in");
    tutti_log(NULL, TUTTI_LOG_WARN, "forged\n2026 line\x1b[31m");
    tutti_log("a\nb", TUTTI_LOG_WARN, "forged name");
    tutti_log("net", 7, "no level");
    tutti_log("net", -1, "no level");
}

static void test_lines(void **state)
{
    (void)state;
    char host[65], pattern[200];
    regex_t line;
    char *text = RUN(log_some, "TUTTI_LOG=error,store:debug,plugin:info,bad", "RANK=3");
    gethostname(host, sizeof host);
    assert_lines(text, 5);
    assert_has(text, " warn a b: forged name\n");
    assert_has(text, "warn init: TUTTI_LOG: \"bad\" is neither");
    assert_has(text, " tutti[3] debug store: wanted 1\n");
    assert_has(text, " tutti[3] info ucx: of a plug-in\n");
    assert_has(text, " tutti[3] warn plugin: forged 2026 line [31m\n");
    snprintf(pattern, sizeof pattern,
             "^20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{6}Z %s:[0-9]+ tutti\\[3\\] ",
             host);
    assert_int_equal(regcomp(&line, pattern, REG_EXTENDED | REG_NEWLINE), 0);
    assert_int_equal(regexec(&line, text, 0, NULL, 0), 0);
    regfree(&line);
    free(text);
}

/* The date in a line is that of libc. */
static void log_now(void)
{
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M", gmtime_r(&now, &utc));
    tutti_log("init", TUTTI_LOG_WARN, "it is %s", date);
}

static void test_time(void **state)
{
    (void)state;
    char *text = RUN(log_now, "TUTTI_LOG=warn");
    const char *date = strstr(text, "it is ");
    assert_non_null(date);
    if (memcmp(text, date + 6, 16) != 0) { /* a minute may have begun in between */
        free(text);
        text = RUN(log_now, "TUTTI_LOG=warn");
        date = strstr(text, "it is ");
        assert_memory_equal(text, date + 6, 16);
    }
    free(text);
}

/* ---- files --------------------------------------------------------------------------------------------------- */

static void log_and_fork(void)
{
    tutti_log("init", TUTTI_LOG_WARN, "parent");
    log_set_rank(7);
    tutti_log("init", TUTTI_LOG_WARN, "ranked");
    pid_t child = fork();
    if (child == 0) {
        tutti_log("init", TUTTI_LOG_WARN, "child");
        _exit(0);
    }
    waitpid(child, NULL, 0);
    FILE *file = fopen(path_of("pids"), "w");
    fprintf(file, "%d %d", (int)getpid(), (int)child);
    fclose(file);
}

static void test_file(void **state)
{
    (void)state;
    char variable[PATH_MAX + 40], name[200], host[65] = "";
    int parent = 0, child = 0;
    gethostname(host, sizeof host);
    snprintf(variable, sizeof variable, "TUTTI_LOG_FILE=%s/log.%%h.%%p.%%r.100%%%%", folder);
    char *text = RUN(log_and_fork, variable, "RANK=2");
    assert_string_equal(text, "");
    free(text);
    text = read_file(path_of("pids"));
    assert_int_equal(sscanf(text, "%d %d", &parent, &child), 2);
    free(text);
    const struct {
        int pid, rank;
        const char *part;
    } files[] = {{parent, 2, "parent"}, {parent, 7, "ranked"}, {child, 7, "child"}};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "log.%s.%d.%d.100%%", host, files[i].pid, files[i].rank);
        text = read_file(path_of(name));
        assert_lines(text, 1);
        assert_has(text, files[i].part);
        free(text);
        unlink(path_of(name));
    }
}

static void log_twice(void)
{
    tutti_log("init", TUTTI_LOG_WARN, "first");
    tutti_log("init", TUTTI_LOG_WARN, "second");
}

/* Lines that the file does not take are on stderr, after one warning. */
static void test_file_fails(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    const struct {
        const char *file, *reason;
    } files[] = {{path_of("none/log"), "cannot open it: No such file or directory"},
                 {path_of("fifo"), "cannot open it: "},
                 {"/dev/full", "cannot write to it: No space left on device"},
                 {"/tmp/%q", "it has a % that is none of %h, %p, %r and %%"}};
    for (int i = 0; i < 4; i++) {
        char variable[PATH_MAX + 40];
        snprintf(variable, sizeof variable, "TUTTI_LOG_FILE=%s", files[i].file);
        char *text = RUN(log_twice, variable);
        assert_lines(text, 3);
        assert_int_equal(text_count(text, files[i].reason), 1);
        assert_has(text, "init: first");
        assert_has(text, "init: second");
        free(text);
    }
    unlink(path_of("fifo"));
}

/* The program closes all descriptors, and its own file takes the number of the log's. */
static void close_all(void)
{
    tutti_log("init", TUTTI_LOG_WARN, "before");
    for (int fd = 3; fd < 40; fd++) close(fd);
    for (int i = 0; i < 8; i++)
        if (open(path_of("own"), O_WRONLY | O_CREAT | O_APPEND, 0600) < 0) _exit(1);
    tutti_log("init", TUTTI_LOG_WARN, "after");
}

static void test_file_closed(void **state)
{
    (void)state;
    char variable[PATH_MAX + 40];
    snprintf(variable, sizeof variable, "TUTTI_LOG_FILE=%s", path_of("log"));
    char *text = RUN(close_all, variable);
    assert_string_equal(text, "");
    free(text);
    text = read_file(path_of("own"));
    assert_string_equal(text, "");
    free(text);
    text = read_file(path_of("log"));
    assert_lines(text, 2);
    free(text);
    unlink(path_of("log"));
    unlink(path_of("own"));
}

enum { WRITERS = 4, LINES = 200 };

static void log_from_processes(void)
{
    char text[900];
    for (int i = 0; i < WRITERS; i++) {
        if (fork() != 0) continue;
        memset(text, 'a' + i, sizeof text);
        for (int k = 0; k < LINES; k++) tutti_log("init", TUTTI_LOG_WARN, "<%.*s>", 100 + 190 * i, text);
        _exit(0);
    }
    while (wait(NULL) > 0) continue;
}

static void test_processes_do_not_mix(void **state)
{
    (void)state;
    char variable[PATH_MAX + 40];
    snprintf(variable, sizeof variable, "TUTTI_LOG_FILE=%s", path_of("shared"));
    free(RUN(log_from_processes, variable, "TUTTI_LOG_LIMIT=0"));
    char *text = read_file(path_of("shared"));
    int n = 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0'; n++) {
        const char *at = strchr(line, '<');
        assert_non_null(at);
        size_t same = strspn(at + 1, (char[]){at[1], '\0'});
        if ((same - 100) % 190 != 0 || strcmp(at + 1 + same, ">") != 0) fail_msg("mixed: %s", line);
    }
    assert_int_equal(n, WRITERS * LINES);
    free(text);
    unlink(path_of("shared"));
}

/* ---- limits -------------------------------------------------------------------------------------------------- */

static void test_limit(void **state)
{
    (void)state;
    enum { MOST = 3 };
    const int64_t period = (int64_t)LOG_LIMIT_MS * 1000000;
    struct log_left_out left_out;
    int here, there, n = 0;
    for (int i = 0; i < 10; i++) n += log_limit_allow(&here, MOST, LOG_INFO, "net", "a line", 5);
    assert_int_equal(n, MOST);
    assert_true(log_limit_allow(&there, MOST, LOG_INFO, "net", "another", 6));
    assert_false(log_limit_take(period, &left_out));
    assert_true(log_limit_take(period + 5, &left_out));
    assert_int_equal(left_out.n, 10 - MOST);
    assert_int_equal(left_out.level, LOG_INFO);
    assert_string_equal(left_out.subsystem, "net");
    assert_string_equal(left_out.text, "a line");
    assert_false(log_limit_take(INT64_MAX, &left_out));
    assert_true(log_limit_allow(&here, MOST, LOG_INFO, "net", "a line", period + 6));
    for (int i = 0; i < 500; i++) /* more places than are remembered */
        assert_true(log_limit_allow((char *)&here + 1 + i, MOST, LOG_INFO, "net", "a line", 2 * period));
    for (int i = 0; i < 10; i++) assert_true(log_limit_allow(&there, 0, LOG_INFO, "net", "unlimited", 7));
}

static void log_often(void)
{
    for (int i = 0; i < 100; i++) tutti_log("net", TUTTI_LOG_WARN, "number %d", i);
    tutti_log("net", TUTTI_LOG_WARN, "other");
}

static void test_repeated_lines(void **state)
{
    (void)state;
    char *text = RUN(log_often, "TUTTI_LOG=warn");
    assert_lines(text, 32);
    assert_has(text, "number 29\n");
    assert_has(text, "warn net: other\n");
    assert_has(text, "warn net: 70 more like it were left out: \"number 30\"\n");
    free(text);
    text = RUN(log_often, "TUTTI_LOG_LIMIT=5");
    assert_lines(text, 7);
    free(text);
    text = RUN(log_often, "TUTTI_LOG_LIMIT=five");
    assert_lines(text, 33);
    assert_has(text, "TUTTI_LOG_LIMIT is \"five\"; it must be a number of lines");
    free(text);
}

/* ---- the program's logger ------------------------------------------------------------------------------------ */

struct seen {
    pthread_mutex_t lock;
    int n, refused;
    tutti_log_line last;
    char text[80];
};

static void keep_line(const tutti_log_line *line, void *argument)
{
    struct seen *seen = argument;
    pthread_mutex_lock(&seen->lock);
    seen->n++;
    seen->last = *line;
    snprintf(seen->text, sizeof seen->text, "%s %s", line->subsystem, line->text);
    seen->refused += tutti_set_logger(NULL, NULL) == TUTTI_ERR_INVALID_ARGUMENT;
    int n = seen->n;
    pthread_mutex_unlock(&seen->lock);
    tutti_log("op", TUTTI_LOG_WARN, "nested %d", n);
}

static void *log_in_thread(void *argument)
{
    for (int i = 0; i < 200; i++) tutti_log("net", TUTTI_LOG_WARN, "from a thread");
    return argument;
}

static atomic_bool has_read;

static void *read_settings(void *argument)
{
    tutti_log("net", TUTTI_LOG_DEBUG, "not wanted");
    atomic_store_explicit(&has_read, true, memory_order_relaxed); /* for TSan this orders nothing */
    return argument;
}

/* Replaces the logger while threads log.  A logger's argument is free again once the call has returned. */
static void use_logger(void)
{
    enum { THREADS = 3, TURNS = 20 };
    pthread_t threads[THREADS];
    struct seen one = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int wrong = tutti_set_logger(keep_line, &one) != TUTTI_OK;
    pthread_create(&threads[0], NULL, read_settings, NULL);
    while (!atomic_load_explicit(&has_read, memory_order_relaxed)) sched_yield();
    tutti_log("shm", TUTTI_LOG_WARN, "to the logger");
    pthread_join(threads[0], NULL);
    wrong += one.n != 1 || one.refused != 1 || strcmp(one.text, "shm to the logger") != 0;
    wrong += one.last.level != TUTTI_LOG_WARN || one.last.rank != -1 || one.last.size != sizeof one.last;
    wrong += one.last.unix_ns / 1000000000 < time(NULL) - 60;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, log_in_thread, NULL);
    for (int i = 0; i < TURNS; i++) {
        struct seen *seen = calloc(1, sizeof *seen);
        pthread_mutex_init(&seen->lock, NULL);
        wrong += tutti_set_logger(keep_line, seen) != TUTTI_OK;
        tutti_log("op", TUTTI_LOG_WARN, "turn");
        wrong += tutti_set_logger(NULL, NULL) != TUTTI_OK;
        wrong += seen->n < 1 || seen->n != seen->refused;
        free(seen);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    tutti_log("op", TUTTI_LOG_WARN, "to stderr, %d wrong", wrong);
}

static void test_logger(void **state)
{
    (void)state;
    char *text = RUN(use_logger, "TUTTI_LOG_LIMIT=0");
    assert_has(text, "warn op: nested 1\n");
    assert_has(text, "to stderr, 0 wrong\n");
    assert_int_equal(text_count(text, "to the logger"), 0);
    free(text);
}

/* A child that is forked while other threads are inside the logger and hold its locks. */
static void fork_while_logging(void)
{
    enum { FORKS = 30 };
    pthread_t threads[2];
    struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER};
    tutti_set_logger(keep_line, &seen);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, log_in_thread, NULL);
    int ended = 0;
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            tutti_set_logger(NULL, NULL); /* waits for nobody: the threads do not exist here */
            tutti_log("op", TUTTI_LOG_WARN, "in a child");
            raise(SIGKILL); /* an exit would report the parent's threads as leaks under TSan */
        }
        int status = -1;
        ended += waitpid(child, &status, 0) == child && status == SIGKILL;
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    tutti_set_logger(NULL, NULL);
    tutti_log("op", TUTTI_LOG_WARN, "%d of %d ended", ended, FORKS);
}

static void test_fork(void **state)
{
    (void)state;
    char *text = RUN(fork_while_logging, "TUTTI_LOG_LIMIT=0");
    assert_has(text, "30 of 30 ended\n");
    assert_int_equal(text_count(text, "in a child\n"), 30);
    free(text);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_log.%d.XXXXXX", (int)getpid());
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path_of("stderr"));
    unlink(path_of("pids"));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),         cmocka_unit_test(test_lines),
        cmocka_unit_test(test_time),           cmocka_unit_test(test_file),
        cmocka_unit_test(test_file_fails),     cmocka_unit_test(test_file_closed),
        cmocka_unit_test(test_limit),          cmocka_unit_test(test_processes_do_not_mix),
        cmocka_unit_test(test_repeated_lines), cmocka_unit_test(test_logger),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
