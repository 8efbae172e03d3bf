#include "coll/tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "coll/override.h"

#define TUNING_FIRST_LINE "tutti tuning 1"

enum { TUNING_BACKEND, TUNING_RANKS, TUNING_HOSTS, TUNING_OPERATION, TUNING_BYTES, TUNING_ALGORITHM, TUNING_WORDS };
enum { TUNING_WORD_MAX = 64, TUNING_LINE_MAX = 256 };

struct tuning_line {
    int number;
    char word[TUNING_WORDS][TUNING_WORD_MAX];
};

/* Splits a line into words and returns their number; -1 if there are too many or one is too long. */
static int split_words(const char *line, struct tuning_line *out)
{
    int words = 0;
    while (*(line += strspn(line, " \t\r")) != '\0') {
        size_t length = strcspn(line, " \t\r");
        if (words == TUNING_WORDS || length >= TUNING_WORD_MAX) return -1;
        memcpy(out->word[words], line, length);
        out->word[words++][length] = '\0';
        line += length;
    }
    return words;
}

static int parse_number(const struct tuning_line *line, int word, const char *what, int64_t low, int64_t high,
                        int64_t *value)
{
    char where[64];
    snprintf(where, sizeof where, "line %d: %s", line->number, what);
    return env_parse_int(where, line->word[word], low, high, value);
}

/* The group whose rows are parsed. */
struct tuning_group {
    const char *backend;
    int ranks, hosts;
    const struct coll_path *paths;
};

/* Parses a row.  Sets *applies if it is for this group. */
static int parse_row(const struct tuning_line *line, const struct tuning_group *group, struct coll_tuned *row,
                     bool *applies)
{
    const char *operation = line->word[TUNING_OPERATION], *algorithm = line->word[TUNING_ALGORITHM];
    size_t length = strlen(algorithm);
    int kind = coll_kind(operation, strlen(operation));
    if (kind < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "line %d: \"%s\" is not a collective; use a name such as all_reduce", line->number, operation);
    *row = (struct coll_tuned){(tutti_kind)kind, INT64_MAX, coll_find((tutti_kind)kind, algorithm, length)};
    if (row->algorithm == NULL) row->algorithm = override_path(group->paths, (tutti_kind)kind, algorithm, length);
    bool is_own = strcmp(line->word[TUNING_BACKEND], group->backend) == 0;
    if (row->algorithm == NULL && is_own)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "line %d: %s has no algorithm \"%s\"; tutti_algorithm_name lists them", line->number,
                         operation, algorithm);
    int64_t row_ranks = 0, row_hosts = 0;
    int status = parse_number(line, TUNING_RANKS, "ranks", 1, INT_MAX, &row_ranks);
    if (status == TUTTI_OK) status = parse_number(line, TUNING_HOSTS, "hosts", 1, INT_MAX, &row_hosts);
    if (status == TUTTI_OK && strcmp(line->word[TUNING_BYTES], "any") != 0)
        status = parse_number(line, TUNING_BYTES, "bytes", 0, INT64_MAX, &row->max_bytes);
    *applies = is_own && row_ranks == group->ranks && row_hosts == group->hosts;
    return status;
}

static int add_row(struct tuning *tuning, const struct coll_tuned *row)
{
    struct coll_tuned *grown = realloc(tuning->rows, (size_t)(tuning->n + 1) * sizeof *grown);
    if (grown == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for %d rows of TUTTI_TUNING", tuning->n + 1);
    tuning->rows = grown;
    tuning->rows[tuning->n++] = *row;
    return TUTTI_OK;
}

static int parse_line(const char *text, int number, const struct tuning_group *group, struct tuning *tuning)
{
    struct tuning_line line = {.number = number};
    struct coll_tuned row;
    bool applies = false;
    if (number == 1 && strcmp(text, TUNING_FIRST_LINE) != 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "line 1: \"%.40s\" is not a header; write \"%s\"", text,
                         TUNING_FIRST_LINE);
    if (number == 1 || text[0] == '#') return TUTTI_OK;
    int words = split_words(text, &line);
    if (words == 0) return TUTTI_OK;
    if (words != TUNING_WORDS)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "line %d: it must have six words: backend, ranks, hosts, operation, bytes, algorithm", number);
    int status = parse_row(&line, group, &row, &applies);
    return status == TUTTI_OK && applies ? add_row(tuning, &row) : status;
}

int tuning_parse(const char *text, const char *backend, int ranks, int hosts, const struct coll_path *paths,
                 struct tuning *tuning)
{
    const struct tuning_group group = {backend, ranks, hosts, paths};
    *tuning = (struct tuning){0};
    int status = TUTTI_OK;
    for (int number = 1; status == TUTTI_OK && (*text != '\0' || number == 1); number++) {
        char line[TUNING_LINE_MAX];
        size_t length = strcspn(text, "\n");
        if (length >= sizeof line) {
            status = error_set(TUTTI_ERR_INVALID_ARGUMENT, "line %d: it has more than %zu bytes; shorten it", number,
                               sizeof line - 1);
            break;
        }
        memcpy(line, text, length);
        line[length] = '\0';
        status = parse_line(line, number, &group, tuning);
        text += length + (text[length] == '\n');
    }
    if (status != TUTTI_OK) tuning_free(tuning);
    return status;
}

void tuning_free(struct tuning *tuning)
{
    free(tuning->rows);
    *tuning = (struct tuning){0};
}

/* Opens the file without blocking, as opening a pipe without a writer would. */
static FILE *open_file(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    FILE *file = NULL;
    if (fd < 0 || fstat(fd, &status) != 0)
        error_errno(TUTTI_ERR_SYSTEM, "it cannot be read");
    else if (!S_ISREG(status.st_mode))
        error_set(TUTTI_ERR_INVALID_ARGUMENT, "it is not a regular file");
    else if ((file = fdopen(fd, "r")) == NULL)
        error_errno(TUTTI_ERR_SYSTEM, "it cannot be read");
    if (file == NULL && fd >= 0) close(fd);
    return file;
}

/* Returns the whole file, or NULL with the error message set if it cannot be read, is too long, or is not text. */
static char *load_file(const char *path)
{
    FILE *file = open_file(path);
    if (file == NULL) return NULL;
    char *text = malloc(TUNING_TEXT_MAX + 1);
    size_t bytes = text != NULL ? fread(text, 1, TUNING_TEXT_MAX + 1, file) : 0;
    bool good = text != NULL && !ferror(file) && bytes <= TUNING_TEXT_MAX && memchr(text, '\0', bytes) == NULL;
    fclose(file);
    if (!good) {
        error_set(TUTTI_ERR_INVALID_ARGUMENT, "it is not a text of at most %d bytes", TUNING_TEXT_MAX);
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    return text;
}

char *tuning_read(const char *path)
{
    struct tuning unused;
    if (path == NULL) return NULL;
    char *text = load_file(path);
    if (text != NULL && tuning_parse(text, "", 1, 1, NULL, &unused) == TUTTI_OK) {
        tuning_free(&unused);
        return text;
    }
    log_write(LOG_WARN, LOG_OP, "TUTTI_TUNING=%s is not used: %s", path, error_text());
    free(text);
    return NULL;
}
