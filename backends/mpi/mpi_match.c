/* Matches messages with receives.
 *
 * Matching happens as headers arrive.  A receive that does not fit is detected before any byte of it is written, and
 * receives from any source need no special case.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi_message.h"

/* Returns the rank in the group, or -1 if it is not a member. */
static int32_t rank_in(const struct mpib_group *group, int32_t global)
{
    for (int32_t i = 0; i < group->world_size; i++)
        if (group->global_ranks[i] == global) return i;
    return -1;
}

static bool matches(const struct mpib_group *group, const tutti_request *request, int32_t source,
                    const struct mpib_header *header)
{
    return header->group == group->id && tutti_request_takes_tag(request, header->tag) &&
           (request->peer == TUTTI_ANY_SOURCE || group->global_ranks[request->peer] == source);
}

static bool fits(const tutti_request *request, const struct mpib_header *header)
{
    return tutti_request_fits(request, header->bytes, header->fingerprint);
}

/* Receives and discards a long message that no receive will match; otherwise its sender would wait forever. */
static void discard(struct mpib_family *family, int32_t source, const struct mpib_header *header)
{
    if (header->long_tag == 0) return;
    struct mpib_pending pending = {.left = header->bytes,
                                   .peer = source,
                                   .tag = header->long_tag,
                                   .is_message = true,
                                   .memory = malloc(header->bytes)};
    pending.data = pending.memory;
    if (pending.memory == NULL || mpib_pending_begin(family, &pending) != TUTTI_OK) {
        free(pending.memory);
        family->host->log(1, "no memory to discard a message of %llu bytes that no receive matches",
                          (unsigned long long)header->bytes);
    }
}

/* Receives a message into a request that it fits.  Returns DONE, PENDING or an error. */
static int receive_message(struct mpib_group *group, tutti_request *request, int32_t source,
                           const struct mpib_header *header, const void *data)
{
    request->source = request->peer != TUTTI_ANY_SOURCE ? request->peer : rank_in(group, source);
    tutti_request_settle(request, header->tag, header->bytes, header->fingerprint);
    if (header->long_tag == 0) {
        tutti_request_take(group->family->host, request, 0, data, header->bytes);
        return TUTTI_REQUEST_DONE;
    }
    struct mpib_pending pending = {.request = request,
                                   .group = group,
                                   .data = request->data,
                                   .left = request->bytes,
                                   .peer = source,
                                   .tag = header->long_tag,
                                   .is_message = true};
    int status = mpib_pending_begin(group->family, &pending);
    return status == TUTTI_OK ? TUTTI_REQUEST_PENDING : status;
}

static void fail_mismatch(struct mpib_group *group, tutti_request *request, int32_t source,
                          const struct mpib_header *header)
{
    const tutti_host *host = group->family->host;
    request->source = rank_in(group, source);
    request->found_bytes = header->bytes;
    request->found_fingerprint = header->fingerprint;
    discard(group->family, source, header);
    host->complete(request,
                   host->error(TUTTI_ERR_MISMATCH, "rank %d sent a message that does not match the receive", source));
}

static struct mpib_arrived *first_from(const struct mpib_group *group, const tutti_request *request, int32_t rank)
{
    int32_t source = group->global_ranks[rank];
    struct mpib_arrived *arrived;
    TAILQ_FOREACH(arrived, &group->family->peers[source].arrived, link)
    {
        if (matches(group, request, source, &arrived->header)) break;
    }
    return arrived;
}

/* Returns the oldest matching message among all sources. */
static struct mpib_arrived *first_arrived(const struct mpib_group *group, const tutti_request *request)
{
    struct mpib_arrived *first = NULL;
    if (group->family->n_arrived == 0) return NULL;
    if (request->peer != TUTTI_ANY_SOURCE) return first_from(group, request, request->peer);
    for (int32_t rank = 0; rank < group->world_size; rank++) {
        struct mpib_arrived *arrived = first_from(group, request, rank);
        if (arrived != NULL && (first == NULL || arrived->number < first->number)) first = arrived;
    }
    return first;
}

/* Unlinks a message; the caller frees it. */
static void unlink_arrived(struct mpib_family *family, struct mpib_arrived *arrived)
{
    TAILQ_REMOVE(&family->peers[arrived->source].arrived, arrived, link);
    family->n_arrived--;
}

static int report_peer_lost(const struct mpib_family *family, int32_t rank)
{
    return family->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: it left the group", rank);
}

static struct mpib_posted *first_posted_for(const struct mpib_posted_list *list, int32_t rank)
{
    struct mpib_posted *posted;
    TAILQ_FOREACH(posted, list, link)
    {
        const tutti_request *request = posted->request;
        if (request->peer != TUTTI_ANY_SOURCE && posted->group->global_ranks[request->peer] == rank) break;
    }
    return posted;
}

/* Messages of one rank arrive in order, so a receive that still waits for this rank can never match. */
static void handle_departure(struct mpib_family *family, int32_t rank)
{
    struct mpib_posted_list *lists[2] = {&family->posted, &family->peeking};
    struct mpib_posted *posted;
    family->peers[rank].has_left = true;
    family->host->peer_lost(family->core, rank, true, "it left the group");
    for (int i = 0; i < 2; i++)
        while ((posted = first_posted_for(lists[i], rank)) != NULL) {
            TAILQ_REMOVE(lists[i], posted, link);
            posted->waits = false;
            family->host->complete(posted->request, report_peer_lost(family, rank));
        }
}

/* Fills a probe (TUTTI_REQUEST_PEEK) with the envelope of the message it matches. */
static int fill_probe(const struct mpib_group *group, tutti_request *request, const struct mpib_arrived *arrived)
{
    request->source = rank_in(group, arrived->source);
    tutti_request_settle(request, arrived->header.tag, arrived->header.bytes, arrived->header.fingerprint);
    return TUTTI_REQUEST_DONE;
}

/* Completes the probes that match a message just queued. */
static void complete_probes(struct mpib_family *family, const struct mpib_arrived *arrived)
{
    struct mpib_posted *posted = TAILQ_FIRST(&family->peeking), *next;
    for (; posted != NULL; posted = next) {
        struct mpib_group *group = posted->group;
        tutti_request *request = posted->request;
        next = TAILQ_NEXT(posted, link);
        if (!matches(group, request, arrived->source, &arrived->header)) continue;
        TAILQ_REMOVE(&family->peeking, posted, link);
        posted->waits = false;
        fill_probe(group, request, arrived);
        family->host->complete(request, TUTTI_OK);
    }
}

int mpib_match_recv(struct mpib_group *group, tutti_request *request)
{
    struct mpib_family *family = group->family;
    struct mpib_posted *posted = (struct mpib_posted *)request->priv;
    *posted = (struct mpib_posted){.group = group, .request = request, .waits = true};
    struct mpib_arrived *arrived = first_arrived(group, request);
    if (arrived == NULL) {
        int32_t from = request->peer != TUTTI_ANY_SOURCE ? group->global_ranks[request->peer] : family->rank;
        posted->waits = !family->peers[from].has_left;
        if (!posted->waits) return report_peer_lost(family, from);
        struct mpib_posted_list *list = request->flags & TUTTI_REQUEST_PEEK ? &family->peeking : &family->posted;
        TAILQ_INSERT_TAIL(list, posted, link);
        return TUTTI_REQUEST_PENDING;
    }
    if (request->flags & TUTTI_REQUEST_PEEK) {
        posted->waits = false;
        return fill_probe(group, request, arrived);
    }
    unlink_arrived(family, arrived);
    if (!fits(request, &arrived->header)) { /* reported by the next progress call, not from within this one */
        posted->found = arrived;
        TAILQ_INSERT_TAIL(&family->found, posted, link);
        return TUTTI_REQUEST_PENDING;
    }
    posted->waits = false;
    int status = receive_message(group, request, arrived->source, &arrived->header, arrived->data);
    free(arrived);
    return status;
}

/* True if the message matches the receive whose caller is polling before it is posted; the data then goes directly to
 * it. */
static bool is_awaited(const struct mpib_family *family, int32_t source, const struct mpib_header *header)
{
    const struct mpib_awaited *awaited = &family->awaited;
    return awaited->request != NULL && matches(awaited->group, awaited->request, source, header) &&
           fits(awaited->request, header);
}

static bool has_failed(const struct mpib_family *family, uint64_t group)
{
    for (int i = 0; i < family->n_failed_groups; i++)
        if (family->failed_groups[i] == group) return true;
    return family->closing;
}

/* Discards queued messages of failed groups. */
static void discard_arrived(struct mpib_family *family)
{
    for (int i = 0; i < family->n_peers; i++) {
        struct mpib_arrived *arrived, *next;
        for (arrived = TAILQ_FIRST(&family->peers[i].arrived); arrived != NULL; arrived = next) {
            next = TAILQ_NEXT(arrived, link);
            if (!has_failed(family, arrived->header.group)) continue;
            unlink_arrived(family, arrived);
            discard(family, arrived->source, &arrived->header);
            free(arrived);
        }
    }
}

static void queue_unexpected(struct mpib_family *family, int32_t source, const struct mpib_envelope *envelope)
{
    if (has_failed(family, envelope->header.group)) {
        discard(family, source, &envelope->header);
        return;
    }
    size_t bytes = envelope->header.long_tag == 0 ? envelope->header.bytes : 0;
    struct mpib_arrived *arrived = malloc(sizeof *arrived + bytes);
    if (arrived == NULL) {
        family->host->failed(family->core, TUTTI_ERR_NO_MEMORY, "no memory for an unexpected message");
        return;
    }
    arrived->number = family->arrivals++;
    arrived->source = source;
    arrived->header = envelope->header;
    memcpy(arrived->data, envelope->data, bytes);
    TAILQ_INSERT_TAIL(&family->peers[source].arrived, arrived, link);
    family->n_arrived++;
    complete_probes(family, arrived);
}

/* Delivers a control message.  If its group is no longer open, the sender gets an empty answer: all members opened the
 * group before the first control message (see notify). */
static void deliver_control(struct mpib_family *family, int32_t source, const struct mpib_envelope *envelope)
{
    struct mpib_header answer = {.group = envelope->header.group, .control = MPIB_CONTROL_CORE};
    struct mpib_group *group;
    LIST_FOREACH(group, &family->groups, link)
    {
        if (group->id != answer.group) continue;
        int32_t peer = rank_in(group, source);
        if (peer >= 0) family->host->notified(group->core, peer, envelope->data, envelope->header.bytes);
        return;
    }
    if (envelope->header.bytes > 0 && !family->closing) mpib_header_send(family, source, &answer, NULL, NULL);
}

/* A mismatch does not stop the polling round.  A control message right behind it may carry the root cause, and the root
 * cause must win. */
bool mpib_match_arrive(struct mpib_family *family, int32_t source, const struct mpib_envelope *envelope)
{
    const struct mpib_header *header = &envelope->header;
    struct mpib_posted *posted;
    family->goodbyes += header->control == MPIB_CONTROL_GOODBYE;
    if (header->control != 0) {
        if (header->control == MPIB_CONTROL_EXIT) handle_departure(family, source);
        if (header->control == MPIB_CONTROL_CORE) deliver_control(family, source, envelope); /* last use of envelope */
        return false;
    }
    if (is_awaited(family, source, header)) {
        struct mpib_awaited awaited = family->awaited;
        family->awaited = (struct mpib_awaited){
            .status = receive_message(awaited.group, awaited.request, source, header, envelope->data),
            .has_arrived = true};
        return true;
    }
    TAILQ_FOREACH(posted, &family->posted, link)
    {
        if (matches(posted->group, posted->request, source, header)) break;
    }
    if (posted == NULL) {
        queue_unexpected(family, source, envelope);
        return false;
    }
    struct mpib_group *group = posted->group; /* posted lives in the request and is invalid once that completes */
    tutti_request *request = posted->request;
    TAILQ_REMOVE(&family->posted, posted, link);
    posted->waits = false;
    if (!fits(request, header)) {
        fail_mismatch(group, request, source, header);
        return false;
    }
    int status = receive_message(group, request, source, header, envelope->data);
    if (status != TUTTI_REQUEST_PENDING)
        family->host->complete(request, status == TUTTI_REQUEST_DONE ? TUTTI_OK : status);
    return true;
}

int mpib_match_report(struct mpib_family *family)
{
    int n = 0;
    struct mpib_posted *posted;
    while ((posted = TAILQ_FIRST(&family->found)) != NULL) {
        struct mpib_arrived *arrived = posted->found;
        TAILQ_REMOVE(&family->found, posted, link);
        posted->waits = false;
        fail_mismatch(posted->group, posted->request, arrived->source, &arrived->header);
        free(arrived);
        n++;
    }
    return n;
}

/* ---- cancellation --------------------------------------------------------------------------------------------- */

static bool is_on(const struct mpib_posted_list *list, const struct mpib_posted *wanted)
{
    const struct mpib_posted *posted = TAILQ_FIRST(list);
    while (posted != NULL && posted != wanted) posted = TAILQ_NEXT(posted, link);
    return posted != NULL;
}

static bool withdraw(struct mpib_family *family, struct mpib_posted *posted)
{
    if (!posted->waits) return false;
    posted->waits = false;
    if (posted->found != NULL) {
        TAILQ_REMOVE(&family->found, posted, link);
        discard(family, posted->found->source, &posted->found->header);
        free(posted->found);
    } else if (is_on(&family->later, posted)) {
        TAILQ_REMOVE(&family->later, posted, link);
    } else if (is_on(&family->peeking, posted)) {
        TAILQ_REMOVE(&family->peeking, posted, link);
    } else {
        TAILQ_REMOVE(&family->posted, posted, link);
    }
    return true;
}

static bool is_waiting(const struct mpib_family *family, const struct mpib_posted *wanted)
{
    return is_on(&family->posted, wanted) || is_on(&family->found, wanted) || is_on(&family->later, wanted) ||
           is_on(&family->peeking, wanted);
}

int mpib_cancel(void *state, tutti_request *request)
{
    struct mpib_group *group = state;
    struct mpib_family *family = group->family;
    struct mpib_posted *posted = (struct mpib_posted *)request->priv;
    if (family == NULL) return TUTTI_ERR_NOT_FOUND;
    if (is_waiting(family, posted) && withdraw(family, posted)) return TUTTI_OK;
    if (!mpib_enter()) return TUTTI_ERR_UNSUPPORTED;
    int status = mpib_pending_cancel(family, request);
    mpib_leave();
    return status;
}

void mpib_messages_drop(struct mpib_group *group)
{
    struct mpib_family *family = group->family;
    struct mpib_posted_list *lists[4] = {&family->posted, &family->found, &family->later, &family->peeking};
    for (int i = 0; i < 4; i++) {
        struct mpib_posted *posted, *next;
        for (posted = TAILQ_FIRST(lists[i]); posted != NULL; posted = next) {
            next = TAILQ_NEXT(posted, link);
            if (posted->group == group) withdraw(group->family, posted);
        }
    }
}

/* ---- close and abort ------------------------------------------------------------------------------------------ */

void mpib_abort(void *state)
{
    struct mpib_group *group = state;
    struct mpib_family *family = group->family;
    if (family == NULL || has_failed(family, group->id)) return;
    uint64_t *failed_groups =
        realloc(family->failed_groups, (size_t)(family->n_failed_groups + 1) * sizeof *failed_groups);
    if (failed_groups == NULL) return; /* a peer may then have to abandon what it is sending */
    failed_groups[family->n_failed_groups++] = group->id;
    family->failed_groups = failed_groups;
    if (!mpib_enter()) return;
    discard_arrived(family);
    mpib_leave();
}

void mpib_messages_last(struct mpib_family *family, int peers)
{
    struct mpib_header header = {.control = MPIB_CONTROL_GOODBYE};
    family->closing = true;
    discard_arrived(family);
    for (int32_t rank = 0; family->n_failed_groups > 0 && rank <= peers; rank++)
        if (rank != family->rank) mpib_header_send(family, rank, &header, NULL, NULL);
}
