#include "common/output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- data ------------------------------------------------------------------------------------------------------- */

FILE *output_data(void)
{
    static FILE *stream;
    if (stream) return stream;
    const char *text = getenv("TUTTI_STDOUT_FD");
    char *end = NULL;
    long fd = text && *text ? strtol(text, &end, 10) : -1;
    if (end && *end == '\0' && fd >= 0 && fd < 1 << 20) {
        int flags = fcntl((int)fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) stream = fdopen((int)fd, "w");
    }
    if (!stream) stream = stdout;
    return stream;
}

/* ---- colours ---------------------------------------------------------------------------------------------------- */

static bool has_colours(FILE *stream)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(stream)) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

const char *output_begin(FILE *stream, enum output_colour colour)
{
    static const char *const codes[] = {
        [OUTPUT_RED] = "\033[31m", [OUTPUT_GREEN] = "\033[32m", [OUTPUT_YELLOW] = "\033[33m"};
    return has_colours(stream) ? codes[colour] : "";
}

const char *output_end(FILE *stream)
{
    return has_colours(stream) ? "\033[0m" : "";
}

/* ---- progress --------------------------------------------------------------------------------------------------- */

static const int64_t second_ns = 1000000000;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * second_ns + now.tv_nsec;
}

void progress_begin(struct progress *progress, int total, bool asked)
{
    bool terminal = isatty(STDERR_FILENO);
    *progress =
        (struct progress){.wanted = terminal || asked, .terminal = terminal, .total = total, .start_ns = now_ns()};
}

/* Writes the time that the remaining steps will take if they take as long as those before. */
static void write_left(const struct progress *progress, int64_t now, char *text, size_t bytes)
{
    double each = progress->done ? (double)(now - progress->start_ns) / 1e9 / progress->done : 0;
    int left = (int)(each * (progress->total - progress->done) + 0.5);
    if (!progress->done)
        snprintf(text, bytes, "time left unknown");
    else if (left < 60)
        snprintf(text, bytes, "%d s left", left);
    else
        snprintf(text, bytes, "%d min %d s left", left / 60, left % 60);
}

void progress_at(struct progress *progress, int done, const char *what)
{
    char left[48];
    progress->done = done;
    int64_t now = now_ns(), gap = progress->terminal ? second_ns / 10 : second_ns;
    bool due = progress->wanted && (!progress->last_ns || now - progress->last_ns >= gap);
    if (due) {
        write_left(progress, now, left, sizeof left);
        fprintf(stderr, "%s%d of %d, %s: %s%s", progress->terminal ? "\r" : "", progress->done + 1, progress->total,
                left, what, progress->terminal ? "\033[K" : "\n");
        progress->last_ns = now;
        progress->shown = progress->terminal;
    }
}

void progress_step(struct progress *progress, const char *what)
{
    progress_at(progress, progress->done, what);
    if (progress->done < progress->total - 1) progress->done++;
}

void progress_clear(struct progress *progress)
{
    if (progress->shown) fputs("\r\033[K", stderr);
    progress->shown = false;
}
