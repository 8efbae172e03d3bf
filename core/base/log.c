#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_file.h"
#include "base/log_limit.h"
#include "base/log_logger.h"
#include "portable/environment.h"

enum { TEXT_MAX = 1024, LINE_MAX_BYTES = TEXT_MAX + 256, HOST_BYTES = 65 };

#define UNREAD(NAME, name) LOG_UNREAD,
_Atomic signed char log_levels[LOG_SUBSYSTEMS] = {LOG_SUBSYSTEM_ROWS(UNREAD)};

static atomic_int known_rank = -1;

/* What the environment says.  Read once, and not changed later. */
static struct {
    char host[HOST_BYTES];
    const char *file; /* NULL: stderr */
    unsigned most;
    char wrong[TEXT_MAX]; /* about the first malformed variable; "" if there is none */
} settings;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;

/* ---- settings ------------------------------------------------------------------------------------------------ */

/* Returns the variable's text, or fallback.  env_string cannot be used here, because env.c logs. */
static const char *read_env(const char *name, const char *fallback)
{
    const char *text = environment_get(name);
    return text != NULL && *text != '\0' ? text : fallback;
}

static void read_limit(void)
{
    const char *text = read_env("TUTTI_LOG_LIMIT", NULL);
    char *end = NULL;
    settings.most = LOG_LIMIT_LINES;
    if (text == NULL) return;
    long most = strtol(text, &end, 10);
    if (end != text && *end == '\0' && most >= 0 && most <= 1000000)
        settings.most = (unsigned)most;
    else if (settings.wrong[0] == '\0')
        snprintf(settings.wrong, sizeof settings.wrong,
                 "TUTTI_LOG_LIMIT is \"%.40s\"; it must be a number of lines from 0 (no limit) to 1000000; using %d",
                 text, LOG_LIMIT_LINES);
}

static void report_left_out_at_exit(void);

static void read_settings(void)
{
    signed char levels[LOG_SUBSYSTEMS];
    char *file;
    if (gethostname(settings.host, sizeof settings.host) != 0) strcpy(settings.host, "unknown");
    settings.host[sizeof settings.host - 1] = '\0';
    log_levels_parse(read_env("TUTTI_LOG", "warn"), levels, settings.wrong, sizeof settings.wrong);
    read_limit();
    file = strdup(read_env("TUTTI_LOG_FILE", "")); /* the program may change its environment */
    settings.file = file != NULL && *file != '\0' ? file : NULL;
    if (settings.file == NULL) free(file);
    atexit(report_left_out_at_exit);
    for (int i = 0; i < LOG_SUBSYSTEMS; i++)
        atomic_store_explicit(&log_levels[i], levels[i], memory_order_relaxed); /* relaxed: see log_enabled */
}

/* Reads the settings and reports a malformed one, once. */
static void ensure_settings(void)
{
    static atomic_bool reported;
    pthread_once(&settings_once, read_settings);
    if (settings.wrong[0] != '\0' && !atomic_exchange(&reported, true))
        log_print(LOG_WARN, LOG_INIT, "%s", settings.wrong);
}

int log_read_level(enum log_subsystem subsystem)
{
    ensure_settings();
    return atomic_load_explicit(&log_levels[subsystem], memory_order_relaxed);
}

void log_set_rank(int rank)
{
    atomic_store_explicit(&known_rank, rank, memory_order_relaxed); /* relaxed: no other data depends on it */
}

int log_rank(void)
{
    return atomic_load_explicit(&known_rank, memory_order_relaxed);
}

/* ---- lines --------------------------------------------------------------------------------------------------- */

/* Writes the date and time in UTC.  libc's functions take a lock, which a forked child may find taken for ever. */
static int format_time(char *text, size_t size, int64_t unix_ns)
{
    static const int lengths[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t seconds = unix_ns / 1000000000, days = seconds / 86400, in_day = seconds % 86400;
    int year = 1970, month = 0;
    for (;; year++) {
        bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        int length = 0;
        for (month = 0; month < 12; month++, days -= length) {
            length = lengths[month] + (month == 1 && leap);
            if (days < length) break;
        }
        if (month < 12) break;
    }
    return snprintf(text, size, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", year, month + 1, (int)days + 1,
                    (int)(in_day / 3600), (int)(in_day / 60 % 60), (int)(in_day % 60),
                    (int)(unix_ns % 1000000000 / 1000));
}

static void rank_text(int rank, char text[16])
{
    if (rank >= 0)
        snprintf(text, 16, "%d", rank);
    else
        snprintf(text, 16, "%.12s", read_env("RANK", "-"));
}

/* A line of text has no control characters: what a variable or a peer sends cannot forge lines. */
static void clean(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = ' ';
}

/* Formats "2026-11-25T20:26:12.000123Z node1:4711 tutti[2] warn store: text\n".  Returns its length. */
static size_t format_line(const tutti_log_line *line, const char *rank, char text[LINE_MAX_BYTES])
{
    size_t used = (size_t)format_time(text, LINE_MAX_BYTES, line->unix_ns);
    snprintf(text + used, LINE_MAX_BYTES - used - 1, " %s:%d tutti[%s] %s %.24s: %s", settings.host, (int)getpid(),
             rank, log_level_names[line->level], line->subsystem, line->text);
    clean(text); /* a subsystem's name and RANK are the program's */
    used = strlen(text);
    text[used] = '\n';
    return used + 1;
}

static void write_stderr(const tutti_log_line *line, const char *rank)
{
    char text[LINE_MAX_BYTES];
    ssize_t written = write(STDERR_FILENO, text, format_line(line, rank, text));
    (void)written; /* there is nowhere to report a failure */
}

/* Returns true if TUTTI_LOG_FILE is set and took the line. */
static bool write_file(const tutti_log_line *line, const char *rank)
{
    char text[LINE_MAX_BYTES], warning[LOG_FILE_WARNING];
    size_t bytes = format_line(line, rank, text);
    if (settings.file == NULL) return false;
    if (log_file_write(settings.file, settings.host, rank, text, bytes, warning)) return true;
    tutti_log_line about = *line;
    about.level = LOG_WARN;
    about.subsystem = log_subsystem_names[LOG_INIT];
    about.text = warning;
    if (warning[0] != '\0') write_stderr(&about, rank);
    return false;
}

/* Writes a line with one write(2), so that the lines of several processes do not mix. */
static void write_line(const tutti_log_line *line)
{
    char rank[16];
    rank_text(line->rank, rank);
    if (!write_file(line, rank)) write_stderr(line, rank);
}

static void put_line(int level, const char *subsystem, const char *text, bool to_logger)
{
    tutti_log_line line = {.size = sizeof line,
                           .level = level,
                           .rank = atomic_load_explicit(&known_rank, memory_order_relaxed),
                           .subsystem = subsystem,
                           .text = text,
                           .unix_ns = clock_unix_ns()};
    if (!to_logger || !log_logger_call(&line)) write_line(&line);
}

/* Reports the lines of places whose period has ended. */
static void report_left_out(int64_t now_ns, bool to_logger)
{
    struct log_left_out left_out;
    char text[LOG_LIMIT_TEXT + 80];
    while (log_limit_take(now_ns, &left_out)) {
        snprintf(text, sizeof text, "%u more like it were left out: \"%s\"", left_out.n, left_out.text);
        put_line(left_out.level, left_out.subsystem, text, to_logger);
    }
}

/* Does not call the program's logger, which may use what the program has freed by now. */
static void report_left_out_at_exit(void)
{
    report_left_out(INT64_MAX, false);
}

/* Writes a line that TUTTI_LOG wants.  Not cancelled inside, because locks are held and the logger is counted. */
static void print(int level, const char *subsystem, const char *format, va_list args)
{
    int saved = errno, cancel;
    char text[TEXT_MAX];
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (vsnprintf(text, sizeof text, format, args) >= 0) {
        int64_t now_ns = clock_now_ns();
        clean(text);
        report_left_out(now_ns, true);
        if (log_limit_allow(format, settings.most, level, subsystem, text, now_ns))
            put_line(level, subsystem, text, true);
    }
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
}

void log_print(int level, enum log_subsystem subsystem, const char *format, ...)
{
    va_list args;
    ensure_settings();
    va_start(args, format);
    print(level, log_subsystem_names[subsystem], format, args);
    va_end(args);
}

void log_vas(const char *subsystem, int level, const char *format, va_list args)
{
    if (level < LOG_ERROR || level > LOG_DEBUG || !log_enabled(level, log_subsystem_find(subsystem))) return;
    ensure_settings(); /* another thread may have read them */
    print(level, subsystem, format, args);
}
