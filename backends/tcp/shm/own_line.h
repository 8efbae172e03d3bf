/* Asks for a cache line that this rank will write soon.
 *
 * A line that another rank has read is in that rank's cache, too.  A store to it ends only when that copy is gone,
 * which takes as long as fetching the line.  Stores become visible in their order, so the reader waits for this one,
 * and so does the writer's next atomic instruction, such as the lock of its next call.  A rank that asks at the end of
 * an operation has the line when the next one writes it.  Asking costs some 30 cycles, so it pays for the first line of
 * a slot and not for much data.
 */
#ifndef OWN_LINE_H
#define OWN_LINE_H

#include <stddef.h>

static inline void own_line(const void *line)
{
#if defined __x86_64__
    /* For the baseline of this architecture, the compiler's built-in function fetches a line to read it.  Processors
     * without this instruction ignore it. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* Asks for the lines of `bytes` from `from` on. */
static inline void own_lines(const void *from, size_t bytes)
{
    enum { LINE = 64 };
    for (size_t at = 0; at < bytes; at += LINE) own_line((const char *)from + at);
}

#endif
