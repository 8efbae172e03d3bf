#include "conformance/scoreboard.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static size_t mapping_bytes(int n_cases)
{
    return sizeof(struct scoreboard) + (size_t)n_cases * RANKS_MAX * sizeof(struct result);
}

struct scoreboard *scoreboard_new(int n_cases, int ranks)
{
    struct scoreboard *scoreboard =
        mmap(NULL, mapping_bytes(n_cases), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (scoreboard == MAP_FAILED) return NULL;
    scoreboard->n_cases = n_cases;
    scoreboard->ranks = ranks;
    return scoreboard;
}

void scoreboard_free(struct scoreboard *scoreboard)
{
    munmap(scoreboard, mapping_bytes(scoreboard->n_cases));
}

void scoreboard_begin(struct scoreboard *scoreboard, int first)
{
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    memset(&scoreboard->meeting, 0, sizeof scoreboard->meeting); /* ranks of an earlier launch may have died in it */
    pthread_barrier_init(&scoreboard->meeting, &attributes, (unsigned)scoreboard->ranks);
    scoreboard->first = first;
    atomic_store(&scoreboard->ended, false);
    scoreboard->end[0] = '\0';
    for (int i = 0; i < scoreboard->ranks; i++) {
        atomic_store(&scoreboard->states[i].at, first);
        atomic_store(&scoreboard->states[i].since_ns, scoreboard_now_ns());
        atomic_store(&scoreboard->states[i].pid, 0);
        atomic_store(&scoreboard->states[i].step, 0);
    }
}

void scoreboard_end(struct scoreboard *scoreboard, const char *format, ...)
{
    va_list arguments;
    if (atomic_exchange(&scoreboard->ended, true)) return;
    va_start(arguments, format);
    vsnprintf(scoreboard->end, sizeof scoreboard->end, format, arguments);
    va_end(arguments);
}

int64_t scoreboard_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* True for a text with a status that a failure on another rank may cause. */
static bool is_consequence(const char *text)
{
    return strstr(text, "TUTTI_ERR_ABORTED") != NULL || strstr(text, "TUTTI_ERR_PEER_LOST") != NULL ||
           strstr(text, "TUTTI_ERR_TIMEOUT") != NULL;
}

static int list_ranks(struct scoreboard *scoreboard, int at, enum verdict verdict, char *text, size_t capacity)
{
    int used = 0;
    text[0] = '\0';
    for (int i = 0; i < scoreboard->ranks; i++)
        if (scoreboard_result(scoreboard, at, i)->verdict == verdict && (size_t)used < capacity)
            used += snprintf(text + used, capacity - (size_t)used, " %d", i);
    return used;
}

/* Checks that the bits of the ranks' results agree, if the case needs that. */
static enum verdict compare_ranks(struct scoreboard *scoreboard, int at, const struct check *check, char *text,
                                  size_t capacity)
{
    int first = -1;
    for (int i = 0; i < scoreboard->ranks; i++) {
        const struct result *result = scoreboard_result(scoreboard, at, i);
        if (result->verdict != PASSED) continue;
        if (first < 0) first = i;
        if (check->same_bits && result->bits != scoreboard_result(scoreboard, at, first)->bits) {
            snprintf(text, capacity, "the results' bits differ on ranks %d and %d", first, i);
            return FAILED;
        }
    }
    return PASSED;
}

/* True if only some ranks of a group report that the case is unsupported.  The halves of a split are two groups. */
static bool disagrees(struct scoreboard *scoreboard, int at, const struct check *check)
{
    int halves = check->spec.where == SPLIT ? 2 : 1;
    for (int i = 0; i < scoreboard->ranks; i++)
        for (int k = i % halves; k < i; k += halves) {
            enum verdict a = scoreboard_result(scoreboard, at, i)->verdict,
                         b = scoreboard_result(scoreboard, at, k)->verdict;
            if ((a == SKIPPED && b == PASSED) || (a == PASSED && b == SKIPPED)) return true;
        }
    return false;
}

enum verdict scoreboard_fold(struct scoreboard *scoreboard, int at, const struct check *check, char *text,
                             size_t capacity)
{
    int count[FAILED + 1] = {0}, worst = -1;
    text[0] = '\0';
    for (int i = 0; i < scoreboard->ranks; i++) {
        const struct result *result = scoreboard_result(scoreboard, at, i);
        count[result->verdict]++;
        bool better = worst < 0 || result->verdict > scoreboard_result(scoreboard, at, worst)->verdict ||
                      (result->verdict == FAILED && is_consequence(scoreboard_result(scoreboard, at, worst)->text) &&
                       !is_consequence(result->text));
        if ((result->verdict == FAILED || result->verdict == SKIPPED) && better) worst = i;
    }
    char skipped[64] = "", alone[128] = "";
    list_ranks(scoreboard, at, SKIPPED, skipped, sizeof skipped);
    if (count[SKIPPED] > 0) snprintf(alone, sizeof alone, "unsupported only on ranks%s; ", skipped);
    if (count[FAILED] > 0) {
        snprintf(text, capacity, "%srank %d: %s", alone, worst, scoreboard_result(scoreboard, at, worst)->text);
        return FAILED;
    }
    if (disagrees(scoreboard, at, check)) {
        snprintf(text, capacity, "%s%s", alone, scoreboard_result(scoreboard, at, worst)->text);
        return FAILED;
    }
    if (count[SKIPPED] > 0) {
        snprintf(text, capacity, "%s", scoreboard_result(scoreboard, at, worst)->text);
        return SKIPPED;
    }
    return count[PASSED] > 0 ? compare_ranks(scoreboard, at, check, text, capacity) : NOT_RUN;
}
