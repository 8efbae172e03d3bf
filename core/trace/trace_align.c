/* The first rank of each other host asks rank 0 for its time ROUNDS times.  The answer was given between the question
 * and its arrival, so half of the shortest round trip bounds the error.  The other ranks of the host read the result.
 */
#include "trace/trace_align.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"

enum { ROUNDS = 10, WAIT_MS = 2000 };

static int host_count(const tutti_tool_group *group)
{
    int n = 1;
    for (int i = 0; group->hosts != NULL && i < group->world_size; i++)
        if (group->hosts[i] >= n) n = group->hosts[i] + 1;
    return n;
}

static int first_rank(const tutti_tool_group *group, int host)
{
    int rank = 0;
    while (rank < group->world_size && group->hosts[rank] != host) rank++;
    return rank;
}

/* The id keeps the keys of an earlier group out, which a store that outlives its groups still has. */
static void name_key(char key[64], const tutti_tool_group *group, const char *what, int host, int round)
{
    snprintf(key, 64, "trace/%016" PRIx64 "/%s/%d/%d", group->id, what, host, round);
}

static int put(const tutti_tool_group *group, const char *what, int host, int round, const void *value, size_t bytes)
{
    char key[64];
    name_key(key, group, what, host, round);
    return tutti_store_set(group->store, key, value, bytes);
}

/* Waits for a value of exactly this size.  Returns false after WAIT_MS. */
static bool take(const tutti_tool_group *group, const char *what, int host, int round, void *value, size_t bytes)
{
    char key[64];
    size_t found = 0;
    name_key(key, group, what, host, round);
    return tutti_store_get(group->store, key, value, bytes, &found, WAIT_MS) == TUTTI_OK && found == bytes;
}

/* Answers a host's questions. */
static void answer(const tutti_tool_group *group, int host)
{
    int64_t asked, now;
    for (int round = 0; round < ROUNDS; round++) {
        if (!take(group, "ask", host, round, &asked, sizeof asked)) return;
        now = clock_now_ns();
        if (put(group, "answer", host, round, &now, sizeof now) != TUTTI_OK) return;
    }
}

static tutti_trace_align ask(const tutti_tool_group *group, int host)
{
    tutti_trace_align best = {.error_ns = -1};
    for (int round = 0; round < ROUNDS; round++) {
        int64_t then, before = clock_now_ns();
        if (put(group, "ask", host, round, &before, sizeof before) != TUTTI_OK) break;
        if (!take(group, "answer", host, round, &then, sizeof then)) break;
        int64_t after = clock_now_ns(), error = (after - before) / 2 + 1;
        if (best.error_ns >= 0 && error >= best.error_ns) continue;
        best = (tutti_trace_align){.offset_ns = then - (before + after) / 2, .error_ns = error};
    }
    return best;
}

void trace_align(const tutti_tool_group *group, tutti_trace_align *found)
{
    int hosts = host_count(group), own = group->hosts != NULL ? group->hosts[group->rank] : 0;
    *found = (tutti_trace_align){0, 0};
    if (hosts == 1) return;
    if (group->store == NULL) {
        found->error_ns = -1;
    } else if (group->rank == 0) {
        for (int host = 1; host < hosts; host++) answer(group, host);
    } else if (own != 0 && group->rank == first_rank(group, own)) {
        *found = ask(group, own);
        put(group, "offset", own, 0, found, sizeof *found);
    } else if (own != 0 && !take(group, "offset", own, 0, found, sizeof *found)) {
        *found = (tutti_trace_align){.error_ns = -1};
    }
}
