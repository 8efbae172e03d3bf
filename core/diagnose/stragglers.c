#include "diagnose/stragglers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/fingerprint.h"
#include "progress/work.h"
#include "state/group_state.h"

enum {
    AGAIN_MS = 15,    /* minimum time between two questions to a peer */
    PATIENT_MS = 400, /* a peer that owes an answer for this long counts as silent */
    OLD_MS = 2000     /* a report of this age is ignored */
};

struct peer {
    uint64_t waits_in, latest, fingerprint, message; /* as reported by the peer */
    int64_t answered_ns;                             /* time of its last answer; 0: none yet */
    int64_t unanswered_ns;                           /* time of the first question since that answer; 0: none */
    int64_t asked_ns;                                /* time of the last question */
    bool left;                                       /* it has destroyed the group */
    int n_positions;
    struct control_position *position; /* the stragglers that it reports: CONTROL_POSITIONS entries */
};

struct stragglers {
    int size;
    bool any_left;
    struct peer peer[];
};

struct stragglers *stragglers_new(int size)
{
    struct stragglers *stragglers = calloc(1, sizeof *stragglers + (size_t)size * sizeof *stragglers->peer);
    if (stragglers != NULL) stragglers->size = size;
    return stragglers;
}

void stragglers_free(struct stragglers *stragglers)
{
    for (int i = 0; stragglers != NULL && i < stragglers->size; i++) free(stragglers->peer[i].position);
    free(stragglers);
}

static int64_t ms_since(int64_t ns, int64_t now)
{
    return (now - ns) / 1000000;
}

bool stragglers_record_question(struct stragglers *stragglers, int peer, int64_t now)
{
    struct peer *state = &stragglers->peer[peer];
    if (state->asked_ns != 0 && ms_since(state->asked_ns, now) < AGAIN_MS) return false;
    /* the last question may have been lost */
    bool lost = state->asked_ns == 0 || ms_since(state->asked_ns, now) > OLD_MS;
    if (state->unanswered_ns == 0 || lost) state->unanswered_ns = now;
    state->asked_ns = now;
    return true;
}

void stragglers_record_answer(struct stragglers *stragglers, int peer, const struct control_message *here, int64_t now)
{
    struct peer *state = &stragglers->peer[peer];
    state->waits_in = here->sequence;
    state->latest = here->latest;
    state->fingerprint = here->latest_fingerprint;
    state->message = here->fingerprint;
    state->answered_ns = now;
    state->unanswered_ns = 0;
    state->n_positions = 0;
    if (here->n_positions == 0) return;
    if (state->position == NULL) state->position = calloc(CONTROL_POSITIONS, sizeof *state->position);
    if (state->position == NULL) return; /* the error message then has fewer ranks */
    for (int i = 0; i < here->n_positions; i++)
        if (here->position[i].rank < (uint32_t)stragglers->size)
            state->position[state->n_positions++] = here->position[i];
}

void stragglers_record_departure(struct stragglers *stragglers, int peer)
{
    stragglers->peer[peer].left = stragglers->any_left = true;
    stragglers->peer[peer].unanswered_ns = 0;
}

bool stragglers_has_left(const struct stragglers *stragglers, int peer)
{
    return stragglers->peer[peer].left;
}

int64_t stragglers_silent_ms(const struct stragglers *stragglers, int peer, int64_t now)
{
    int64_t since = stragglers->peer[peer].unanswered_ns;
    return since != 0 ? ms_since(since, now) : 0;
}

bool stragglers_has_answered(const struct stragglers *stragglers, int peer)
{
    return stragglers->peer[peer].answered_ns != 0;
}

void stragglers_record_life(struct stragglers *stragglers, int peer, int64_t now)
{
    stragglers->peer[peer].answered_ns = now;
    stragglers->peer[peer].unanswered_ns = 0;
}

bool stragglers_any_left(const struct stragglers *stragglers)
{
    return stragglers->any_left;
}

/* ---- awaited peers --------------------------------------------------------------------------------------------- */

static void mark_peer(const tutti_request *request, void *argument)
{
    bool *awaited = argument;
    if (request->owner != NULL && request->peer >= 0) awaited[request->peer] = true;
}

static bool is_from_any(const struct tutti_work *work)
{
    return op_is_message(&work->op) && work->op.root == TUTTI_ANY_SOURCE;
}

bool *stragglers_awaited(const struct tutti_work *work)
{
    bool *awaited = calloc((size_t)work->group->size + 1, sizeof *awaited);
    if (awaited == NULL || !work->started) return awaited;
    if (work->exec != NULL)
        exec_each_pending(work->exec, mark_peer, awaited);
    else
        mark_peer(&work->request, awaited);
    for (int peer = 0; is_from_any(work) && peer < work->group->size; peer++) awaited[peer] = true;
    if (work->exec == NULL && work->request.owner != NULL && TUTTI_HAS(work->backend, awaits))
        work->backend->awaits(work->state, &work->request, awaited);
    awaited[work->group->rank] = false;
    return awaited;
}

/* Considers only operations of the backend that carries control messages, which is the first one with notify.  On such
 * a backend, a peer announces its departure after its data.  A receive from any source can still end while one of its
 * possible senders is in the group. */
int stragglers_left(const struct tutti_work *work, const bool *awaited)
{
    const struct stragglers *stragglers = work->group->stragglers;
    const tutti_backend *backend = work->exec != NULL ? work->exec->run.backend : work->backend;
    int left = -1;
    if (backend != work->group->entries[0][0].backend || !TUTTI_HAS(backend, notify)) return -1;
    for (int i = 0; i < stragglers->size; i++) {
        const struct peer *peer = &stragglers->peer[i];
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

/* ---- chains of waits ------------------------------------------------------------------------------------------- */

struct ends {
    const struct tutti_work *work;
    int64_t now;
    int n;
    struct control_position *position;
    bool *rest; /* by rank: true for stragglers that do not fit into position; may be NULL */
};

static void add(struct ends *ends, struct control_position position)
{
    const struct tutti_group *group = ends->work->group;
    if ((int)position.rank == group->rank || position.age_ms > OLD_MS) return;
    for (int i = 0; i < ends->n; i++) {
        if (ends->position[i].rank != position.rank) continue;
        if (position.age_ms < ends->position[i].age_ms) ends->position[i] = position;
        return;
    }
    if (ends->n < CONTROL_POSITIONS)
        ends->position[ends->n++] = position;
    else if (ends->rest != NULL)
        ends->rest[position.rank] = true;
}

/* Adds the stragglers that a peer reported, unless they have reported a later position themselves. */
static void add_reported(struct ends *ends, const struct stragglers *stragglers, const struct peer *state)
{
    int64_t since_ms = ms_since(state->answered_ns, ends->now);
    for (int i = 0; i < state->n_positions; i++) {
        struct control_position position = state->position[i];
        int64_t age_ms = (int64_t)position.age_ms + since_ms;
        const struct peer *own = &stragglers->peer[position.rank];
        if (own->answered_ns != 0 && own->latest > position.latest && ms_since(own->answered_ns, ends->now) < age_ms)
            continue;
        position.age_ms = age_ms > OLD_MS ? OLD_MS + 1 : (uint32_t)age_ms;
        add(ends, position);
    }
}

static bool is_silent(const struct peer *state, const struct tutti_work *work, int64_t now)
{
    return state->unanswered_ns != 0 && state->asked_ns >= work->start_ns &&
           ms_since(state->unanswered_ns, now) >= PATIENT_MS;
}

/* True if the peer has reported its position since the work began. */
static bool is_known(const struct peer *state, const struct tutti_work *work)
{
    return state->answered_ns != 0 && state->answered_ns >= work->start_ns;
}

static void add_awaited(struct ends *ends, const struct stragglers *stragglers, int peer)
{
    const struct tutti_work *work = ends->work;
    const struct peer *state = &stragglers->peer[peer];
    struct control_position position = {
        .rank = (uint32_t)peer, .latest = state->latest, .fingerprint = state->fingerprint};
    if (is_silent(state, work, ends->now)) {
        int64_t ms = ms_since(state->unanswered_ns, ends->now);
        position.silent_ms = ms < INT32_MAX ? (uint32_t)ms : INT32_MAX;
        add(ends, position);
    } else if (is_known(state, work) && state->waits_in != 0 && state->n_positions > 0 && !work->point_to_point) {
        add_reported(ends, stragglers, state);
    } else if (is_known(state, work) && (state->latest < work->op.sequence || work->point_to_point)) {
        position.message = state->message;
        position.age_ms = (uint32_t)ms_since(state->answered_ns, ends->now);
        if (position.age_ms > OLD_MS)
            position.age_ms = OLD_MS; /* it has answered every question, so the report is current */
        add(ends, position);
    }
}

static int find(const struct tutti_work *work, int64_t now, struct control_position positions[CONTROL_POSITIONS],
                bool *rest)
{
    struct ends ends = {.work = work, .now = now, .position = positions, .rest = rest};
    bool *awaited = stragglers_awaited(work);
    for (int peer = 0; awaited != NULL && peer < work->group->size; peer++)
        if (awaited[peer]) add_awaited(&ends, work->group->stragglers, peer);
    free(awaited);
    return ends.n;
}

int stragglers_find(const struct tutti_work *work, int64_t now, struct control_position positions[CONTROL_POSITIONS])
{
    return find(work, now, positions, NULL);
}

struct rank_set stragglers_set(const struct tutti_work *work, int64_t now)
{
    struct control_position positions[CONTROL_POSITIONS];
    struct rank_set set = {.n = stragglers_find(work, now, positions)};
    for (int i = 0; i < set.n; i++) set.rank[i] = positions[i].rank;
    return set;
}

/* ---- text -------------------------------------------------------------------------------------------------- */

struct buffer {
    char *text;
    size_t size, used;
};

static void append(struct buffer *buffer, int global, const char *where)
{
    if (buffer->used >= buffer->size) return;
    int n = snprintf(buffer->text + buffer->used, buffer->size - buffer->used, "%srank %d%s",
                     buffer->used > 0 ? ", " : "", global, where);
    if (n > 0) buffer->used += (size_t)n;
}

static void describe_message(uint64_t packed, char *text, size_t size)
{
    struct control_wait message = control_wait_unpack(packed);
    const char *way = message.receives ? "recv from" : "send to";
    char peer[24] = "any rank", tag[24] = "any tag";
    if (message.peer >= 0) snprintf(peer, sizeof peer, "rank %d", message.peer);
    if (message.tag >= 0) snprintf(tag, sizeof tag, "tag %d", message.tag);
    snprintf(text, size, "%s %s, %s", way, peer, tag);
}

/* True if a rank waits in a message for a peer that is in no call: the peer's latest collective has ended. */
static bool is_over(const struct tutti_work *work, const struct control_position *position)
{
    return work->point_to_point && work->group->stragglers->peer[position->rank].waits_in == 0;
}

static void append_position(struct buffer *buffer, const struct tutti_work *work,
                            const struct control_position *position)
{
    const struct tutti_group *group = work->group;
    char where[400], call[160] = "", message[64];
    if (position->latest > 0) fingerprint_describe(position->fingerprint, call, sizeof call);
    if (position->message != 0) describe_message(position->message, message, sizeof message);
    if (position->silent_ms > 0 && position->latest > 0)
        snprintf(where, sizeof where, " (no heartbeat for %.1f s; was at #%" PRIu64 " %s)", position->silent_ms / 1e3,
                 position->latest, call);
    else if (position->silent_ms > 0)
        snprintf(where, sizeof where, " (no heartbeat for %.1f s)", position->silent_ms / 1e3);
    else if (position->message != 0 && position->latest > 0)
        snprintf(where, sizeof where, " (is in %s; its latest collective is #%" PRIu64 " %s)", message,
                 position->latest, call);
    else if (position->message != 0)
        snprintf(where, sizeof where, " (is in %s)", message);
    else if (position->latest > 0 && is_over(work, position))
        snprintf(where, sizeof where, " (is in no call; its latest was #%" PRIu64 " %s)", position->latest, call);
    else if (position->latest > 0)
        snprintf(where, sizeof where, " (is at #%" PRIu64 " %s)", position->latest, call);
    else
        snprintf(where, sizeof where, " (has called nothing yet)");
    append(buffer, group->global_ranks[position->rank], where);
}

/* Names the awaited peers that are not known to be stragglers: they have not answered, or are in the operation too. */
static void append_unknown(struct buffer *buffer, const struct tutti_work *work, int64_t now, bool all)
{
    const struct tutti_group *group = work->group;
    bool *awaited = stragglers_awaited(work);
    for (int peer = 0; awaited != NULL && peer < group->size; peer++) {
        const struct peer *state = &group->stragglers->peer[peer];
        if (!awaited[peer] || is_silent(state, work, now)) continue;
        if (!is_known(state, work))
            append(buffer, group->global_ranks[peer], state->unanswered_ns != 0 ? " (no answer yet)" : "");
        else if (all)
            append(buffer, group->global_ranks[peer],
                   state->waits_in != 0 ? " (is in it too)" : " (has done its part)");
    }
    free(awaited);
}

/* Names the ranks for which there is no room to say where they are: "and ranks 14-22, 31". */
static void append_rest(struct buffer *buffer, const struct tutti_group *group, const bool *rest)
{
    const char *before = buffer->used > 0 ? " and ranks " : "ranks ";
    for (int first = 0, next; rest != NULL && first < group->size; first = next) {
        next = first + 1;
        if (!rest[first]) continue;
        while (next < group->size && rest[next] && group->global_ranks[next] == group->global_ranks[next - 1] + 1)
            next++;
        char range[32];
        snprintf(range, sizeof range, next - first > 1 ? "%d-%d" : "%d", group->global_ranks[first],
                 group->global_ranks[next - 1]);
        if (buffer->used + strlen(before) + strlen(range) + sizeof ", .." > buffer->size) {
            snprintf(buffer->text + buffer->used, buffer->size - buffer->used, ", ..");
            return;
        }
        buffer->used +=
            (size_t)snprintf(buffer->text + buffer->used, buffer->size - buffer->used, "%s%s", before, range);
        before = ", ";
    }
}

void stragglers_describe(const struct tutti_work *work, int64_t now, char *text, size_t size)
{
    enum { REST = 160 }; /* characters reserved for append_rest */
    struct control_position positions[CONTROL_POSITIONS];
    const char *begins = is_from_any(work) && work->group->size > 2 ? "any of " : "";
    size_t begun = (size_t)snprintf(text, size, "%s", begins);
    struct buffer buffer = {text + begun, size - begun, 0};
    if (!work->started || work->parts > 0) {
        const struct tutti_work *before = stragglers_waiting(work->group, 0);
        if (before != NULL) work = before; /* this work cannot begin before that one has ended */
    }
    bool *rest = calloc((size_t)work->group->size, sizeof *rest);
    int n = find(work, now, positions, rest);
    for (int i = 0; i < n; i++)
        if (rest == NULL || buffer.used + REST < buffer.size)
            append_position(&buffer, work, &positions[i]);
        else
            rest[positions[i].rank] = true;
    append_unknown(&buffer, work, now, n == 0);
    if (buffer.used < buffer.size) append_rest(&buffer, work->group, rest);
    free(rest);
    if (buffer.used > 0) return;
    bool copies = work->op.kind == TUTTI_COPY;
    snprintf(text, size, "%s",
             !work->started ? "an earlier operation"
             : copies       ? "the device, to copy its tensors"
                            : "no peer in particular");
}
