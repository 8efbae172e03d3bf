/* Which receive a message is for.
 *
 * Messages are matched here as their headers come, so a receive that does not fit is noticed before a byte of it is
 * written, and receives from any source are no case of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi_message.h"

/* The rank in the group, -1 where it is none. */
static int32_t rank_in(const struct mpib_group *group, int32_t global)
{
    for (int32_t i = 0; i < group->world_size; i++)
        if (group->global_ranks[i] == global) return i;
    return -1;
}

static bool is_for(const struct mpib_group *group, const tutti_request *request, int32_t source,
                   const struct mpib_header *header)
{
    return header->group == group->id && tutti_request_takes_tag(request, header->tag) &&
           (request->peer == TUTTI_ANY_SOURCE || group->global_ranks[request->peer] == source);
}

static bool fits(const tutti_request *request, const struct mpib_header *header)
{
    return tutti_request_fits(request, header->bytes, header->fingerprint);
}

/* A long message that nobody can take must be taken all the same, or its sender would wait for good. */
static void sink(struct mpib_family *family, int32_t source, const struct mpib_header *header)
{
    if (header->long_tag == 0) return;
    struct mpib_flight flight = {.left = header->bytes,
                                 .peer = source,
                                 .tag = header->long_tag,
                                 .is_message = true,
                                 .memory = malloc(header->bytes)};
    flight.data = flight.memory;
    if (flight.memory == NULL || mpib_flights_begin(family, &flight) != TUTTI_OK) {
        free(flight.memory);
        family->host->log(1, "no memory to take in a message of %llu bytes that nobody wants",
                          (unsigned long long)header->bytes);
    }
}

/* The message of a receive that it fits: DONE, PENDING or an error. */
static int take_in(struct mpib_group *group, tutti_request *request, int32_t source, const struct mpib_header *header,
                   const void *data)
{
    request->source = request->peer != TUTTI_ANY_SOURCE ? request->peer : rank_in(group, source);
    tutti_request_settle(request, header->tag, header->bytes, header->fingerprint);
    if (header->long_tag == 0) {
        tutti_request_take(group->family->host, request, 0, data, header->bytes);
        return TUTTI_REQUEST_DONE;
    }
    struct mpib_flight flight = {.request = request,
                                 .group = group,
                                 .data = request->data,
                                 .left = request->bytes,
                                 .peer = source,
                                 .tag = header->long_tag,
                                 .is_message = true};
    int status = mpib_flights_begin(group->family, &flight);
    return status == TUTTI_OK ? TUTTI_REQUEST_PENDING : status;
}

static void refuse(struct mpib_group *group, tutti_request *request, int32_t source, const struct mpib_header *header)
{
    const tutti_host *host = group->family->host;
    request->source = rank_in(group, source);
    request->found_bytes = header->bytes;
    request->found_fingerprint = header->fingerprint;
    sink(group->family, source, header);
    host->complete(request, host->error(TUTTI_ERR_MISMATCH, "rank %d sent something else", source));
}

static struct mpib_arrived *first_from(const struct mpib_group *group, const tutti_request *request, int32_t rank)
{
    int32_t source = group->global_ranks[rank];
    struct mpib_arrived *arrived;
    TAILQ_FOREACH(arrived, &group->family->peers[source].arrived, link)
    {
        if (is_for(group, request, source, &arrived->header)) break;
    }
    return arrived;
}

/* Of what any rank has sent, what came first. */
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

/* It stays the caller's to free. */
static void take_out(struct mpib_family *family, struct mpib_arrived *arrived)
{
    TAILQ_REMOVE(&family->peers[arrived->source].arrived, arrived, link);
    family->n_arrived--;
}

static int tell_lost(const struct mpib_family *family, int32_t rank)
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

/* What it sent before has come before, so what still waits for a message of its waits in vain. */
static void lose(struct mpib_family *family, int32_t rank)
{
    struct mpib_posted_list *lists[2] = {&family->posted, &family->peeking};
    struct mpib_posted *posted;
    family->peers[rank].has_left = true;
    family->host->peer_lost(family->core, rank, true, "it left the group");
    for (int i = 0; i < 2; i++)
        while ((posted = first_posted_for(lists[i], rank)) != NULL) {
            TAILQ_REMOVE(lists[i], posted, link);
            posted->waits = false;
            family->host->complete(posted->request, tell_lost(family, rank));
        }
}

/* What a request that takes nothing has been waiting for. */
static int describe(const struct mpib_group *group, tutti_request *request, const struct mpib_arrived *arrived)
{
    request->source = rank_in(group, arrived->source);
    tutti_request_settle(request, arrived->header.tag, arrived->header.bytes, arrived->header.fingerprint);
    return TUTTI_REQUEST_DONE;
}

/* A message has been kept: those who wait for it without taking it are told of it. */
static void show(struct mpib_family *family, const struct mpib_arrived *arrived)
{
    struct mpib_posted *posted = TAILQ_FIRST(&family->peeking), *next;
    for (; posted != NULL; posted = next) {
        struct mpib_group *group = posted->group;
        tutti_request *request = posted->request;
        next = TAILQ_NEXT(posted, link);
        if (!is_for(group, request, arrived->source, &arrived->header)) continue;
        TAILQ_REMOVE(&family->peeking, posted, link);
        posted->waits = false;
        describe(group, request, arrived);
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
        if (!posted->waits) return tell_lost(family, from);
        struct mpib_posted_list *list = request->flags & TUTTI_REQUEST_PEEK ? &family->peeking : &family->posted;
        TAILQ_INSERT_TAIL(list, posted, link);
        return TUTTI_REQUEST_PENDING;
    }
    if (request->flags & TUTTI_REQUEST_PEEK) {
        posted->waits = false;
        return describe(group, request, arrived);
    }
    take_out(family, arrived);
    if (!fits(request, &arrived->header)) { /* told in the next progress, not from within this call */
        posted->found = arrived;
        TAILQ_INSERT_TAIL(&family->found, posted, link);
        return TUTTI_REQUEST_PENDING;
    }
    posted->waits = false;
    int status = take_in(group, request, arrived->source, &arrived->header, arrived->data);
    free(arrived);
    return status;
}

/* A receive whose caller waits is looked for before it is posted: what comes meanwhile goes straight to it. */
static bool is_awaited(const struct mpib_family *family, int32_t source, const struct mpib_header *header)
{
    const struct mpib_awaited *awaited = &family->awaited;
    return awaited->request != NULL && is_for(awaited->group, awaited->request, source, header) &&
           fits(awaited->request, header);
}

static bool is_dead(const struct mpib_family *family, uint64_t group)
{
    for (int i = 0; i < family->n_dead; i++)
        if (family->dead[i] == group) return true;
    return family->closing;
}

/* What has come for groups that are dead. */
static void sink_arrived(struct mpib_family *family)
{
    for (int i = 0; i < family->n_peers; i++) {
        struct mpib_arrived *arrived, *next;
        for (arrived = TAILQ_FIRST(&family->peers[i].arrived); arrived != NULL; arrived = next) {
            next = TAILQ_NEXT(arrived, link);
            if (!is_dead(family, arrived->header.group)) continue;
            take_out(family, arrived);
            sink(family, arrived->source, &arrived->header);
            free(arrived);
        }
    }
}

static void keep(struct mpib_family *family, int32_t source, const struct mpib_envelope *envelope)
{
    if (is_dead(family, envelope->header.group)) {
        sink(family, source, &envelope->header);
        return;
    }
    size_t bytes = envelope->header.long_tag == 0 ? envelope->header.bytes : 0;
    struct mpib_arrived *arrived = malloc(sizeof *arrived + bytes);
    if (arrived == NULL) {
        family->host->failed(family->core, TUTTI_ERR_NO_MEMORY, "no memory for a message that came early");
        return;
    }
    arrived->number = family->arrivals++;
    arrived->source = source;
    arrived->header = envelope->header;
    memcpy(arrived->data, envelope->data, bytes);
    TAILQ_INSERT_TAIL(&family->peers[source].arrived, arrived, link);
    family->n_arrived++;
    show(family, arrived);
}

/* One for a group that is not here any more, for all of it opened it before the first note, is answered: see notify. */
static void pass_note(struct mpib_family *family, int32_t source, const struct mpib_envelope *envelope)
{
    struct mpib_header answer = {.group = envelope->header.group, .note = MPIB_NOTE_OF_CORE};
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

/* One that is refused is no reason to stop: what fails it may have a cause in a note that comes right behind, and the
 * cause must win. */
bool mpib_match_arrive(struct mpib_family *family, int32_t source, const struct mpib_envelope *envelope)
{
    const struct mpib_header *header = &envelope->header;
    struct mpib_posted *posted;
    family->goodbyes += header->note == MPIB_NOTE_GOODBYE;
    if (header->note != 0) {
        if (header->note == MPIB_NOTE_LEFT) lose(family, source);
        if (header->note == MPIB_NOTE_OF_CORE)
            pass_note(family, source, envelope); /* the last that is done with envelope */
        return false;
    }
    if (is_awaited(family, source, header)) {
        struct mpib_awaited awaited = family->awaited;
        family->awaited = (struct mpib_awaited){
            .status = take_in(awaited.group, awaited.request, source, header, envelope->data), .has_come = true};
        return true;
    }
    TAILQ_FOREACH(posted, &family->posted, link)
    {
        if (is_for(posted->group, posted->request, source, header)) break;
    }
    if (posted == NULL) {
        keep(family, source, envelope);
        return false;
    }
    struct mpib_group *group = posted->group; /* posted is the request's own memory, which goes with it */
    tutti_request *request = posted->request;
    TAILQ_REMOVE(&family->posted, posted, link);
    posted->waits = false;
    if (!fits(request, header)) {
        refuse(group, request, source, header);
        return false;
    }
    int status = take_in(group, request, source, header, envelope->data);
    if (status != TUTTI_REQUEST_PENDING)
        family->host->complete(request, status == TUTTI_REQUEST_DONE ? TUTTI_OK : status);
    return true;
}

int mpib_match_tell(struct mpib_family *family)
{
    int n = 0;
    struct mpib_posted *posted;
    while ((posted = TAILQ_FIRST(&family->found)) != NULL) {
        struct mpib_arrived *arrived = posted->found;
        TAILQ_REMOVE(&family->found, posted, link);
        posted->waits = false;
        refuse(posted->group, posted->request, arrived->source, &arrived->header);
        free(arrived);
        n++;
    }
    return n;
}

/* ---- taking back ----------------------------------------------------------------------------------------------- */

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
        sink(family, posted->found->source, &posted->found->header);
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
    int status = mpib_flights_cancel(family, request);
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

/* ---- the end --------------------------------------------------------------------------------------------------- */

void mpib_abort(void *state)
{
    struct mpib_group *group = state;
    struct mpib_family *family = group->family;
    if (family == NULL || is_dead(family, group->id)) return;
    uint64_t *dead = realloc(family->dead, (size_t)(family->n_dead + 1) * sizeof *dead);
    if (dead == NULL) return; /* a peer may then have to give up what it sends */
    dead[family->n_dead++] = group->id;
    family->dead = dead;
    if (!mpib_enter()) return;
    sink_arrived(family);
    mpib_leave();
}

void mpib_messages_last(struct mpib_family *family, int peers)
{
    struct mpib_header header = {.note = MPIB_NOTE_GOODBYE};
    family->closing = true;
    sink_arrived(family);
    for (int32_t rank = 0; family->n_dead > 0 && rank <= peers; rank++)
        if (rank != family->rank) mpib_header_send(family, rank, &header, NULL, NULL);
}
