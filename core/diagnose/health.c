#include "diagnose/health.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "diagnose/control.h"
#include "diagnose/stragglers.h"
#include "op/fingerprint.h"
#include "op/note.h"
#include "progress/work.h"
#include "state/group_state.h"

enum {
    HISTORY = 64,
    ASKER_NS = 1000 * 1000 * 1000,
    PASS_ON_NS = 50 * 1000 * 1000,
    TELL_NS = 20 * 1000, /* times the ranks, squared: all may tell all, and each telling may be news to the others */
    TELL_MOST_NS = 100 * 1000 * 1000,
    TURN_NS = 15 * 1000 * 1000,
    TURN_ASKS = 4 /* works that ask in this time: what peers answer is about themselves, and serves the others, too */
};

struct asker {
    int64_t asked_ns; /* 0: never */
    uint64_t sequence;
};

struct health {
    struct {
        uint64_t sequence, fingerprint;
    } issued[HISTORY];
    uint64_t latest;
    struct stragglers *missing;
    uint64_t said; /* a digest of what those who asked know */
    int64_t passed_on_ns, told_ns;
    int64_t turn_ns; /* when this turn began */
    int turn_asks;
    struct asker asker[];
};

struct health *health_new(int size)
{
    struct health *health = calloc(1, sizeof *health + (size_t)size * sizeof *health->asker);
    if (health == NULL) return NULL;
    health->missing = stragglers_new(size);
    if (health->missing != NULL) return health;
    free(health);
    return NULL;
}

void health_free(struct health *health)
{
    if (health == NULL) return;
    stragglers_free(health->missing);
    free(health);
}

struct stragglers *health_stragglers(const struct health *health)
{
    return health->missing;
}

void health_issued(struct health *health, uint64_t sequence, uint64_t fingerprint)
{
    health->issued[sequence % HISTORY].sequence = sequence;
    health->issued[sequence % HISTORY].fingerprint = fingerprint;
    health->latest = sequence;
}

/* ---- notes ------------------------------------------------------------------------------------------------- */

static struct note failure_of(const struct tutti_group *group)
{
    struct note note = {
        .type = NOTE_FAILED, .status = group->failed, .sequence = group->failed_sequence, .given_up = group->given_up};
    snprintf(note.text, sizeof note.text, "%s", group->failed_text != NULL ? group->failed_text : "");
    return note;
}

size_t health_failure(const struct tutti_group *group, uint8_t wire[])
{
    struct note note = failure_of(group);
    return note_encode(&note, wire);
}

void health_tell(struct tutti_group *group)
{
    struct note note = failure_of(group);
    for (int peer = 0; peer < group->size; peer++)
        if (peer != group->rank) control_send(group, peer, &note);
}

static void tell_askers(struct tutti_group *group, int64_t now);

/* ---- asking ------------------------------------------------------------------------------------------------ */

/* Thousands may be under way.  If each asked, and all peers answered each, that would keep them from ending. */
static bool may_ask(struct tutti_group *group, const struct tutti_work *work, int64_t now)
{
    struct health *health = group->health;
    if (now - health->turn_ns >= TURN_NS) {
        health->turn_ns = now;
        health->turn_asks = 0;
    }
    return work == TAILQ_FIRST(&group->works) || health->turn_asks++ < TURN_ASKS;
}

int health_ask(const struct tutti_work *work)
{
    struct tutti_group *group = work->group;
    int64_t now = clock_now_ns();
    if (group->n_entries[0] == 0) return -1;
    bool asks = may_ask(group, work, now); /* if it may not, what others have heard may be the end of it, too */
    if (!asks && !stragglers_any_left(group->health->missing)) return -1;
    bool *marked = stragglers_awaited(work);
    if (marked == NULL) return -1;
    int left = stragglers_left(work, marked);
    struct note note = {.type = NOTE_ASK, .sequence = work->op.sequence, .fingerprint = work->fingerprint};
    for (int peer = 0; asks && peer < group->size; peer++) {
        if (!marked[peer]) continue;
        bool anew = stragglers_asked(group->health->missing, peer, now);
        if (anew || !work->point_to_point) control_send(group, peer, &note);
    }
    free(marked);
    if (asks) tell_askers(group, now);
    return left;
}

/* The fingerprint of the collective before this one; 0 where it is not known any more. */
static uint64_t call_before(const struct health *health, uint64_t fingerprint)
{
    for (unsigned i = 0; i < HISTORY; i++) {
        if (health->issued[i].fingerprint != fingerprint || health->issued[i].sequence < 2) continue;
        unsigned at = (i + HISTORY - 1) % HISTORY;
        return health->issued[at].sequence == health->issued[i].sequence - 1 ? health->issued[at].fingerprint : 0;
    }
    return 0;
}

void health_describe_mismatch(const struct tutti_group *group, int peer, uint64_t theirs, uint64_t mine, char *text,
                              size_t size)
{
    char a[160], b[160];
    if (fingerprint_same_call(theirs, mine)) {
        uint64_t before = call_before(group->health, mine);
        fingerprint_describe(mine, a, sizeof a);
        if (before != 0) fingerprint_describe(before, b, sizeof b);
        int here = group->global_ranks[group->rank];
        int used = snprintf(text, size, "rank %d and rank %d called %s, but their earlier calls differ",
                            group->global_ranks[peer], here, a);
        if (before != 0 && used > 0 && (size_t)used < size)
            snprintf(text + used, size - (size_t)used, "; on rank %d the one before was %s", here, b);
        return;
    }
    fingerprint_describe(theirs, a, sizeof a);
    fingerprint_describe(mine, b, sizeof b);
    snprintf(text, size, "rank %d called %s, rank %d called %s", group->global_ranks[peer], a,
             group->global_ranks[group->rank], b);
}

/* ---- answering --------------------------------------------------------------------------------------------- */

/* The first send or receive that this rank waits in; 0: none.  Answers are many where thousands of operations are under
 * way, so it is looked for among the oldest alone. */
static uint64_t message_waited_in(const struct tutti_group *group)
{
    enum { OLDEST = 64 };
    const struct tutti_work *work = TAILQ_FIRST(&group->works);
    for (int i = 0; work != NULL && !op_is_message(&work->op); i++)
        work = i < OLDEST ? TAILQ_NEXT(work, group_link) : NULL;
    if (work == NULL) return 0;
    int root = work->op.root;
    return note_message_pack(&(struct note_message){.receives = work->op.kind != TUTTI_SEND,
                                                    .peer = root == TUTTI_ANY_SOURCE ? -1 : group->global_ranks[root],
                                                    .tag = work->op.tag});
}

static void tell_place(struct tutti_group *group, int peer, int64_t now)
{
    const struct health *health = group->health;
    const struct tutti_work *waiting = stragglers_waiting(group, health->asker[peer].sequence);
    struct note here = {.type = NOTE_HERE,
                        .fingerprint = message_waited_in(group),
                        .latest = health->latest,
                        .latest_fingerprint = health->issued[health->latest % HISTORY].fingerprint};
    if (waiting != NULL) {
        here.sequence = waiting->op.sequence;
        here.n_places = stragglers_find(waiting, now, here.place);
    }
    control_send(group, peer, &here);
}

/* What this rank's answers say of others, in short. */
static uint64_t digest(const struct tutti_group *group, int64_t now)
{
    const struct tutti_work *waiting = stragglers_waiting(group, 0);
    struct note_place place[NOTE_PLACES];
    int n = waiting != NULL ? stragglers_find(waiting, now, place) : 0;
    uint64_t sum = waiting != NULL ? waiting->op.sequence : 0;
    for (int i = 0; i < n; i++)
        sum += (place[i].rank + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ place[i].latest << 1 ^ (place[i].silent_ms > 0);
    return sum;
}

/* Those who asked lately hear soon of what has changed: it may be the end of a long chain that they wait for.  What
 * comes too early for that is told when this rank asks next itself, or is asked. */
static void tell_askers(struct tutti_group *group, int64_t now)
{
    struct health *health = group->health;
    int64_t apart = (int64_t)group->size * group->size * TELL_NS;
    if (now - health->told_ns < (apart < TELL_MOST_NS ? apart : TELL_MOST_NS)) return;
    health->told_ns = now;
    uint64_t said = digest(group, now);
    if (said == health->said) return;
    health->said = said;
    for (int peer = 0; peer < group->size; peer++)
        if (health->asker[peer].asked_ns != 0 && now - health->asker[peer].asked_ns < ASKER_NS)
            tell_place(group, peer, now);
}

bool health_answer(struct tutti_group *group, int peer, const struct note *ask, char *text, size_t size)
{
    struct health *health = group->health;
    unsigned at = ask->sequence % HISTORY;
    if (ask->sequence > 0 && health->issued[at].sequence == ask->sequence &&
        health->issued[at].fingerprint != ask->fingerprint) {
        char calls[400];
        health_describe_mismatch(group, peer, ask->fingerprint, health->issued[at].fingerprint, calls, sizeof calls);
        snprintf(text, size, "the ranks' calls differ at #%" PRIu64 " of group %s: %s", ask->sequence, group->name,
                 calls);
        return false;
    }
    int64_t now = clock_now_ns();
    health->asker[peer] = (struct asker){now, ask->sequence};
    tell_place(group, peer, now);
    const struct tutti_work *waiting = stragglers_waiting(group, ask->sequence);
    if (waiting == NULL || now - health->passed_on_ns < PASS_ON_NS) return true;
    health->passed_on_ns = now; /* the question goes on along the chain */
    health_ask(waiting);
    return true;
}

void health_heard(struct tutti_group *group, int peer, const struct note *here)
{
    int64_t now = clock_now_ns();
    stragglers_heard(group->health->missing, peer, here, now);
    tell_askers(group, now);
}

void health_left(struct tutti_group *group, int peer)
{
    stragglers_leaves(group->health->missing, peer);
}
