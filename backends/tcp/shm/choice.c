#include "tcp/shm/choice.h"

#include <stdio.h>

enum {
    ROUNDS = 3,           /* spans for which each way is timed in a calibration */
    SPAN_MAX = 8,         /* calls of a short span of small operations */
    SPAN_MIN = 2,         /* of large ones; the first call is not timed */
    SPAN_BYTES = 1 << 20, /* bytes that a short span moves, between these limits */
    MEAN_OF = 2,          /* times that all count */
    TRY_FIRST = 1000,     /* calls from a calibration to the first trial */
    TRY_LAST = 16000,     /* maximum calls between two trials, and between two calibrations */
    FAR_TURNS = 8,        /* every eighth trial is of a way that is FAR slower */
    ALIKE = 3,            /* classes above a class in which its ways most likely compare as they do there */
    ALIKE_FROM = 7        /* the lowest such class: 256 KiB */
};

/* Ratios of two times, in eighths. */
enum {
    SAME = 8,
    CLOSE = 10, /* after two rounds, slower ways are left out */
    NEAR = 16,  /* after one round */
    DOUBT = 10, /* a longer time must be confirmed */
    DRIFT = 12, /* the machine has changed */
    FAR = 24
};

enum { NS_MAX = 1000000000 }; /* a longer time says nothing */

static bool exceeds(uint64_t ns, uint64_t limit_ns, int eighths)
{
    return ns * SAME > limit_ns * (uint64_t)eighths;
}

int choice_short_span(int class)
{
    size_t calls = SPAN_BYTES / ((size_t)CHOICE_MIN << class);
    return calls < SPAN_MIN ? SPAN_MIN : calls > SPAN_MAX ? SPAN_MAX : (int)calls;
}

static bool has(unsigned ways, int way)
{
    return (ways >> way & 1) != 0;
}

/* Returns the way with the smallest estimate.  Returns -1 if no way has one. */
static int find_best(const struct choice *choice, unsigned ways)
{
    int best = -1;
    for (int i = 0; i < CHOICE_WAYS; i++)
        if (has(ways, i) && choice->ns[i] > 0 && (best < 0 || choice->ns[i] < choice->ns[best])) best = i;
    return best;
}

/* ---- recording --------------------------------------------------------------------------------------------- */

/* Doubles the calls between two events, up to TRY_LAST.  Returns when the next one is due. */
static uint64_t postpone(const struct choice *choice, uint32_t *gap)
{
    *gap = *gap == 0 ? TRY_FIRST : *gap < TRY_LAST / 2 ? *gap * 2 : TRY_LAST;
    return choice->calls + *gap;
}

/* Starts a calibration: the estimates of the other ways are from before a change of the machine. */
static void restart(struct choice *choice)
{
    if (choice->calls < choice->restart_at) return; /* times vary as much as that */
    uint64_t ns = choice->ns[choice->way];
    for (int i = 0; i < CHOICE_WAYS; i++) choice->ns[i] = choice->rounds[i] = 0;
    choice->ns[choice->way] = choice->longest[choice->way] = ns;
    choice->rounds[choice->way] = 1;
    choice->timed = (uint8_t)(1u << choice->way);
    choice->rough &= choice->timed;
    choice->trial_gap = 0;
    choice->trial_at = postpone(choice, &choice->trial_gap);
    choice->restart_at = postpone(choice, &choice->restart_gap);
}

/* Records a time in a calibration.  The estimate is the shorter of two times, and the median of three.  `rough`: the
 * time is the mean of so few that it includes the longest one. */
static void calibrate(struct choice *choice, uint64_t ns, bool rough)
{
    uint64_t *known = &choice->ns[choice->way], *longest = &choice->longest[choice->way];
    int rounds = ++choice->rounds[choice->way];
    choice->timed |= (uint8_t)(1u << choice->way);
    if (rounds == 1 && rough) choice->rough |= (uint8_t)(1u << choice->way);
    if (rounds == 1)
        *known = *longest = ns;
    else if (rounds == 2 && ns > *known)
        *longest = ns;
    else if (rounds == 2)
        *known = ns;
    else if (ns > *known)
        *known = ns < *longest ? ns : *longest;
}

/* Updates the estimate of a way that has been calibrated.  A single long time may be an interruption, so it counts only
 * if the next span confirms it. */
static void update(struct choice *choice, uint64_t ns, bool is_best)
{
    uint64_t *known = &choice->ns[choice->way], before = *known;
    if (choice->doubted_ns == 0 && exceeds(ns, before, DOUBT)) {
        choice->doubted_ns = ns;
        return;
    }
    if (choice->doubted_ns > 0 && choice->doubted_ns < ns) ns = choice->doubted_ns;
    choice->doubted_ns = 0;
    bool drifts = exceeds(ns, before, DRIFT) || exceeds(before, ns, DRIFT);
    *known = drifts ? ns : (3 * before + ns) / 4;
    if (drifts && is_best) restart(choice);
}

int choice_alike(int class)
{
    int below = class - ALIKE_FROM;
    return below < 0 ? 0 : below < ALIKE ? below : ALIKE;
}

/* An estimate counts as a first round.  The others are not taken over: a best way that is slower than assumed would be
 * taken until three spans have shown that. */
void choice_start(struct choice *choice, unsigned ways, int class, size_t stride)
{
    for (int below = 1; below <= choice_alike(class); below++) {
        const struct choice *smaller = (const void *)((const char *)choice - (size_t)below * stride);
        if (smaller->timed == 0) continue;
        int best = find_best(smaller, smaller->timed), first = find_best(smaller, smaller->timed & ways);
        for (int i = 0; i < CHOICE_WAYS; i++) {
            if (!has(smaller->timed, i) || !exceeds(smaller->ns[i], smaller->ns[best], FAR)) continue;
            choice->ns[i] = choice->longest[i] = smaller->ns[i] << below;
            choice->rounds[i] = 1;
        }
        choice->trials = FAR_TURNS - 2; /* the first trial is of such a way */
        if (first >= 0) choice->way = (uint8_t)first;
        return;
    }
}

/* ---- picking ----------------------------------------------------------------------------------------------- */

/* True if the calibration times the way once more. */
static bool is_open(const struct choice *choice, int way, uint64_t best_ns)
{
    int rounds = choice->rounds[way];
    if (rounds == 0) return true;
    if (rounds == 1 && has(choice->rough, way)) return true; /* a call may have been interrupted */
    return rounds < ROUNDS && !exceeds(choice->ns[way], best_ns, rounds == 1 ? NEAR : CLOSE);
}

/* Returns the way that the calibration times next, or -1 at its end. */
static int find_open(const struct choice *choice, unsigned ways, uint64_t best_ns)
{
    int open = -1;
    for (int i = 0; i < CHOICE_WAYS; i++)
        if (has(ways, i) && is_open(choice, i, best_ns) && (open < 0 || choice->rounds[i] < choice->rounds[open]))
            open = i;
    return open;
}

/* Returns the way to try now, or -1.  Each of the others has its turn, a FAR slower one rarely. */
static int find_trial(struct choice *choice, unsigned ways, int best)
{
    if (choice->calls < choice->trial_at) return -1;
    if (choice->trial_gap > 0) choice->trials++;
    bool tries_far = choice->trials % FAR_TURNS == FAR_TURNS - 1, is_first = choice->trial_gap == 0;
    choice->trial_at = postpone(choice, &choice->trial_gap);
    for (int i = 1; i <= CHOICE_WAYS && !is_first; i++) {
        int way = (choice->tried + i) % CHOICE_WAYS;
        if (!has(ways, way) || way == best) continue;
        if (exceeds(choice->ns[way], choice->ns[best], FAR) != tries_far) continue;
        choice->tried = (uint8_t)way;
        return way;
    }
    return -1;
}

void choice_add(struct choice *choice, int64_t ns)
{
    uint64_t time = ns < 1 ? 1 : ns > NS_MAX ? NS_MAX : (uint64_t)ns;
    choice->sum_ns += time;
    if (time > choice->largest_ns) choice->largest_ns = time;
    choice->times++;
}

/* Returns the mean time of the span's calls, if they are more than MEAN_OF without the longest one, which may have been
 * interrupted. */
static uint64_t take_mean(struct choice *choice)
{
    uint64_t sum = choice->sum_ns, n = (uint64_t)choice->times;
    if (n > MEAN_OF) sum -= choice->largest_ns, n--;
    choice->sum_ns = choice->largest_ns = 0;
    choice->times = 0;
    return n > 0 ? sum / n : NS_MAX;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Returns the calls of a span of the best way.  A sixteenth of them may be timed. */
static int steady_span(int shortest)
{
    return larger(CHOICE_REPAY * shortest, CHOICE_STEADY);
}

/* Returns the calls of the best way that repay a span of another one.  A way that is as fast has cost nothing.
 * A longer span would rely on a single measurement. */
static int span_of_best(uint64_t ns, uint64_t best_ns, int shortest)
{
    int least = 2 * shortest, most = steady_span(shortest);
    if (best_ns == 0 || ns <= best_ns) return least;
    uint64_t calls = (ns - best_ns) * (uint64_t)shortest * CHOICE_REPAY / best_ns;
    return calls < (uint64_t)least ? least : calls > (uint64_t)most ? most : (int)calls;
}

int choice_end_span(struct choice *choice, unsigned ways, int shortest)
{
    int way = choice->way, best = find_best(choice, ways), length = shortest;
    bool is_first = choice->calls == 0, rough = choice->times <= MEAN_OF;
    uint64_t ns = take_mean(choice);
    if (is_first) { /* memory is new, and ranks that have slept may still share a core */
        choice->calls = (uint64_t)shortest;
        return shortest;
    }
    if (choice->rounds[way] < ROUNDS)
        calibrate(choice, ns, rough);
    else
        update(choice, ns, way == best);
    if (choice->doubted_ns == 0) {
        best = find_best(choice, ways);
        int open = find_open(choice, ways, best < 0 ? 0 : choice->ns[best]), other = open;
        if (best < 0) best = open; /* other calls of this class could take other ways */
        if (other < 0) other = find_trial(choice, ways, best);
        if (other != best && way != best) other = -1; /* the others take a small part of the calls */
        choice->way = (uint8_t)(other < 0 ? best : other);
        if (other < 0) length = open < 0 ? steady_span(shortest) : span_of_best(ns, choice->ns[best], shortest);
    }
    choice->calls += (uint64_t)length;
    return length;
}

void choice_print(const struct choice *choice, const char *what, const char *const *name, char *text, size_t capacity)
{
    if (choice->timed == 0) {
        snprintf(text, capacity, "; not %s yet", what);
        return;
    }
    int length = snprintf(text, capacity, "; %s: ", what);
    const char *separator = "";
    for (int i = 0; i < CHOICE_WAYS && length >= 0 && (size_t)length < capacity; i++) {
        if (!has(choice->timed, i)) continue;
        text += length;
        capacity -= (size_t)length;
        length = snprintf(text, capacity, "%s%s %.1f us", separator, name[i], (double)choice->ns[i] / 1000);
        separator = ", ";
    }
}
