#include "hosts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

enum { NAME_LONGEST = 255 };

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

/* True if ssh and a shell take the name as it is: an option would begin with a dash. */
static bool is_name(const char *name, size_t length)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%@";
    return length >= 1 && length <= NAME_LONGEST && name[0] != '-' && strspn(name, letters) >= length;
}

static const char *add(struct hosts *hosts, const char *name, size_t length, int slots)
{
    if (!is_name(name, length))
        return say("\"%.*s\" is not the name of a host", (int)(length < 80 ? length : 80), name);
    for (int i = 0; i < hosts->n; i++) {
        struct host *host = &hosts->list[i];
        if (strlen(host->name) != length || strncmp(host->name, name, length) != 0) continue;
        if ((slots == 0) != (host->slots == 0))
            return say("host %s is listed with and without a number of ranks; give both a number", host->name);
        host->slots += slots;
        return host->slots > HOSTS_SLOTS_MAX ? say("host %s has more than %d ranks", host->name, HOSTS_SLOTS_MAX)
                                             : NULL;
    }
    if (hosts->n == HOSTS_MAX) return say("there are more than %d hosts", HOSTS_MAX);
    hosts->list = memory_resize(hosts->list, (size_t)(hosts->n + 1) * sizeof *hosts->list);
    hosts->list[hosts->n++] = (struct host){memory_print("%.*s", (int)length, name), slots};
    return NULL;
}

/* Parses a number of ranks that ends at one of the characters of `ends`.  Returns 0 if it is none. */
static int slots_of(const char *text, const char *ends)
{
    char *end;
    long slots = strtol(text, &end, 10);
    bool ended = *end == '\0' || strchr(ends, *end);
    return end != text && ended && slots >= 1 && slots <= HOSTS_SLOTS_MAX ? (int)slots : 0;
}

/* Adds one host, "HOST", "HOST:SLOTS", "[ADDRESS]" or "[ADDRESS]:SLOTS", of `length` characters.  `slots` is the number
 * that stands elsewhere in the line, or 0. */
static const char *add_word(struct hosts *hosts, const char *word, size_t length, int slots)
{
    const char *end = word + length, *name = word + (*word == '['), *colon = NULL;
    const char *name_end = *word == '[' ? memchr(word, ']', length) : end;
    if (!name_end) return say("\"%.*s\" lacks its \"]\"", (int)length, word);
    if (*word == '[') {
        colon = name_end + 1 < end ? name_end + 1 : NULL;
    } else {
        colon = memchr(word, ':', length);
        bool several = colon && memchr(colon + 1, ':', (size_t)(end - colon - 1)); /* an address of IPv6 */
        if (several) colon = NULL;
        if (colon) name_end = colon;
    }
    if (colon && slots) return say("\"%.*s\" has two numbers of ranks", (int)length, word);
    if (colon) slots = *colon == ':' ? slots_of(colon + 1, ", \t\n\r#") : 0;
    if (colon && !slots)
        return say("\"%.*s\" is not HOST:N with a number from 1 to %d", (int)length, word, HOSTS_SLOTS_MAX);
    return add(hosts, name, (size_t)(name_end - name), slots);
}

const char *hosts_add(struct hosts *hosts, const char *text)
{
    const char *wrong = NULL;
    while (!wrong) {
        size_t length = strcspn(text, ",");
        wrong = length ? add_word(hosts, text, length, 0) : say("the list has an empty name");
        if (!text[length]) break;
        text += length + 1;
    }
    return wrong;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* Parses the words after the host.  Returns what is wrong, or NULL. */
static const char *take_words(const char *text, int *slots)
{
    for (text += strspn(text, " \t"); *text; text += strspn(text, " \t")) {
        size_t length = strcspn(text, " \t");
        bool limit = strncmp(text, "max_slots=", 10) == 0 || strncmp(text, "max-slots=", 10) == 0;
        if (strncmp(text, "slots=", 6) == 0)
            *slots = slots_of(text + 6, " \t");
        else if (!limit)
            return say("\"%.*s\" is not slots=N", (int)(length < 80 ? length : 80), text);
        if (!limit && !*slots) return say("\"%.*s\" is not slots=N with a number from 1", (int)length, text);
        text += length;
    }
    return NULL;
}

static const char *take_line(struct hosts *hosts, char *line)
{
    int slots = 0;
    line[strcspn(line, "#\r\n")] = '\0';
    line += strspn(line, " \t");
    size_t length = strcspn(line, " \t");
    if (!length) return NULL;
    const char *wrong = take_words(line + length, &slots);
    return wrong ? wrong : add_word(hosts, line, length, slots);
}

const char *hosts_read(struct hosts *hosts, const char *path)
{
    char line[1024];
    const char *wrong = NULL;
    FILE *file = fopen(path, "re");
    if (!file) return say("cannot open %s: %s", path, strerror(errno));
    for (int number = 1; !wrong && fgets(line, sizeof line, file); number++) {
        char *copy = strlen(line) == sizeof line - 1 ? NULL : line;
        wrong = copy ? take_line(hosts, copy) : "the line is too long";
        if (!wrong) continue;
        copy = memory_print("%s line %d: %s", path, number, wrong);
        wrong = say("%s", copy);
        free(copy);
    }
    if (!wrong && ferror(file)) wrong = say("cannot read %s: %s", path, strerror(errno));
    if (!wrong && !hosts->n) wrong = say("%s names no host", path);
    fclose(file);
    return wrong;
}

void hosts_free(struct hosts *hosts)
{
    for (int i = 0; i < hosts->n; i++) free(hosts->list[i].name);
    free(hosts->list);
    *hosts = (struct hosts){0};
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

const char *hosts_address(const struct host *host)
{
    const char *at = strrchr(host->name, '@');
    return at ? at + 1 : host->name;
}

bool hosts_is_loopback(const struct host *host)
{
    const char *name = hosts_address(host);
    return strcmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0 || strcmp(name, "::1") == 0;
}

bool hosts_is_this(const struct host *host)
{
    char own[256] = "";
    if (strchr(host->name, '@')) return false; /* perhaps another user's account */
    gethostname(own, sizeof own - 1);
    return hosts_is_loopback(host) || strcmp(host->name, own) == 0;
}
