#include "conformance/watch.h"

#include <stdio.h>
#include <string.h>

#include "common/output.h"

int64_t watch_limit_ns(const struct options *options)
{
    return (options->timeout_ms * 3 + 20000) * 1000000;
}

int64_t watch_quiet_ns(struct scoreboard *scoreboard)
{
    int64_t latest = 0;
    for (int i = 0; i < scoreboard->ranks; i++) {
        int64_t since = atomic_load(&scoreboard->states[i].since_ns);
        if (since > latest) latest = since;
    }
    return scoreboard_now_ns() - latest;
}

static struct progress progress;

void watch_print_progress(const struct options *options, const struct scoreboard *scoreboard, const struct cases *cases,
                          int at)
{
    char what[96];
    int before = (scoreboard->ranks - options->from_ranks) * cases->n;
    if (progress.total == 0)
        progress_begin(&progress, (options->to_ranks - options->from_ranks + 1) * cases->n, options->progress);
    if (at >= cases->n) return;
    snprintf(what, sizeof what, "%s on %d rank%s", cases->check[at].kind, scoreboard->ranks,
             scoreboard->ranks == 1 ? "" : "s");
    progress_at(&progress, before + at, what);
}

void watch_clear_progress(void)
{
    progress_clear(&progress);
}

void watch_say_hung(struct scoreboard *scoreboard, int at)
{
    char text[TEXT_MAX];
    size_t capacity = sizeof text;
    size_t used = (size_t)snprintf(text, capacity, "hung: no end after %lld s; still in it: rank",
                                   (long long)(watch_quiet_ns(scoreboard) / 1000000000));
    for (int i = 0; i < scoreboard->ranks && used < capacity; i++)
        if (scoreboard_result(scoreboard, at, i)->verdict == NOT_RUN)
            used += (size_t)snprintf(text + used, capacity - used, " %d", i);
    scoreboard_end(scoreboard, "%s", text);
}

void watch_blame(struct scoreboard *scoreboard, int at)
{
    bool any = false;
    for (int i = 0; i < scoreboard->ranks; i++) {
        struct result *result = scoreboard_result(scoreboard, at, i);
        if (result->verdict != NOT_RUN) continue;
        result->verdict = FAILED;
        snprintf(result->text, sizeof result->text, "%s", scoreboard->end);
        any = true;
    }
    if (any) return;
    scoreboard_result(scoreboard, at, 0)->verdict = FAILED;
    snprintf(scoreboard_result(scoreboard, at, 0)->text, TEXT_MAX, "%s", scoreboard->end);
}
