#include "tcp/base/spares.h"

#include <stdlib.h>

enum { CLASS_MIN = 256 };

/* At the start of memory that is kept. */
struct spare {
    struct spare *next;
};

static size_t capacity(int class)
{
    return ((size_t)CLASS_MIN << class) + SPARES_HEADER;
}

/* Returns the smallest class for that many bytes, or SPARES_CLASSES. */
static int find_class(size_t bytes)
{
    int class = 0;
    while (class < SPARES_CLASSES && capacity(class) < bytes) class ++;
    return class;
}

void *spares_take(struct spares *spares, size_t bytes)
{
    int class = find_class(bytes);
    if (class == SPARES_CLASSES) return malloc(bytes);
    struct spare *spare = spares->first[class];
    if (spare == NULL) return malloc(capacity(class));
    spares->first[class] = spare->next;
    spares->bytes -= capacity(class);
    return spare;
}

void spares_give(struct spares *spares, void *memory, size_t bytes)
{
    int class = find_class(bytes);
    if (class == SPARES_CLASSES || spares->bytes + capacity(class) > SPARES_MAX) {
        free(memory);
        return;
    }
    struct spare *spare = memory;
    spare->next = spares->first[class];
    spares->first[class] = spare;
    spares->bytes += capacity(class);
}

void spares_free(struct spares *spares)
{
    for (int class = 0; class < SPARES_CLASSES; class ++) {
        struct spare *spare;
        while ((spare = spares->first[class]) != NULL) {
            spares->first[class] = spare->next;
            free(spare);
        }
    }
    spares->bytes = 0;
}
