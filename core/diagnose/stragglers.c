#include "diagnose/stragglers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/fingerprint.h"
#include "progress/work.h"
#include "state/group_state.h"

enum {
    AGAIN_MS = 15,    /* least time between two questions to a peer */
    PATIENT_MS = 400, /* a peer that has not answered for so long counts as silent */
    OLD_MS = 2000     /* a report of this age is ignored */
};

struct peer {
    uint64_t waits_in, latest, fingerprint, message; /* as it reported */
    int64_t heard_ns;                                /* 0: never */
    int64_t owes_ns;                                 /* when it was first asked without an answer since; 0: never */
    int64_t asked_ns;                                /* when it was last asked */
    bool left;                                       /* it has destroyed the group */
    int n_places;
    struct note_place *place; /* the stragglers it reports: NOTE_PLACES entries */
};

struct stragglers {
    int size;
    bool any_left;
    struct peer peer[];
};

struct stragglers *stragglers_new(int size)
{
    struct stragglers *missing = calloc(1, sizeof *missing + (size_t)size * sizeof *missing->peer);
    if (missing != NULL) missing->size = size;
    return missing;
}

void stragglers_free(struct stragglers *missing)
{
    for (int i = 0; missing != NULL && i < missing->size; i++) free(missing->peer[i].place);
    free(missing);
}

static int64_t ms_since(int64_t ns, int64_t now)
{
    return (now - ns) / 1000000;
}

bool stragglers_asked(struct stragglers *missing, int peer, int64_t now)
{
    struct peer *state = &missing->peer[peer];
    if (state->asked_ns != 0 && ms_since(state->asked_ns, now) < AGAIN_MS) return false;
    bool anew = state->asked_ns == 0 || ms_since(state->asked_ns, now) > OLD_MS; /* the question may have been lost */
    if (state->owes_ns == 0 || anew) state->owes_ns = now;
    state->asked_ns = now;
    return true;
}

void stragglers_heard(struct stragglers *missing, int peer, const struct note *here, int64_t now)
{
    struct peer *state = &missing->peer[peer];
    state->waits_in = here->sequence;
    state->latest = here->latest;
    state->fingerprint = here->latest_fingerprint;
    state->message = here->fingerprint;
    state->heard_ns = now;
    state->owes_ns = 0;
    state->n_places = 0;
    if (here->n_places == 0) return;
    if (state->place == NULL) state->place = calloc(NOTE_PLACES, sizeof *state->place);
    if (state->place == NULL) return; /* the text says less */
    for (int i = 0; i < here->n_places; i++)
        if (here->place[i].rank < (uint32_t)missing->size) state->place[state->n_places++] = here->place[i];
}

void stragglers_leaves(struct stragglers *missing, int peer)
{
    missing->peer[peer].left = missing->any_left = true;
    missing->peer[peer].owes_ns = 0;
}

bool stragglers_any_left(const struct stragglers *missing)
{
    return missing->any_left;
}

/* ---- what a work waits for ------------------------------------------------------------------------------------ */

static void mark_peer(const tutti_request *request, void *argument)
{
    bool *marked = argument;
    if (request->owner != NULL && request->peer >= 0) marked[request->peer] = true;
}

static bool is_from_any(const struct tutti_work *work)
{
    return op_is_message(&work->op) && work->op.root == TUTTI_ANY_SOURCE;
}

bool *stragglers_awaited(const struct tutti_work *work)
{
    bool *marked = calloc((size_t)work->group->size + 1, sizeof *marked);
    if (marked == NULL || !work->started) return marked;
    if (work->exec != NULL)
        exec_each_pending(work->exec, mark_peer, marked);
    else
        mark_peer(&work->request, marked);
    for (int peer = 0; is_from_any(work) && peer < work->group->size; peer++) marked[peer] = true;
    if (work->exec == NULL && work->request.owner != NULL && TUTTI_HAS(work->backend, awaits))
        work->backend->awaits(work->state, &work->request, marked);
    marked[work->group->rank] = false;
    return marked;
}

/* A peer's note that it leaves arrives after its data if both use the same backend.  Notes use the first backend with
 * notify, so only operations of that backend are judged.  A receive from any source can still end while one of its
 * possible senders is there. */
int stragglers_left(const struct tutti_work *work, const bool *awaited)
{
    const struct stragglers *missing = work->group->stragglers;
    const tutti_backend *backend = work->exec != NULL ? work->exec->run.backend : work->backend;
    int left = -1;
    if (backend != work->group->entries[0][0].backend || !TUTTI_HAS(backend, notify)) return -1;
    for (int i = 0; i < missing->size; i++) {
        const struct peer *peer = &missing->peer[i];
        if (!awaited[i]) continue;
        if (peer->left)
            left = i;
        else if (work->point_to_point)
            return -1;
    }
    return left;
}

const struct tutti_work *stragglers_waiting(const struct tutti_group *group, uint64_t sequence)
{
    const struct tutti_work *work, *first = NULL;
    TAILQ_FOREACH(work, &group->works, group_link)
    {
        if (work->point_to_point || !work->started || work->parts > 0) continue;
        if (work->op.sequence == sequence) return work;
        if (first == NULL) first = work;
        if (work->op.sequence > sequence) break; /* works are in order, and there may be thousands */
    }
    return first;
}

/* ---- the ends of the chains -------------------------------------------------------------------------------- */

struct ends {
    const struct tutti_work *work;
    int64_t now;
    int n;
    struct note_place *place;
    bool *rest; /* by rank: those that did not fit into place; may be NULL */
};

static void add(struct ends *ends, struct note_place place)
{
    const struct tutti_group *group = ends->work->group;
    if ((int)place.rank == group->rank || place.age_ms > OLD_MS) return;
    for (int i = 0; i < ends->n; i++) {
        if (ends->place[i].rank != place.rank) continue;
        if (place.age_ms < ends->place[i].age_ms) ends->place[i] = place;
        return;
    }
    if (ends->n < NOTE_PLACES)
        ends->place[ends->n++] = place;
    else if (ends->rest != NULL)
        ends->rest[place.rank] = true;
}

/* Adds the stragglers that a peer reported, unless they have reported a later position themselves. */
static void add_told(struct ends *ends, const struct stragglers *missing, const struct peer *state)
{
    int64_t since_ms = ms_since(state->heard_ns, ends->now);
    for (int i = 0; i < state->n_places; i++) {
        struct note_place place = state->place[i];
        int64_t age_ms = (int64_t)place.age_ms + since_ms;
        const struct peer *own = &missing->peer[place.rank];
        if (own->heard_ns != 0 && own->latest > place.latest && ms_since(own->heard_ns, ends->now) < age_ms) continue;
        place.age_ms = age_ms > OLD_MS ? OLD_MS + 1 : (uint32_t)age_ms;
        add(ends, place);
    }
}

static bool is_silent(const struct peer *state, const struct tutti_work *work, int64_t now)
{
    return state->owes_ns != 0 && state->asked_ns >= work->start_ns && ms_since(state->owes_ns, now) >= PATIENT_MS;
}

/* True if the peer has reported its position since the work began. */
static bool is_known(const struct peer *state, const struct tutti_work *work)
{
    return state->heard_ns != 0 && state->heard_ns >= work->start_ns;
}

static void add_awaited(struct ends *ends, const struct stragglers *missing, int peer)
{
    const struct tutti_work *work = ends->work;
    const struct peer *state = &missing->peer[peer];
    struct note_place place = {.rank = (uint32_t)peer, .latest = state->latest, .fingerprint = state->fingerprint};
    if (is_silent(state, work, ends->now)) {
        int64_t ms = ms_since(state->owes_ns, ends->now);
        place.silent_ms = ms < INT32_MAX ? (uint32_t)ms : INT32_MAX;
        add(ends, place);
    } else if (is_known(state, work) && state->waits_in != 0 && state->n_places > 0 && !work->point_to_point) {
        add_told(ends, missing, state);
    } else if (is_known(state, work) && (state->latest < work->op.sequence || work->point_to_point)) {
        place.message = state->message;
        place.age_ms = (uint32_t)ms_since(state->heard_ns, ends->now);
        if (place.age_ms > OLD_MS) place.age_ms = OLD_MS; /* it has answered every question, so the report is current */
        add(ends, place);
    }
}

static int find(const struct tutti_work *work, int64_t now, struct note_place places[NOTE_PLACES], bool *rest)
{
    struct ends ends = {.work = work, .now = now, .place = places, .rest = rest};
    bool *marked = stragglers_awaited(work);
    for (int peer = 0; marked != NULL && peer < work->group->size; peer++)
        if (marked[peer]) add_awaited(&ends, work->group->stragglers, peer);
    free(marked);
    return ends.n;
}

int stragglers_find(const struct tutti_work *work, int64_t now, struct note_place places[NOTE_PLACES])
{
    return find(work, now, places, NULL);
}

struct note_ranks stragglers_set(const struct tutti_work *work, int64_t now)
{
    struct note_place places[NOTE_PLACES];
    struct note_ranks set = {.n = stragglers_find(work, now, places)};
    for (int i = 0; i < set.n; i++) set.rank[i] = places[i].rank;
    return set;
}

/* ---- text -------------------------------------------------------------------------------------------------- */

struct sentence {
    char *text;
    size_t size, used;
};

static void say(struct sentence *sentence, int global, const char *where)
{
    if (sentence->used >= sentence->size) return;
    int n = snprintf(sentence->text + sentence->used, sentence->size - sentence->used, "%srank %d%s",
                     sentence->used > 0 ? ", " : "", global, where);
    if (n > 0) sentence->used += (size_t)n;
}

static void describe_message(uint64_t packed, char *text, size_t size)
{
    struct note_message message = note_message_unpack(packed);
    const char *way = message.receives ? "recv from" : "send to";
    char peer[24] = "any rank", tag[24] = "any tag";
    if (message.peer >= 0) snprintf(peer, sizeof peer, "rank %d", message.peer);
    if (message.tag >= 0) snprintf(tag, sizeof tag, "tag %d", message.tag);
    snprintf(text, size, "%s %s, %s", way, peer, tag);
}

/* True if a rank waits in a message for a peer that is in no call: the peer's latest collective has ended. */
static bool is_over(const struct tutti_work *work, const struct note_place *place)
{
    return work->point_to_point && work->group->stragglers->peer[place->rank].waits_in == 0;
}

static void say_place(struct sentence *sentence, const struct tutti_work *work, const struct note_place *place)
{
    const struct tutti_group *group = work->group;
    char where[400], call[160] = "", message[64];
    if (place->latest > 0) fingerprint_describe(place->fingerprint, call, sizeof call);
    if (place->message != 0) describe_message(place->message, message, sizeof message);
    if (place->silent_ms > 0 && place->latest > 0)
        snprintf(where, sizeof where, " (no heartbeat for %.1f s; was at #%" PRIu64 " %s)", place->silent_ms / 1e3,
                 place->latest, call);
    else if (place->silent_ms > 0)
        snprintf(where, sizeof where, " (no heartbeat for %.1f s)", place->silent_ms / 1e3);
    else if (place->message != 0 && place->latest > 0)
        snprintf(where, sizeof where, " (is in %s; its latest collective is #%" PRIu64 " %s)", message, place->latest,
                 call);
    else if (place->message != 0)
        snprintf(where, sizeof where, " (is in %s)", message);
    else if (place->latest > 0 && is_over(work, place))
        snprintf(where, sizeof where, " (is in no call; its latest was #%" PRIu64 " %s)", place->latest, call);
    else if (place->latest > 0)
        snprintf(where, sizeof where, " (is at #%" PRIu64 " %s)", place->latest, call);
    else
        snprintf(where, sizeof where, " (has called nothing yet)");
    say(sentence, group->global_ranks[place->rank], where);
}

/* Names the awaited peers that are not known to be stragglers: they have not answered, or are in the operation too. */
static void say_unknown(struct sentence *sentence, const struct tutti_work *work, int64_t now, bool all)
{
    const struct tutti_group *group = work->group;
    bool *marked = stragglers_awaited(work);
    for (int peer = 0; marked != NULL && peer < group->size; peer++) {
        const struct peer *state = &group->stragglers->peer[peer];
        if (!marked[peer] || is_silent(state, work, now)) continue;
        if (!is_known(state, work))
            say(sentence, group->global_ranks[peer], state->owes_ns != 0 ? " (no answer yet)" : "");
        else if (all)
            say(sentence, group->global_ranks[peer], state->waits_in != 0 ? " (is in it too)" : " (has done its part)");
    }
    free(marked);
}

/* Names the ranks for which there is no room to say where they are: "and ranks 14-22, 31". */
static void say_rest(struct sentence *sentence, const struct tutti_group *group, const bool *rest)
{
    const char *before = sentence->used > 0 ? " and ranks " : "ranks ";
    for (int first = 0, next; rest != NULL && first < group->size; first = next) {
        next = first + 1;
        if (!rest[first]) continue;
        while (next < group->size && rest[next] && group->global_ranks[next] == group->global_ranks[next - 1] + 1)
            next++;
        char range[32];
        snprintf(range, sizeof range, next - first > 1 ? "%d-%d" : "%d", group->global_ranks[first],
                 group->global_ranks[next - 1]);
        if (sentence->used + strlen(before) + strlen(range) + sizeof ", .." > sentence->size) {
            snprintf(sentence->text + sentence->used, sentence->size - sentence->used, ", ..");
            return;
        }
        sentence->used +=
            (size_t)snprintf(sentence->text + sentence->used, sentence->size - sentence->used, "%s%s", before, range);
        before = ", ";
    }
}

void stragglers_describe(const struct tutti_work *work, int64_t now, char *text, size_t size)
{
    enum { REST = 160 }; /* characters reserved for say_rest */
    struct note_place places[NOTE_PLACES];
    const char *begins = is_from_any(work) && work->group->size > 2 ? "any of " : "";
    size_t begun = (size_t)snprintf(text, size, "%s", begins);
    struct sentence sentence = {text + begun, size - begun, 0};
    if (!work->started || work->parts > 0) {
        const struct tutti_work *before = stragglers_waiting(work->group, 0);
        if (before != NULL) work = before; /* this work cannot begin before that one has ended */
    }
    bool *rest = calloc((size_t)work->group->size, sizeof *rest);
    int n = find(work, now, places, rest);
    for (int i = 0; i < n; i++)
        if (rest == NULL || sentence.used + REST < sentence.size)
            say_place(&sentence, work, &places[i]);
        else
            rest[places[i].rank] = true;
    say_unknown(&sentence, work, now, n == 0);
    if (sentence.used < sentence.size) say_rest(&sentence, work->group, rest);
    free(rest);
    if (sentence.used > 0) return;
    bool copies = work->op.kind == TUTTI_COPY;
    snprintf(text, size, "%s",
             !work->started ? "an earlier operation"
             : copies       ? "the device, to copy its tensors"
                            : "no peer in particular");
}
