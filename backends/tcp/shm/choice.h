/* A measured choice between the ways in which one operation of one size can be done (docs/measured-choice.md).
 *
 * A way is used for a span of calls.  The last calls of a span are timed as a whole operation each, without the first
 * call, which warms caches.  After the span, its mean time updates the way's estimate, and the way of the next span is
 * picked: sometimes one that has no estimate yet, otherwise the one with the smallest estimate.  The first span of all
 * does not count, and the next one takes the same way.
 *
 * No clock is read here, and no memory is shared: the caller feeds times and counts calls.
 */
#ifndef SHM_CHOICE_H
#define SHM_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHOICE_WAYS = 8,      /* a set of ways is a bit mask */
    CHOICE_CLASSES = 16,  /* size classes: 2 KiB to 4 KiB, .., 64 MiB and more */
    CHOICE_MIN = 2 << 10, /* bytes of the smallest operation that has a choice */
    CHOICE_STEADY = 128,  /* minimum calls of a span in which nothing is tried */
    CHOICE_REPAY = 16,    /* calls of the best way for each call's time that another one has taken longer */
    CHOICE_TEXT = 512     /* capacity for an explanation */
};

struct choice {
    uint64_t ns[CHOICE_WAYS];      /* estimates of one call's time; 0: none */
    uint64_t longest[CHOICE_WAYS]; /* the longest time of the current calibration */
    uint8_t rounds[CHOICE_WAYS];   /* spans that the current calibration has timed */
    uint64_t sum_ns, largest_ns;   /* of the times in the current span */
    int times;                     /* their number */
    uint8_t way;                   /* the way of the current span */
    uint8_t tried;                 /* the way that was tried last */
    uint8_t trials;                /* how often there was a trial */
    uint8_t timed;                 /* the set of ways that have been timed; other estimates are of a lower class */
    uint8_t rough;                 /* those whose first round had at most two times */
    uint64_t doubted_ns; /* a time much longer than the estimate, which the next span confirms or not; 0: none */
    uint64_t calls, trial_at, restart_at; /* calls so far; when the next trial is due, and a calibration allowed */
    uint32_t trial_gap, restart_gap;      /* calls from that to the next one */
};

static inline int choice_class(size_t bytes)
{
    int c = 63 - __builtin_clzll((unsigned long long)(bytes | CHOICE_MIN)) - 11;
    return c < CHOICE_CLASSES ? c : CHOICE_CLASSES - 1;
}

/* Returns the calls of a short span of a size class, at least 2. */
int choice_short_span(int class);

/* Returns the number of classes next below a class in which ways most likely compare as they do in it: at most three,
 * of at least 256 KiB, where bytes count more than calls. */
int choice_alike(int class);

/* Starts the choice of a size class with the ways from which its first one is picked: that becomes the best one of a
 * lower class, and ways that took far longer than the best one there are not timed in the calibration.  It is the next
 * lower class in which a way has been timed, if the two are alike.  `stride`: the distance of two classes' choices in
 * memory. */
void choice_start(struct choice *choice, unsigned ways, int class, size_t stride);

/* Adds the time of a call in the current span. */
void choice_add(struct choice *choice, int64_t ns);

/* Ends a span and picks the way of the next one from the set `ways`, which is not empty.  Returns the length of that
 * span in calls, at least `shortest`. */
int choice_end_span(struct choice *choice, unsigned ways, int shortest);

/* Prints the estimates of the ways that have been timed, for example "; measured: pipelined 12.3 us, direct 20.1 us".
 * `what` is measured (for example "measured"), and name[way] names a way. */
void choice_print(const struct choice *choice, const char *what, const char *const *name, char *text, size_t capacity);

#endif
