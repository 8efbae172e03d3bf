#include "group/meeting_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct attendee *meeting_log_find(const struct meeting_log *log, int64_t number)
{
    for (int i = 0; i < log->n; i++)
        if (log->attendee[i].number == number) return &log->attendee[i];
    return NULL;
}

/* Makes room for one more element.  Returns false if out of memory. */
static bool grow(void **array, int n, int *capacity, size_t bytes)
{
    if (n < *capacity) return true;
    int wanted = *capacity > 0 ? 2 * *capacity : 16;
    void *grown = realloc(*array, (size_t)wanted * bytes);
    if (grown == NULL) return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static struct attendee *find_or_add(struct meeting_log *log, int64_t number)
{
    struct attendee *found = meeting_log_find(log, number);
    void *array = log->attendee;
    if (found != NULL) return found;
    if (!grow(&array, log->n, &log->capacity, sizeof *log->attendee)) return NULL;
    log->attendee = array;
    log->attendee[log->n] = (struct attendee){.number = number, .old_rank = -1, .heard = -1};
    return &log->attendee[log->n++];
}

static bool add_pair(struct meeting_log *log, int64_t one, int64_t other)
{
    void *array = log->pair;
    if (!grow(&array, log->n_pairs, &log->pair_capacity, sizeof *log->pair)) return false;
    log->pair = array;
    log->pair[log->n_pairs++] = (struct meeting_pair){one, other};
    return true;
}

/* A line in parts: its first word, the number after it, and the rest. */
struct line {
    char word[8];
    int64_t number;
    const char *rest;
    size_t rest_bytes;
};

static bool split_line(const char *at, size_t bytes, struct line *line)
{
    char *end = NULL;
    size_t word = 0;
    while (word < bytes && at[word] != ' ') word++;
    if (word == 0 || word >= sizeof line->word || word + 1 >= bytes) return false;
    memcpy(line->word, at, word);
    line->word[word] = '\0';
    const char *number = at + word + 1;
    if (*number < '0' || *number > '9') return false;
    line->number = strtoll(number, &end, 10);
    line->rest = end + (*end == ' ');
    line->rest_bytes = line->rest < at + bytes ? (size_t)(at + bytes - line->rest) : 0;
    return line->number >= 0 && line->number < INT64_MAX;
}

static bool is_word(const struct line *line, const char *word)
{
    return strcmp(line->word, word) == 0;
}

/* Parses "R PROCESS" after the number of a member that enters: its old rank, or -1.  A line without a rank is
 * malformed, and its writer does not enter. */
static bool parse_entry(const struct line *line, int *rank, const char **process)
{
    const char *at = line->rest, *end = line->rest + line->rest_bytes;
    if (end - at >= 2 && at[0] == '-' && at[1] == '1') {
        *rank = -1;
        at += 2;
    } else {
        int64_t value = 0;
        const char *digits = at;
        for (; at < end && *at >= '0' && *at <= '9' && value < INT32_MAX; at++) value = 10 * value + (*at - '0');
        if (at == digits || value >= INT32_MAX) return false;
        *rank = (int)value;
    }
    *process = at < end ? at + 1 : at;
    return at == end || *at == ' ';
}

static void enter(struct attendee *attendee, const struct line *line, int rank, const char *process)
{
    size_t bytes = (size_t)(line->rest + line->rest_bytes - process);
    attendee->in = true;
    attendee->dead = false;
    attendee->old_rank = rank;
    if (bytes >= sizeof attendee->process) return; /* such a process is not checked */
    memcpy(attendee->process, process, bytes);
    attendee->process[bytes] = '\0';
}

static void record_failure(struct meeting_log *log, const struct line *line)
{
    char *end = NULL;
    long status = line->rest_bytes > 0 ? strtol(line->rest, &end, 10) : 0;
    if (log->status != 0 || meeting_log_is_made(log)) return;
    log->status = status < 0 && status >= TUTTI_ERR_NOT_FOUND ? (int)status : TUTTI_ERR_PEER_LOST;
    log->failed_by = line->number;
    if (end == NULL || end >= line->rest + line->rest_bytes || *end != ' ') return;
    snprintf(log->text, sizeof log->text, "%.*s", (int)(line->rest_bytes - (size_t)(end + 1 - line->rest)), end + 1);
}

/* Applies a line that follows the decision. */
static void apply_late_line(struct meeting_log *log, const struct line *line)
{
    struct attendee *attendee = meeting_log_find(log, line->number);
    if (attendee != NULL && is_word(line, "made") && log->status == 0) attendee->made = true;
    if (is_word(line, "fail")) record_failure(log, line);
}

/* Applies a line about an attendee.  Returns false if out of memory. */
static bool apply_line(struct meeting_log *log, const struct line *line, int number)
{
    bool here = is_word(line, "here"), in = is_word(line, "in");
    const char *process = NULL;
    int rank = -1;
    if (in && !parse_entry(line, &rank, &process)) return true;
    struct attendee *attendee = find_or_add(log, line->number);
    if (attendee == NULL) return false;
    if (in) enter(attendee, line, rank, process);
    if (here) attendee->dead = false;
    if (in || here) attendee->heard = number;
    if (is_word(line, "dead")) attendee->dead = true;
    if (is_word(line, "out")) attendee->in = false;
    if (is_word(line, "late")) attendee->late = true;
    if (is_word(line, "skip")) attendee->skipped = true;
    if (!is_word(line, "lost")) return true;
    attendee->lost = true;
    return add_pair(log, line->number, line->rest_bytes > 0 ? strtoll(line->rest, NULL, 10) : -1);
}

/* Returns false if out of memory. */
static bool apply(struct meeting_log *log, const struct line *line, int number)
{
    log->none |= !log->decided && is_word(line, "none");
    if (log->decided) {
        apply_late_line(log, line);
        return true;
    }
    log->decided = log->none || is_word(line, "decide");
    return log->decided || is_word(line, "ask") || apply_line(log, line, number);
}

int meeting_log_read(struct meeting_log *log, const char *text)
{
    struct meeting_log fresh = {
        .attendee = log->attendee, .capacity = log->capacity, .pair = log->pair, .pair_capacity = log->pair_capacity};
    const char *end;
    *log = fresh;
    for (int number = 0; (end = strchr(text, '\n')) != NULL; text = end + 1, number++) {
        struct line line;
        if (split_line(text, (size_t)(end - text), &line) && !apply(log, &line, number))
            return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for %d ranks that meet", log->n);
    }
    return TUTTI_OK;
}

void meeting_log_free(struct meeting_log *log)
{
    free(log->attendee);
    free(log->pair);
    *log = (struct meeting_log){0};
}

int meeting_log_asked(const char *text, int64_t by)
{
    int asked = -1;
    const char *end;
    for (int number = 0; (end = strchr(text, '\n')) != NULL; text = end + 1, number++) {
        struct line line;
        if (!split_line(text, (size_t)(end - text), &line) || !is_word(&line, "ask")) continue;
        if (by < 0 || line.number == by) asked = number;
    }
    return asked;
}

void meeting_log_exclude_unconnected(struct meeting_log *log)
{
    for (int i = 0; i < log->n_pairs; i++) {
        struct attendee *one = meeting_log_find(log, log->pair[i].one);
        struct attendee *other = meeting_log_find(log, log->pair[i].other);
        if (one == NULL || other == NULL || !attendee_stays(one) || !attendee_stays(other)) continue;
        (one->number > other->number ? one : other)->in = false;
    }
}

int meeting_log_count(const struct meeting_log *log)
{
    int n = 0;
    for (int i = 0; i < log->n; i++) n += attendee_stays(&log->attendee[i]);
    return n;
}

bool meeting_log_is_made(const struct meeting_log *log)
{
    if (!log->decided || log->status != 0) return false;
    for (int i = 0; i < log->n; i++)
        if (attendee_stays(&log->attendee[i]) && !log->attendee[i].made) return false;
    return true;
}
