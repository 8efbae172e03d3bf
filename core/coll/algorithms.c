/* The table of all algorithms, and the names of collectives. */
#include <string.h>

#include "parts.h"

const struct coll_algorithm coll_algorithms[] = {
#define ROW(kind, prefix, name, uneven, order, piece, ...)                                                             \
    {TUTTI_##kind, #name, prefix##_##name, uneven, COLL_IN_ORDER_##order, COLL_##piece, {__VA_ARGS__}},
    COLL_ALGORITHMS(ROW)
#undef ROW
        {.kind = TUTTI_KIND_COUNT, .name = NULL},
};

static bool is_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

const struct coll_algorithm *coll_find(tutti_kind kind, const char *name, size_t length)
{
    for (const struct coll_algorithm *i = coll_algorithms; i->name; i++)
        if (i->kind == kind && is_name(i->name, name, length)) return i;
    return NULL;
}

const struct coll_algorithm *coll_nth(tutti_kind kind, int n)
{
    for (const struct coll_algorithm *i = coll_algorithms; i->name; i++)
        if (i->kind == kind && n-- == 0) return i;
    return NULL;
}

const char *coll_kind_name(tutti_kind kind)
{
    return coll_nth(kind, 0) != NULL ? tutti_kind_find(kind)->name : NULL;
}

int coll_kind(const char *name, size_t length)
{
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++)
        if (is_name(tutti_kind_find((tutti_kind)kind)->name, name, length) && coll_nth((tutti_kind)kind, 0) != NULL)
            return kind;
    return -1;
}
