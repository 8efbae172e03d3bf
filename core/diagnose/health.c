#include "diagnose/health.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "diagnose/control_channel.h"
#include "diagnose/stragglers.h"
#include "op/control_message.h"
#include "op/fingerprint.h"
#include "progress/work.h"
#include "state/group_state.h"

enum {
    HISTORY = 64,
    ASKER_NS = 1000 * 1000 * 1000,
    PASS_ON_NS = 50 * 1000 * 1000,
    /* multiplied by the ranks squared: every rank may inform every other, and each message may cause more */
    INFORM_NS = 20 * 1000,
    INFORM_MOST_NS = 100 * 1000 * 1000,
    FOUND_NS = 1000 * 1000, /* after which stragglers are looked for again; ages are in whole ms, too */
    TURN_NS = 15 * 1000 * 1000,
    TURN_ASKS = 4 /* works that may ask in one turn; the answers are about the peers, so all works use them */
};

struct asker {
    int64_t asked_ns; /* 0: never */
    uint64_t sequence;
};

/* The stragglers of a collective that this rank waits in, as it told them to the last asker. */
struct found {
    uint64_t sequence;
    int64_t at_ns;
    int n;
    struct control_position position[CONTROL_POSITIONS];
};

struct health {
    struct {
        uint64_t sequence, fingerprint;
    } issued[HISTORY];
    uint64_t latest;
    struct stragglers *stragglers;
    uint64_t digest; /* digest of the state that the askers know */
    int64_t passed_on_ns, informed_ns;
    int64_t turn_ns; /* time when this turn began */
    int turn_asks;
    struct found *found; /* NULL before the first answer that names stragglers */
    struct asker asker[];
};

struct health *health_new(int size)
{
    struct health *health = calloc(1, sizeof *health + (size_t)size * sizeof *health->asker);
    if (health == NULL) return NULL;
    health->stragglers = stragglers_new(size);
    if (health->stragglers != NULL) return health;
    free(health);
    return NULL;
}

void health_free(struct health *health)
{
    if (health == NULL) return;
    stragglers_free(health->stragglers);
    free(health->found);
    free(health);
}

struct stragglers *health_stragglers(const struct health *health)
{
    return health->stragglers;
}

void health_issued(struct health *health, uint64_t sequence, uint64_t fingerprint)
{
    health->issued[sequence % HISTORY].sequence = sequence;
    health->issued[sequence % HISTORY].fingerprint = fingerprint;
    health->latest = sequence;
}

/* ---- failures ---------------------------------------------------------------------------------------------- */

static struct control_message failure_of(const struct tutti_group *group)
{
    struct control_message message = {.type = CONTROL_FAILED,
                                      .status = group->failed,
                                      .sequence = group->failed_sequence,
                                      .given_up = group->given_up};
    snprintf(message.text, sizeof message.text, "%s", group->failed_text != NULL ? group->failed_text : "");
    return message;
}

size_t health_failure(const struct tutti_group *group, uint8_t wire[])
{
    struct control_message message = failure_of(group);
    return control_message_encode(&message, wire);
}

void health_send_failure(struct tutti_group *group)
{
    struct control_message message = failure_of(group);
    for (int peer = 0; peer < group->size; peer++)
        if (peer != group->rank) control_channel_send(group, peer, &message);
}

static void inform_askers(struct tutti_group *group, int64_t now);

/* ---- asking ------------------------------------------------------------------------------------------------ */

/* Limits questions: thousands of works may be under way, and if each asked, the answers would keep them from ending. */
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
    bool asks = may_ask(group, work, now); /* even if not, answers to other works may show that a peer has left */
    if (!asks && !stragglers_any_left(group->health->stragglers)) return -1;
    bool *awaited = stragglers_awaited(work);
    if (awaited == NULL) return -1;
    int left = stragglers_left(work, awaited);
    struct control_message message = {
        .type = CONTROL_ASK, .sequence = work->op.sequence, .fingerprint = work->fingerprint};
    for (int peer = 0; asks && peer < group->size; peer++) {
        if (!awaited[peer]) continue;
        bool anew = stragglers_record_question(group->health->stragglers, peer, now);
        if (anew || !work->point_to_point) control_channel_send(group, peer, &message);
    }
    free(awaited);
    if (asks) inform_askers(group, now);
    return left;
}

/* Returns the fingerprint of the collective before this one, or 0 if it is no longer known. */
static uint64_t find_previous_call(const struct health *health, uint64_t fingerprint)
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
        uint64_t before = find_previous_call(group->health, mine);
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

bool health_probe(struct tutti_group *group, int peer)
{
    struct control_message message = {.type = CONTROL_ASK};
    if (!stragglers_record_question(group->health->stragglers, peer, clock_now_ns())) return false;
    control_channel_send(group, peer, &message);
    return true;
}

void health_receive_failure(struct tutti_group *group, int peer)
{
    stragglers_record_life(group->health->stragglers, peer, clock_now_ns());
}

/* ---- answering --------------------------------------------------------------------------------------------- */

/* Returns the first send or receive that this rank waits in, or 0.  Searches only the oldest works, because there are
 * many answers if thousands of operations are under way. */
static uint64_t find_awaited_message(const struct tutti_group *group)
{
    enum { OLDEST = 64 };
    const struct tutti_work *work = TAILQ_FIRST(&group->works);
    for (int i = 0; work != NULL && !op_is_message(&work->op); i++)
        work = i < OLDEST ? TAILQ_NEXT(work, group_link) : NULL;
    if (work == NULL) return 0;
    int root = work->op.root;
    return control_wait_pack(&(struct control_wait){.receives = work->op.kind != TUTTI_SEND,
                                                    .peer = root == TUTTI_ANY_SOURCE ? -1 : group->global_ranks[root],
                                                    .tag = work->op.tag});
}

/* Finds the stragglers of a collective for an answer.  All ranks of a large group may ask at about the same time, so
 * what was found a moment ago is told again. */
static void find_stragglers(struct health *health, const struct tutti_work *waiting, int64_t now,
                            struct control_message *here)
{
    if (health->found == NULL) health->found = calloc(1, sizeof *health->found);
    struct found *found = health->found;
    if (found == NULL) return; /* without memory the answer names no stragglers */
    if (found->sequence != waiting->op.sequence || now - found->at_ns >= FOUND_NS) {
        found->sequence = waiting->op.sequence;
        found->at_ns = now;
        found->n = stragglers_find(waiting, now, found->position);
    }
    here->n_positions = found->n;
    memcpy(here->position, found->position, (size_t)found->n * sizeof *found->position);
}

static void send_position(struct tutti_group *group, int peer, int64_t now)
{
    struct health *health = group->health;
    const struct tutti_work *waiting = stragglers_waiting(group, health->asker[peer].sequence);
    struct control_message here = {.type = CONTROL_HERE,
                                   .fingerprint = find_awaited_message(group),
                                   .latest = health->latest,
                                   .latest_fingerprint = health->issued[health->latest % HISTORY].fingerprint};
    if (waiting != NULL) {
        here.sequence = waiting->op.sequence;
        find_stragglers(health, waiting, now, &here);
    }
    control_channel_send(group, peer, &here);
}

/* Returns a digest of what this rank's answers say about other ranks. */
static uint64_t compute_digest(const struct tutti_group *group, int64_t now)
{
    const struct tutti_work *waiting = stragglers_waiting(group, 0);
    struct control_position position[CONTROL_POSITIONS];
    int n = waiting != NULL ? stragglers_find(waiting, now, position) : 0;
    uint64_t sum = waiting != NULL ? waiting->op.sequence : 0;
    for (int i = 0; i < n; i++)
        sum += (position[i].rank + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ position[i].latest << 1 ^
               (position[i].silent_ms > 0);
    return sum;
}

/* Sends this rank's position to recent askers if it has changed: it may be the end of a long chain of waits.  A change
 * that comes too early is sent when this rank asks the next time, or is asked. */
static void inform_askers(struct tutti_group *group, int64_t now)
{
    struct health *health = group->health;
    int64_t apart = (int64_t)group->size * group->size * INFORM_NS;
    if (now - health->informed_ns < (apart < INFORM_MOST_NS ? apart : INFORM_MOST_NS)) return;
    health->informed_ns = now;
    uint64_t current = compute_digest(group, now);
    if (current == health->digest) return;
    health->digest = current;
    if (health->found != NULL) health->found->at_ns = 0; /* it has changed */
    for (int peer = 0; peer < group->size; peer++)
        if (health->asker[peer].asked_ns != 0 && now - health->asker[peer].asked_ns < ASKER_NS)
            send_position(group, peer, now);
}

bool health_answer(struct tutti_group *group, int peer, const struct control_message *ask, char *text, size_t size)
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
    send_position(group, peer, now);
    const struct tutti_work *waiting = stragglers_waiting(group, ask->sequence);
    if (waiting == NULL || now - health->passed_on_ns < PASS_ON_NS) return true;
    health->passed_on_ns = now; /* peers along the chain of waits get the question too */
    health_ask(waiting);
    return true;
}

void health_receive_position(struct tutti_group *group, int peer, const struct control_message *here)
{
    int64_t now = clock_now_ns();
    stragglers_record_answer(group->health->stragglers, peer, here, now);
    inform_askers(group, now);
}

void health_receive_left(struct tutti_group *group, int peer)
{
    stragglers_record_departure(group->health->stragglers, peer);
}
