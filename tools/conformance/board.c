#include "conformance/board.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static size_t board_bytes(int n_cases)
{
    return sizeof(struct board) + (size_t)n_cases * RANKS_MOST * sizeof(struct result);
}

struct board *board_new(int n_cases, int ranks)
{
    struct board *board = mmap(NULL, board_bytes(n_cases), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return NULL;
    board->n_cases = n_cases;
    board->ranks = ranks;
    return board;
}

void board_free(struct board *board)
{
    munmap(board, board_bytes(board->n_cases));
}

void board_begin(struct board *board, int first)
{
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    memset(&board->meeting, 0, sizeof board->meeting); /* ranks of an earlier launch may have died while holding it */
    pthread_barrier_init(&board->meeting, &attributes, (unsigned)board->ranks);
    board->first = first;
    atomic_store(&board->ended, false);
    board->end[0] = '\0';
    for (int i = 0; i < board->ranks; i++) {
        atomic_store(&board->seats[i].at, first);
        atomic_store(&board->seats[i].since_ns, board_now_ns());
        atomic_store(&board->seats[i].pid, 0);
        atomic_store(&board->seats[i].step, 0);
    }
}

void board_end(struct board *board, const char *format, ...)
{
    va_list arguments;
    if (atomic_exchange(&board->ended, true)) return;
    va_start(arguments, format);
    vsnprintf(board->end, sizeof board->end, format, arguments);
    va_end(arguments);
}

int64_t board_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* True for a status that a failure on another rank may cause. */
static bool is_consequence(const char *text)
{
    return strstr(text, "TUTTI_ERR_ABORTED") != NULL || strstr(text, "TUTTI_ERR_PEER_LOST") != NULL ||
           strstr(text, "TUTTI_ERR_TIMEOUT") != NULL;
}

static int list_ranks(struct board *board, int at, enum verdict verdict, char *text, size_t room)
{
    int used = 0;
    text[0] = '\0';
    for (int i = 0; i < board->ranks; i++)
        if (board_result(board, at, i)->verdict == verdict && (size_t)used < room)
            used += snprintf(text + used, room - (size_t)used, " %d", i);
    return used;
}

/* Checks what only the results of all ranks together show. */
static enum verdict compare_ranks(struct board *board, int at, const struct check *check, char *text, size_t room)
{
    int first = -1;
    for (int i = 0; i < board->ranks; i++) {
        const struct result *result = board_result(board, at, i);
        if (result->verdict != PASSED) continue;
        if (first < 0) first = i;
        if (check->same_bits && result->bits != board_result(board, at, first)->bits) {
            snprintf(text, room, "the results' bits differ on ranks %d and %d", first, i);
            return FAILED;
        }
    }
    return PASSED;
}

/* True if ranks of one group differ on whether this is supported.  The halves of a split are two groups. */
static bool disagrees(struct board *board, int at, const struct check *check)
{
    int halves = check->spec.where == SPLIT ? 2 : 1;
    for (int i = 0; i < board->ranks; i++)
        for (int k = i % halves; k < i; k += halves) {
            enum verdict a = board_result(board, at, i)->verdict, b = board_result(board, at, k)->verdict;
            if ((a == SKIPPED && b == PASSED) || (a == PASSED && b == SKIPPED)) return true;
        }
    return false;
}

enum verdict board_fold(struct board *board, int at, const struct check *check, char *text, size_t room)
{
    int count[FAILED + 1] = {0}, worst = -1;
    text[0] = '\0';
    for (int i = 0; i < board->ranks; i++) {
        const struct result *result = board_result(board, at, i);
        count[result->verdict]++;
        bool better = worst < 0 || result->verdict > board_result(board, at, worst)->verdict ||
                      (result->verdict == FAILED && is_consequence(board_result(board, at, worst)->text) &&
                       !is_consequence(result->text));
        if ((result->verdict == FAILED || result->verdict == SKIPPED) && better) worst = i;
    }
    char skipped[64] = "", alone[128] = "";
    list_ranks(board, at, SKIPPED, skipped, sizeof skipped);
    if (count[SKIPPED] > 0) snprintf(alone, sizeof alone, "unsupported on ranks%s alone; ", skipped);
    if (count[FAILED] > 0) {
        snprintf(text, room, "%srank %d: %s", alone, worst, board_result(board, at, worst)->text);
        return FAILED;
    }
    if (disagrees(board, at, check)) {
        snprintf(text, room, "%s%s", alone, board_result(board, at, worst)->text);
        return FAILED;
    }
    if (count[SKIPPED] > 0) {
        snprintf(text, room, "%s", board_result(board, at, worst)->text);
        return SKIPPED;
    }
    return count[PASSED] > 0 ? compare_ranks(board, at, check, text, room) : NOT_RUN;
}
