#include "plugin/backend_spec.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/text.h"

static int add_name(struct backend_spec *names, int device, const char *text, size_t length, const char *whole)
{
    if (length == 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "backend \"%.200s\": a name is empty; remove the extra separator",
                         whole);
    if (length >= SPEC_NAME_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "backend \"%.200s\": a name is longer than %d characters; shorten it", whole,
                         SPEC_NAME_MAX - 1);
    if (names->n[device] == SPEC_MOST)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "backend \"%.200s\": more than %d names for one device; list fewer", whole, SPEC_MOST);
    char *name = names->name[device][names->n[device]];
    for (size_t i = 0; i < length; i++)
        name[i] = text[0] == '/' ? text[i] : (char)tolower((unsigned char)text[i]); /* a path keeps its case */
    name[length] = '\0';
    for (int i = 0; i < names->n[device]; i++)
        if (strcmp(names->name[device][i], name) == 0)
            return error_set(TUTTI_ERR_INVALID_ARGUMENT, "backend \"%.200s\": \"%.80s\" is listed twice", whole, name);
    names->n[device]++;
    return TUTTI_OK;
}

/* Adds the names of a list such as "tcp|mpi". */
static int add_list(struct backend_spec *names, int device, const char *text, size_t length, const char *whole)
{
    for (;;) {
        const char *bar = memchr(text, '|', length);
        size_t part = bar != NULL ? (size_t)(bar - text) : length;
        int status = add_name(names, device, text, part, whole);
        if (status != TUTTI_OK || bar == NULL) return status;
        length -= part + 1;
        text = bar + 1;
    }
}

static int parse_device(const char *text, size_t length)
{
    if (length == 3 && strncasecmp(text, "cpu", 3) == 0) return 0;
    if (length == 4 && strncasecmp(text, "cuda", 4) == 0) return 1;
    return -1;
}

int backend_spec_parse(const char *text, struct backend_spec *names)
{
    memset(names, 0, sizeof *names);
    if (text == NULL || strcasecmp(text, "auto") == 0) {
        names->automatic = true;
        strcpy(names->name[0][0], "tcp");
        strcpy(names->name[0][1], "mpi");
        names->n[0] = 2;
        return TUTTI_OK;
    }
    if (strlen(text) >= SPEC_TEXT_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "the backend string is longer than %d characters; shorten it",
                         SPEC_TEXT_MAX - 1);
    if (strchr(text, ':') == NULL && strchr(text, ',') == NULL) return add_list(names, 0, text, strlen(text), text);
    names->by_device = true;
    const char *part = text;
    for (;;) {
        size_t length = strcspn(part, ",");
        const char *colon = memchr(part, ':', length);
        if (colon == NULL)
            return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                             "backend \"%.200s\": \"%.*s\" has no device; write \"cpu:tcp,cuda:nccl\"", text,
                             (int)(length < 80 ? length : 80), part);
        int device = parse_device(part, (size_t)(colon - part));
        if (device < 0)
            return error_set(TUTTI_ERR_INVALID_ARGUMENT, "backend \"%.200s\": unknown device \"%.*s\"; use cpu or cuda",
                             text, (int)(colon - part), part);
        if (names->n[device] > 0)
            return error_set(TUTTI_ERR_INVALID_ARGUMENT, "backend \"%.200s\": device \"%.*s\" is listed twice", text,
                             (int)(colon - part), part);
        int status = add_list(names, device, colon + 1, length - (size_t)(colon + 1 - part), text);
        if (status != TUTTI_OK) return status;
        if (part[length] == '\0') return TUTTI_OK;
        part += length + 1;
    }
}

void backend_spec_print(const struct backend_spec *names, char *text, size_t size)
{
    struct text print = text_in(text, size);
    if (names->automatic) {
        text_add(&print, "auto");
        return;
    }
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < names->n[device]; i++) {
            const char *lead = i > 0               ? "|"
                               : !names->by_device ? ""
                               : device == 0       ? "cpu:"
                               : print.at > text   ? ",cuda:"
                                                   : "cuda:";
            text_add(&print, lead);
            text_add(&print, names->name[device][i]);
        }
}

const char *backend_spec_suggest(const char *name)
{
    static const char *const known[][2] = {{"gloo", "tcp"},  {"ofi", "tcp"},     {"libfabric", "tcp"}, {"ucc", "tcp"},
                                           {"cuda", "nccl"}, {"openmpi", "mpi"}, {"mpich", "mpi"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i][0]) == 0) return known[i][1];
    return NULL;
}
