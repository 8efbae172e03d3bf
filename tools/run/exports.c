#include "exports.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

static const char *say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static const char *say(const char *format, ...)
{
    static char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

static bool is_name(const char *name, size_t length)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return length >= 1 && strspn(name, letters) >= length && (*name < '0' || *name > '9');
}

/* Adds an entry "NAME=value", which the list then owns. */
static void put(struct exports *exports, char *entry)
{
    size_t length = strcspn(entry, "=") + 1;
    for (int i = 0; i < exports->n; i++) {
        if (strncmp(exports->list[i], entry, length) != 0) continue;
        free(exports->list[i]);
        exports->list[i] = entry;
        return;
    }
    exports->list = memory_resize(exports->list, (size_t)(exports->n + 2) * sizeof *exports->list);
    exports->list[exports->n++] = entry;
    exports->list[exports->n] = NULL;
}

const char *exports_add(struct exports *exports, const char *text)
{
    size_t length = strcspn(text, "=");
    if (!is_name(text, length)) /* the value may be a secret */
        return say("\"%.*s\" is not the name of a variable", (int)(length < 80 ? length : 80), text);
    const char *value = text[length] ? NULL : getenv(text);
    if (text[length])
        put(exports, memory_print("%s", text));
    else if (value)
        put(exports, memory_print("%s=%s", text, value));
    else
        return say("%s is not set; give %s=VALUE", text, text);
    return NULL;
}

/* Removes quotes around a value, in place. */
static void unquote(char *value)
{
    size_t length = strlen(value);
    if (length < 2 || (*value != '"' && *value != '\'') || value[length - 1] != *value) return;
    memmove(value, value + 1, length - 2);
    value[length - 2] = '\0';
}

static const char *take_line(struct exports *exports, char *line)
{
    size_t length = strcspn(line, "\r\n");
    while (length > 0 && strchr(" \t", line[length - 1])) length--;
    line[length] = '\0';
    line += strspn(line, " \t");
    if (strncmp(line, "export ", 7) == 0) line += 7 + strspn(line + 7, " \t");
    if (*line == '\0' || *line == '#') return NULL;
    char *equals = strchr(line, '=');
    if (equals) unquote(equals + 1);
    return exports_add(exports, line);
}

const char *exports_read(struct exports *exports, const char *path)
{
    char *line = NULL;
    size_t capacity = 0;
    const char *wrong = NULL;
    FILE *file = fopen(path, "re");
    if (!file) return say("cannot open %s: %s", path, strerror(errno));
    for (int number = 1; !wrong && getline(&line, &capacity, file) >= 0; number++) {
        wrong = take_line(exports, line);
        char *text = wrong ? memory_print("%s line %d: %s", path, number, wrong) : NULL;
        if (text) wrong = say("%s", text);
        free(text);
    }
    if (!wrong && ferror(file)) wrong = say("cannot read %s: %s", path, strerror(errno));
    free(line);
    fclose(file);
    return wrong;
}

const char *exports_get(const struct exports *exports, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < exports->n; i++)
        if (strncmp(exports->list[i], name, length) == 0 && exports->list[i][length] == '=')
            return exports->list[i] + length + 1;
    return getenv(name);
}

void exports_free(struct exports *exports)
{
    for (int i = 0; i < exports->n; i++) free(exports->list[i]);
    free(exports->list);
    *exports = (struct exports){0};
}

/* True for a variable of Tutti that is meant for other hosts, too. */
static bool is_for_hosts(const char *entry)
{
    static const char *const own[] = {"TUTTI_TOKEN",     "TUTTI_STDOUT_FD",    "TUTTI_STORE_HOSTED",
                                      "TUTTI_SSH=",      "TUTTI_ON_FAILURE",   "TUTTI_MEMBER=",
                                      "TUTTI_NEWCOMER=", "TUTTI_RESTART_COUNT"};
    if (strncmp(entry, "TUTTI_", 6) != 0) return false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strncmp(entry, own[i], strlen(own[i])) == 0) return false;
    return true;
}

char **exports_for_hosts(const struct exports *exports)
{
    size_t all = 0, n = 0;
    while (environ[all]) all++;
    char **list = memory_resize(NULL, (all + (size_t)exports->n + 1) * sizeof *list);
    for (size_t i = 0; i < all; i++)
        if (is_for_hosts(environ[i])) list[n++] = environ[i];
    for (int i = 0; i < exports->n; i++) list[n++] = exports->list[i];
    list[n] = NULL;
    return list;
}
