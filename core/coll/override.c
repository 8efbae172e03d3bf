#include "coll/override.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/name_list.h"

/* ---- names --------------------------------------------------------------------------------------------------- */

static bool is_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

const struct coll_algorithm *override_path(const struct coll_path *paths, tutti_kind kind, const char *name,
                                           size_t length)
{
    for (const struct coll_path *i = paths; i != NULL && i->algorithm.name != NULL; i++)
        if (i->algorithm.kind == kind && is_name(i->algorithm.name, name, length)) return &i->algorithm;
    return NULL;
}

static const struct coll_algorithm *find_any(const struct coll_path *paths, tutti_kind kind, const char *name,
                                             size_t length)
{
    const struct coll_algorithm *found = coll_find(kind, name, length);
    return found != NULL ? found : override_path(paths, kind, name, length);
}

/* True if a backend of the group has paths for the kind. */
static bool has_paths(const struct coll_path *paths, tutti_kind kind)
{
    const struct coll_path *i = paths;
    while (i != NULL && i->algorithm.name != NULL && i->algorithm.kind != kind) i++;
    return i != NULL && i->algorithm.name != NULL;
}

/* Returns the kind of a name, or -1 if there is no choice for it. */
static int find_kind(const struct coll_path *paths, const char *name, size_t length)
{
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++)
        if (has_paths(paths, (tutti_kind)kind) && is_name(tutti_kind_find((tutti_kind)kind)->name, name, length))
            return kind;
    return coll_kind(name, length);
}

static int refuse_name(const struct coll_path *paths, int kind, const char *name, int length)
{
    char known[512] = "";
    for (const struct coll_algorithm *i = coll_algorithms; i->name != NULL; i++)
        if (kind < 0 || (int)i->kind == kind) name_list_add(known, sizeof known, ", ", i->name);
    for (const struct coll_path *i = paths; i != NULL && i->algorithm.name != NULL; i++)
        if (kind < 0 || (int)i->algorithm.kind == kind) name_list_add(known, sizeof known, ", ", i->algorithm.name);
    return error_set(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_ALGO: %s%sno algorithm \"%.*s\"; use one of: %s",
                     kind >= 0 ? tutti_kind_find((tutti_kind)kind)->name : "", kind >= 0 ? " has " : "", length, name,
                     known);
}

/* Parses "kind=name". */
static int read_pair(const char *item, size_t kind_length, size_t length, const struct coll_path *paths,
                     const struct coll_algorithm **found)
{
    int kind = find_kind(paths, item, kind_length);
    if (kind < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "TUTTI_ALGO: \"%.*s\" is not a collective; use a name such as all_reduce", (int)kind_length,
                         item);
    const char *name = item + kind_length + 1;
    size_t name_length = length - kind_length - 1;
    *found = find_any(paths, (tutti_kind)kind, name, name_length);
    return *found != NULL ? TUTTI_OK : refuse_name(paths, kind, name, (int)name_length);
}

/* Parses a name alone, which selects an algorithm for all kinds that have it. */
static int read_name(const char *name, size_t length, const struct coll_path *paths, tutti_kind wanted,
                     const struct coll_algorithm **found)
{
    bool known = false;
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++)
        known |= find_any(paths, (tutti_kind)kind, name, length) != NULL;
    *found = find_any(paths, wanted, name, length);
    return known ? TUTTI_OK : refuse_name(paths, -1, name, (int)length);
}

int override_find(const char *text, const struct coll_path *paths, tutti_kind wanted,
                  const struct coll_algorithm **chosen)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        const struct coll_algorithm *found = NULL;
        int status = TUTTI_OK;
        if (equals != NULL)
            status = read_pair(text, (size_t)(equals - text), length, paths, &found);
        else if (length > 0)
            status = read_name(text, length, paths, wanted, &found);
        if (status != TUTTI_OK) return status;
        if (found != NULL && found->kind == wanted) *chosen = found;
        text += length + (text[length] == ',');
    }
    return TUTTI_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

int override_rows_max(const struct coll_override *override)
{
    return TUTTI_KIND_COUNT + override->n_tuned;
}

static int add_row(const struct coll_algorithm *algorithm, int64_t max_bytes, const void *owner, tutti_path_row *row)
{
    int path = algorithm->build != NULL ? TUTTI_PATH_PLAN : coll_path_of(algorithm)->number;
    if (algorithm->build == NULL && coll_path_of(algorithm)->owner != owner) return 0; /* the path of another backend */
    *row = (tutti_path_row){algorithm->kind, path, max_bytes};
    return 1;
}

int override_rows(const struct coll_override *override, const void *owner, tutti_path_row *rows)
{
    int n = 0;
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++) {
        const struct coll_algorithm *named = NULL;
        bool has_choice = coll_nth((tutti_kind)kind, 0) != NULL || has_paths(override->paths, (tutti_kind)kind);
        if (override->names == NULL || !has_choice) continue;
        if (override_find(override->names, override->paths, (tutti_kind)kind, &named) != TUTTI_OK)
            named = coll_nth((tutti_kind)kind, 0);
        if (named != NULL) n += add_row(named, INT64_MAX, owner, rows + n);
    }
    for (int i = 0; i < override->n_tuned; i++)
        n += add_row(override->tuned[i].algorithm, override->tuned[i].max_bytes, owner, rows + n);
    return n;
}
