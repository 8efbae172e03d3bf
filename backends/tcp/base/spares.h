/* Memory of messages that wait for something, kept for the next ones.
 *
 * After a burst of such messages free() gives their pages back to the kernel.  The next burst would fault all of them
 * in again, which takes several times as long as the copies.
 */
#ifndef TCP_SPARES_H
#define TCP_SPARES_H

#include <stddef.h>

enum {
    SPARES_CLASSES = 11, /* 64 bytes, 128, .., 64 KiB, each with SPARES_HEADER more */
    SPARES_HEADER = 192, /* for what a message has besides its payload, which often is a power of two */
    SPARES_MAX = 8 << 20 /* bytes that are kept */
};

/* All zero at first. */
struct spares {
    struct spare *first[SPARES_CLASSES];
    size_t bytes; /* kept */
};

/* Returns memory as malloc does.  free() may free it, too. */
void *spares_take(struct spares *spares, size_t bytes);
/* Keeps or frees memory that spares_take has returned for that many bytes. */
void spares_give(struct spares *spares, void *memory, size_t bytes);
/* Frees all that is kept. */
void spares_free(struct spares *spares);

#endif
