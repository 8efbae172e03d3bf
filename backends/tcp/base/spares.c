#include "tcp/base/spares.h"

#include <stdlib.h>

enum { CLASS_MIN = 64 };

/* At the start of memory that is kept. */
struct spare {
    struct spare *next;
};

static size_t capacity(int size_class)
{
    return ((size_t)CLASS_MIN << size_class) + SPARES_HEADER;
}

/* Returns the smallest class for that many bytes, or SPARES_CLASSES if they are not kept: too many, or so few that a
 * class would waste more than it saves. */
static int find_class(size_t bytes)
{
    int size_class = bytes > SPARES_HEADER ? 0 : SPARES_CLASSES;
    while (size_class < SPARES_CLASSES && capacity(size_class) < bytes) size_class++;
    return size_class;
}

void *spares_take(struct spares *spares, size_t bytes)
{
    int size_class = find_class(bytes);
    if (size_class == SPARES_CLASSES) return malloc(bytes);
    struct spare *spare = spares->first[size_class];
    if (spare == NULL) return malloc(capacity(size_class));
    spares->first[size_class] = spare->next;
    spares->bytes -= capacity(size_class);
    return spare;
}

void spares_give(struct spares *spares, void *memory, size_t bytes)
{
    int size_class = find_class(bytes);
    if (size_class == SPARES_CLASSES || spares->bytes + capacity(size_class) > SPARES_MAX) {
        free(memory);
        return;
    }
    struct spare *spare = memory;
    spare->next = spares->first[size_class];
    spares->first[size_class] = spare;
    spares->bytes += capacity(size_class);
}

void spares_free(struct spares *spares)
{
    for (int size_class = 0; size_class < SPARES_CLASSES; size_class++) {
        struct spare *spare;
        while ((spare = spares->first[size_class]) != NULL) {
            spares->first[size_class] = spare->next;
            free(spare);
        }
    }
    spares->bytes = 0;
}
