#include "node_wire.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

#define FIRST_WORD "tutti-node 1"

enum { NODE_LOST_MAX = 12 };

/* ---- frames ----------------------------------------------------------------------------------------------------- */

void node_write_head(char head[NODE_FRAME_HEAD], enum node_frame frame, size_t bytes)
{
    head[0] = (char)frame;
    for (int i = 0; i < 4; i++) head[1 + i] = (char)(bytes >> 8 * i & 0xff);
}

bool node_read_head(const char head[NODE_FRAME_HEAD], enum node_frame *frame, size_t *bytes)
{
    *frame = (enum node_frame)head[0];
    *bytes = 0;
    for (int i = 0; i < 4; i++) *bytes |= (size_t)(unsigned char)head[1 + i] << 8 * i;
    switch (*frame) {
    case NODE_CONFIG:
        return *bytes <= NODE_FRAME_MAX;
    case NODE_GO:
        return *bytes <= 512;
    case NODE_DATA:
        return *bytes >= 1 && *bytes <= NODE_INPUT_MAX;
    case NODE_SIGNAL:
        return *bytes == 1;
    case NODE_LOST:
        return *bytes >= 1 && *bytes < NODE_LOST_MAX;
    case NODE_END_DATA:
    case NODE_END:
    case NODE_LAST:
    case NODE_BEAT:
        return *bytes == 0;
    }
    return false;
}

int node_read_number(const char *text, int most)
{
    char *end;
    long number = strtol(text, &end, 10);
    return end != text && !*end && number >= 0 && number <= most ? (int)number : -1;
}

int node_read_lost(const char *data, size_t bytes, int nodes)
{
    char text[NODE_LOST_MAX];
    snprintf(text, sizeof text, "%.*s", (int)bytes, data);
    int node = node_read_number(text, nodes - 1);
    return node > 0 ? node : -1;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* Appends a word and its end. */
static void put(struct buffer *out, const char *word)
{
    size_t bytes = strlen(word) + 1;
    if (out->capacity - out->used < bytes) {
        out->capacity = 2 * out->capacity + bytes;
        out->data = memory_resize(out->data, out->capacity);
    }
    memcpy(out->data + out->used, word, bytes);
    out->used += bytes;
}

static void put_text(struct buffer *out, const char *key, const char *value)
{
    char *word = memory_print("%s=%s", key, value);
    put(out, word);
    free(word);
}

static void put_int(struct buffer *out, const char *key, int64_t value)
{
    char word[64];
    snprintf(word, sizeof word, "%s=%" PRId64, key, value);
    put(out, word);
}

static void put_token(struct buffer *out, const uint8_t token[TUTTI_TOKEN_BYTES])
{
    char digits[2 * TUTTI_TOKEN_BYTES + 1], word[sizeof digits + 8];
    for (int i = 0; i < TUTTI_TOKEN_BYTES; i++) snprintf(digits + 2 * i, 3, "%02x", token[i]);
    snprintf(word, sizeof word, "token=%s", digits);
    put(out, word);
    explicit_bzero(digits, sizeof digits);
    explicit_bzero(word, sizeof word);
}

void node_write_config(const struct node_config *config, struct buffer *out)
{
    put(out, FIRST_WORD);
    put_text(out, "version", config->version);
    put_text(out, "host", config->host);
    put_text(out, "folder", config->folder);
    put_text(out, "log_dir", config->log_dir);
    put_text(out, "bind", config->bind);
    put_int(out, "node", config->node);
    put_int(out, "nodes", config->nodes);
    put_int(out, "nproc", config->nproc);
    put_int(out, "first", config->first_rank);
    put_int(out, "world", config->world_size);
    put_int(out, "goes_on", config->goes_on);
    put_int(out, "replace", config->replace);
    put_int(out, "backoff", config->backoff_ms);
    put_int(out, "grace", config->grace_ms);
    put_int(out, "wait", config->wait_ms);
    put_int(out, "silent", config->silent_ms);
    put_int(out, "no_prefix", config->no_prefix);
    for (char **word = config->variables; *word; word++) put_text(out, "variable", *word);
    for (char **word = config->program; *word; word++) put_text(out, "program", *word);
    put_token(out, config->token); /* last, so that growing leaves no copy of it */
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Returns the value if the word has this key, or NULL. */
static char *value_of(char *word, const char *key)
{
    size_t length = strlen(key);
    return strncmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

/* Lists the values of all words with this key, ended by NULL. */
static char **list_values(char *text, const char *end, const char *key)
{
    size_t n = 0;
    char **list = memory_resize(NULL, sizeof *list);
    for (char *word = text; word < end; word += strlen(word) + 1) {
        char *value = value_of(word, key);
        if (!value) continue;
        list = memory_resize(list, (n + 2) * sizeof *list);
        list[n++] = value;
    }
    list[n] = NULL;
    return list;
}

/* Returns the value of the first word with this key, or NULL. */
static char *find(char *text, const char *end, const char *key)
{
    char *value = NULL;
    for (char *word = text; word < end && !value; word += strlen(word) + 1) value = value_of(word, key);
    return value;
}

static bool find_int(char *text, const char *end, const char *key, int64_t low, int64_t high, int64_t *number)
{
    char *rest, *value = find(text, end, key);
    *number = value ? strtoll(value, &rest, 10) : 0;
    return value && rest != value && !*rest && *number >= low && *number <= high;
}

static bool find_token(char *text, const char *end, uint8_t token[TUTTI_TOKEN_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    char *value = find(text, end, "token");
    if (!value || strlen(value) != 2 * TUTTI_TOKEN_BYTES || strspn(value, digits) != 2 * TUTTI_TOKEN_BYTES)
        return false;
    for (int i = 0; i < TUTTI_TOKEN_BYTES; i++)
        token[i] =
            (uint8_t)((strchr(digits, value[2 * i]) - digits) << 4 | (strchr(digits, value[2 * i + 1]) - digits));
    return true;
}

/* Reads the numbers.  Returns the key of one that is missing or out of range, or NULL. */
static const char *read_numbers(struct node_config *config, char *text, const char *end)
{
    int64_t node, nodes, nproc, first, world, no_prefix, goes_on, replace;
    if (!find_int(text, end, "nodes", 1, 1 << 16, &nodes)) return "nodes";
    if (!find_int(text, end, "node", 0, nodes - 1, &node)) return "node";
    if (!find_int(text, end, "world", 1, INT_MAX, &world)) return "world";
    if (!find_int(text, end, "nproc", 1, world < 1 << 20 ? world : 1 << 20, &nproc)) return "nproc";
    if (!find_int(text, end, "first", 0, world - nproc, &first)) return "first";
    if (!find_int(text, end, "no_prefix", 0, 1, &no_prefix)) return "no_prefix";
    if (!find_int(text, end, "goes_on", 0, 1, &goes_on)) return "goes_on";
    if (!find_int(text, end, "replace", 0, 1 << 20, &replace)) return "replace";
    if (!find_int(text, end, "backoff", 0, INT64_C(1) << 50, &config->backoff_ms)) return "backoff";
    if (!find_int(text, end, "grace", 0, INT64_C(1) << 50, &config->grace_ms)) return "grace";
    if (!find_int(text, end, "wait", 1, INT_MAX, &config->wait_ms)) return "wait";
    if (!find_int(text, end, "silent", 100, INT_MAX, &config->silent_ms)) return "silent";
    config->node = (int)node;
    config->nodes = (int)nodes;
    config->world_size = (int)world;
    config->nproc = (int)nproc;
    config->first_rank = (int)first;
    config->no_prefix = no_prefix == 1;
    config->goes_on = goes_on == 1;
    config->replace = (int)replace;
    return NULL;
}

static const char *read_texts(struct node_config *config, char *text, const char *end)
{
    const char *keys[] = {"version", "host", "folder", "log_dir", "bind"};
    const char **to[] = {&config->version, &config->host, &config->folder, &config->log_dir, &config->bind};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!(*to[i] = find(text, end, keys[i]))) return keys[i];
    return NULL;
}

const char *node_read_config(char *text, size_t bytes, struct node_config *config)
{
    const char *end = text + bytes;
    *config = (struct node_config){.memory = text, .bytes = bytes};
    if (bytes < sizeof FIRST_WORD || text[bytes - 1] != '\0' || strcmp(text, FIRST_WORD) != 0)
        return "its first word is not " FIRST_WORD;
    config->variables = list_values(text, end, "variable");
    config->program = list_values(text, end, "program");
    const char *wrong = read_numbers(config, text, end);
    if (!wrong) wrong = read_texts(config, text, end);
    if (!wrong && !find_token(text, end, config->token)) wrong = "token";
    if (!wrong && !config->program[0]) wrong = "program";
    for (char **word = config->variables; !wrong && *word; word++)
        if (**word == '=' || !strchr(*word, '=')) wrong = "variable";
    return wrong;
}

void node_free_config(struct node_config *config)
{
    explicit_bzero(config->token, sizeof config->token);
    if (config->memory) explicit_bzero(config->memory, config->bytes);
    free(config->memory);
    free(config->variables);
    free(config->program);
}
