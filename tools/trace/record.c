#include "trace/record.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_VERSION = 1 };

/* ---- words ----------------------------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes %XX in place.  Control characters become question marks, because users see the text. */
static const char *decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        int high = *from == '%' ? hex_digit(from[1]) : -1, low = high >= 0 ? hex_digit(from[2]) : -1;
        int c = low >= 0 ? high * 16 + low : (unsigned char)*from;
        if (low >= 0) from += 2;
        *to++ = (char)(c < ' ' || c == 0x7f ? '?' : c);
    }
    *to = '\0';
    return text;
}

static int64_t to_number(const char *text)
{
    return strtoll(text, NULL, 10); /* saturates; no number is 0 */
}

static int to_int(const char *text)
{
    long long value = strtoll(text, NULL, 10);
    return value < INT_MIN ? INT_MIN : value > INT_MAX ? INT_MAX : (int)value;
}

/* Cuts the next " key=value" off *line.  Returns false at its end. */
static bool next_pair(char **line, const char **key, char **value)
{
    char *word = strsep(line, " ");
    while (word != NULL && strchr(word, '=') == NULL) word = strsep(line, " ");
    if (word == NULL) return false;
    *value = strchr(word, '=');
    *(*value)++ = '\0';
    *key = word;
    return true;
}

/* Returns an array with space for another element, or NULL if out of memory: then *n stays as it is. */
static void *append(void *array, size_t *n, size_t bytes)
{
    void *larger = array;
    if ((*n & (*n - 1)) == 0) larger = realloc(array, (*n > 0 ? 2 * *n : 1) * bytes);
    if (larger == NULL) return NULL;
    memset((char *)larger + *n * bytes, 0, bytes);
    ++*n;
    return larger;
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

static void parse_process(char *line, struct record_file *file)
{
    const char *key;
    char *value;
    while (next_pair(&line, &key, &value)) {
        if (strcmp(key, "job") == 0) file->job = strtoull(value, NULL, 16);
        if (strcmp(key, "rank") == 0) file->rank = to_int(value);
        if (strcmp(key, "pid") == 0) file->pid = to_int(value);
        if (strcmp(key, "ns") == 0) file->ns = to_number(value);
        if (strcmp(key, "wall_ns") == 0) file->wall_ns = to_number(value);
        if (strcmp(key, "host") == 0) file->host = decode(value);
        if (strcmp(key, "version") == 0) file->version = decode(value);
        if (strcmp(key, "why") == 0) file->why = decode(value);
    }
}

static bool parse_mark(char *line, struct record_file *file)
{
    const char *key;
    char *value;
    void *larger = append(file->marks, &file->n_marks, sizeof *file->marks);
    if (larger == NULL) return false;
    file->marks = larger;
    struct record_mark *mark = &file->marks[file->n_marks - 1];
    mark->text = "";
    while (next_pair(&line, &key, &value)) {
        if (strcmp(key, "number") == 0) mark->number = to_int(value);
        if (strcmp(key, "text") == 0) mark->text = decode(value);
    }
    return true;
}

static bool parse_group(char *line, struct record_file *file)
{
    const char *key;
    char *value;
    void *larger = append(file->groups, &file->n_groups, sizeof *file->groups);
    if (larger == NULL) return false;
    file->groups = larger;
    struct record_group *group = &file->groups[file->n_groups - 1];
    group->name = group->ranks = group->status = group->text = "";
    group->first = file->n_ops;
    while (next_pair(&line, &key, &value)) {
        if (strcmp(key, "id") == 0) group->id = strtoull(value, NULL, 16);
        if (strcmp(key, "seq") == 0) group->seq = strtoull(value, NULL, 10);
        if (strcmp(key, "rank") == 0) group->rank = to_int(value);
        if (strcmp(key, "size") == 0) group->size = to_int(value);
        if (strcmp(key, "busy") == 0) group->busy = to_int(value) != 0;
        if (strcmp(key, "name") == 0) group->name = decode(value);
        if (strcmp(key, "ranks") == 0) group->ranks = decode(value);
        if (strcmp(key, "status") == 0) group->status = decode(value);
        if (strcmp(key, "text") == 0) group->text = decode(value);
    }
    return true;
}

static void set_text(struct record_op *op, const char *key, char *value)
{
    if (strcmp(key, "state") == 0) op->state = decode(value);
    if (strcmp(key, "kind") == 0) op->kind = decode(value);
    if (strcmp(key, "call") == 0) op->call = decode(value);
    if (strcmp(key, "status") == 0) op->status = decode(value);
    if (strcmp(key, "peers") == 0) op->peers = decode(value);
}

static bool parse_op(char *line, bool waits, struct record_file *file)
{
    const char *key;
    char *value;
    if (file->n_groups == 0) return true; /* of no group */
    void *larger = append(file->ops, &file->n_ops, sizeof *file->ops);
    if (larger == NULL) return false;
    file->ops = larger;
    file->groups[file->n_groups - 1].n++;
    struct record_op *op = &file->ops[file->n_ops - 1];
    *op = (struct record_op){.waits = waits, .root = -1};
    op->state = op->kind = op->call = op->status = op->peers = "";
    while (next_pair(&line, &key, &value)) {
        if (strcmp(key, "seq") == 0) op->seq = strtoull(value, NULL, 10);
        if (strcmp(key, "fingerprint") == 0) op->fingerprint = strtoull(value, NULL, 16);
        if (strcmp(key, "issued") == 0) op->issued = to_number(value);
        if (strcmp(key, "bytes") == 0) op->bytes = to_number(value);
        if (strcmp(key, "root") == 0) op->root = to_int(value);
        if (strcmp(key, "tag") == 0) op->tag = to_int(value);
        if (strcmp(key, "mark") == 0) op->mark = to_int(value);
        set_text(op, key, value);
    }
    return true;
}

/* Parses a line after the first.  Returns false if out of memory. */
static bool parse_line(char *line, struct record_file *file)
{
    const char *word = strsep(&line, " ");
    if (line == NULL) return true;
    if (strcmp(word, "process") == 0) parse_process(line, file);
    if (strcmp(word, "mark") == 0) return parse_mark(line, file);
    if (strcmp(word, "group") == 0) return parse_group(line, file);
    if (strcmp(word, "op") == 0) return parse_op(line, false, file);
    if (strcmp(word, "wait") == 0) return parse_op(line, true, file);
    if (strcmp(word, "end") == 0) file->is_whole = true;
    return true;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Returns the next whole line, without its end, or NULL. */
static char *next_line(char **at, const char *end)
{
    char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
    if (stop == NULL) return NULL;
    *stop = '\0';
    *at = stop + 1;
    return line;
}

const char *record_parse(char *data, size_t bytes, struct record_file *file)
{
    static const char first[] = "tutti-record ";
    char *at = data, *path = file->path;
    *file = (struct record_file){.path = path, .data = data, .rank = -1, .host = "", .version = "", .why = ""};
    data[bytes] = '\0';
    char *line = next_line(&at, data + bytes);
    if (line == NULL || strncmp(line, first, sizeof first - 1) != 0) return "is not a flight record";
    if (to_int(line + sizeof first - 1) != RECORD_VERSION)
        return "has a version of the format that this tool does not know";
    while ((line = next_line(&at, data + bytes)) != NULL)
        if (!parse_line(line, file)) return "does not fit into memory";
    return NULL;
}

void record_close(struct record_file *file)
{
    free(file->path);
    free(file->data);
    free(file->groups);
    free(file->ops);
    free(file->marks);
    *file = (struct record_file){0};
}

const char *record_mark_text(const struct record_file *file, int number)
{
    for (size_t i = 0; i < file->n_marks; i++)
        if (file->marks[i].number == number) return file->marks[i].text;
    return NULL;
}

int record_ranks(const char *text, int *ranks, int most)
{
    int n = 0;
    while (*text >= '0' && *text <= '9') {
        char *end;
        long first = strtol(text, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long rank = first; rank <= last && rank < INT_MAX && n < most; rank++) ranks[n++] = (int)rank;
        if (*end != ',' || n == most) break;
        text = end + 1;
    }
    return n;
}
