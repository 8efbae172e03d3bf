/* Lists of names in a text, such as "ring, fixed_tree" or "mpi tcp". */
#ifndef NAME_LIST_H
#define NAME_LIST_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* True if the list has the name as a whole. */
static inline bool name_list_has(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && strchr(", ", at[length]) != NULL) return true; /* finds the end, too */
    return false;
}

/* Appends the name, after the separator (" " or ", ") if the list is not empty.  A name that the list has already, or
 * for which there is no space, is left out. */
static inline void name_list_add(char *list, size_t capacity, const char *separator, const char *name)
{
    size_t used = strlen(list);
    if (used == 0) separator = "";
    if (name_list_has(list, name) || used + strlen(separator) + strlen(name) >= capacity) return;
    snprintf(list + used, capacity - used, "%s%s", separator, name);
}

#endif
