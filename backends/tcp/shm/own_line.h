/* Asks for cache lines that this rank will write or read soon.
 *
 * A line that another rank has read is in that rank's cache, too.  A store to it ends only when that copy is gone,
 * which takes as long as fetching the line.  Stores become visible in their order, so the reader waits for this one,
 * and so does the writer when its processor's store buffer is full.  A rank that asks some operations ahead has the
 * line when it writes it.  The same holds for a reader and lines that another rank has written.  Asking costs some 30
 * cycles, so it does not pay for much data.
 */
#ifndef OWN_LINE_H
#define OWN_LINE_H

#include <stddef.h>
#include <stdint.h>

enum {
    OWN_LINE = 64, /* bytes of a cache line */
    OWN_AHEAD = 3  /* messages or steps ahead in which a rank asks for lines that it will fill */
};

static inline void own_line(const void *line)
{
#if defined __x86_64__
    /* For the baseline of this architecture, the compiler's built-in function fetches a line to read it.  Processors
     * without this instruction ignore it. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
    __asm__ volatile(""); /* see fetch_line */
#endif
}

/* The same for a line that this rank will only read. */
static inline void fetch_line(const void *line)
{
    __builtin_prefetch(line);
    __asm__ volatile(""); /* a call of a function without other effects than a prefetch may be dropped */
}

/* Returns the first byte of the first line. */
static inline const char *first_line(const void *from)
{
    return (const char *)from - (uintptr_t)from % OWN_LINE;
}

/* Asks for the lines of `bytes` from `from` on. */
static inline void own_lines(const void *from, size_t bytes)
{
    for (const char *line = first_line(from); line < (const char *)from + bytes; line += OWN_LINE) own_line(line);
}

/* The same as fetch_line. */
static inline void fetch_lines(const void *from, size_t bytes)
{
    for (const char *line = first_line(from); line < (const char *)from + bytes; line += OWN_LINE) fetch_line(line);
}

#endif
