#include "conformance/watch.h"

#include <stdio.h>
#include <string.h>

int64_t watch_limit_ns(const struct options *options)
{
    return (options->timeout_ms * 3 + 20000) * 1000000;
}

int64_t watch_quiet_ns(struct board *board)
{
    int64_t latest = 0;
    for (int i = 0; i < board->ranks; i++) {
        int64_t since = atomic_load(&board->seats[i].since_ns);
        if (since > latest) latest = since;
    }
    return board_now_ns() - latest;
}

void watch_tell(const struct board *board, const struct cases *cases, int *told, int at)
{
    for (; *told < at; ++*told) {
        bool ends = *told + 1 == cases->n || strcmp(cases->check[*told].kind, cases->check[*told + 1].kind) != 0;
        if (ends)
            fprintf(stderr, "  %d rank%s: %s\n", board->ranks, board->ranks == 1 ? "" : "s", cases->check[*told].kind);
    }
}

void watch_say_hung(struct board *board, int at)
{
    char text[TEXT_MOST];
    size_t room = sizeof text;
    size_t used = (size_t)snprintf(text, room, "hung: no end after %lld s; still in it: rank",
                                   (long long)(watch_quiet_ns(board) / 1000000000));
    for (int i = 0; i < board->ranks && used < room; i++)
        if (board_result(board, at, i)->verdict == NOT_RUN)
            used += (size_t)snprintf(text + used, room - used, " %d", i);
    board_end(board, "%s", text);
}

void watch_blame(struct board *board, int at)
{
    bool any = false;
    for (int i = 0; i < board->ranks; i++) {
        struct result *result = board_result(board, at, i);
        if (result->verdict != NOT_RUN) continue;
        result->verdict = FAILED;
        snprintf(result->text, sizeof result->text, "%s", board->end);
        any = true;
    }
    if (any) return;
    board_result(board, at, 0)->verdict = FAILED;
    snprintf(board_result(board, at, 0)->text, TEXT_MOST, "%s", board->end);
}
