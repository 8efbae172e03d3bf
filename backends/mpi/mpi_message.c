/* Messages with tags and fingerprints of 64 bits, over MPI, whose tags have 31 at most.
 *
 * Each message begins with a header under one tag of MPI's: in it all that MPI has no room for.  A short message rides
 * along; a long one follows by itself, under a tag that its header names, straight from and to the program's memory.
 * Headers are taken in as they come and matched here, so a receive that does not fit is noticed before a byte of it is
 * written, and receives from any source are no case of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "mpib.h"

enum {
    TAG_HEADER = 1,
    TAG_LONG = 16,        /* the first tag for long messages */
    TAG_LONG_END = 32767, /* every MPI has tags up to here */
    POLL_MOST = 16,       /* headers a round */
    ROUNDS = 32,          /* for a message that a caller waits for, before its receive is posted */
    LOOKS_LONG = 64,      /* at a long one that a caller waits for, before it is left to the rounds of progress, */
    LOOK_BYTES = 256,     /* and one more for so many bytes: as long as it should take, */
    LOOKS_MOST = 1024,
    LOOKS = 8 /* for one that a receive waits for, before others have their turn: a round takes twice as long */
};

struct header {
    uint64_t group, tag, fingerprint, bytes;
    int32_t long_tag; /* 0: the bytes are here */
    int32_t note;     /* 0: a message; enum note */
};

enum note { NOTE_OF_CORE = 1, NOTE_GOODBYE };

struct envelope {
    struct header header;
    char data[MPIB_SHORT];
};

struct mpib_slot {
    struct mpib_slot *next;
    struct envelope envelope;
};

/* A message that came before its receive. */
struct mpib_arrived {
    TAILQ_ENTRY(mpib_arrived) link;
    int32_t source; /* global rank */
    struct header header;
    char data[];
};

int mpib_messages_open(struct mpib_family *family)
{
    TAILQ_INIT(&family->posted);
    TAILQ_INIT(&family->found);
    TAILQ_INIT(&family->later);
    TAILQ_INIT(&family->arrived);
    family->next_tag = TAG_LONG;
    family->buffer = malloc(sizeof(struct envelope));
    return family->buffer != NULL ? TUTTI_OK : family->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group");
}

void mpib_messages_close(struct mpib_family *family)
{
    struct mpib_arrived *arrived;
    while ((arrived = TAILQ_FIRST(&family->arrived)) != NULL) {
        TAILQ_REMOVE(&family->arrived, arrived, link);
        free(arrived);
    }
    struct mpib_slot *slot;
    while ((slot = family->spare) != NULL) {
        family->spare = slot->next;
        free(slot);
    }
    free(family->buffer);
    free(family->dead);
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

static struct mpib_slot *take_slot(struct mpib_family *family)
{
    struct mpib_slot *slot = family->spare;
    if (slot == NULL) return malloc(sizeof *slot);
    family->spare = slot->next;
    return slot;
}

void mpib_slot_give(struct mpib_family *family, struct mpib_slot *slot)
{
    slot->next = family->spare;
    family->spare = slot;
}

/* The receive for the next header, which MPI then puts there by itself.  It is started again while a header of ours is
 * on its way, or with the next look: not while somebody waits for what the last one brought. */
static int post(struct mpib_family *family)
{
    if (family->listens) return MPI_SUCCESS;
    int error = MPI_Start(&family->inbox);
    family->listens = error == MPI_SUCCESS;
    return error;
}

/* `follows`: the long message that it announces, or NULL. */
static int send_header(struct mpib_family *family, int32_t to, const struct header *header, const void *data,
                       const struct mpib_flight *follows)
{
    size_t bytes = header->long_tag == 0 ? header->bytes : 0;
    struct mpib_slot *slot = take_slot(family);
    MPI_Request request;
    int done = 0, status = mpib_flights_reserve(family, 2);
    if (slot == NULL) return family->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message");
    if (status == TUTTI_OK) {
        slot->envelope.header = *header;
        if (bytes > 0) memcpy(slot->envelope.data, data, bytes);
        int error =
            MPI_Isend(&slot->envelope, (int)(sizeof *header + bytes), MPI_BYTE, to, TAG_HEADER, family->comm, &request);
        if (error != MPI_SUCCESS) status = mpib_error(family->host, "MPI_Isend", error);
    }
    if (status != TUTTI_OK) {
        mpib_slot_give(family, slot);
        return status;
    }
    if (follows != NULL) status = mpib_flights_begin(family, follows);
    MPI_Test(&request, &done, MPI_STATUS_IGNORE); /* it mostly is: there is nothing to keep */
    post(family);                                 /* where it fails, the next look tells */
    if (done) {
        mpib_slot_give(family, slot);
    } else {
        struct mpib_flight flight = {.is_message = true, .sends = true, .slot = slot};
        mpib_flights_add(family, request, &flight);
    }
    return status;
}

static int send_locked(struct mpib_group *group, tutti_request *request)
{
    struct mpib_family *family = group->family;
    int32_t to = group->global_ranks[request->peer];
    struct header header = {
        .group = group->id, .tag = request->tag, .fingerprint = request->fingerprint, .bytes = request->bytes};
    if (request->bytes <= MPIB_SHORT) {
        int status = send_header(family, to, &header, request->data, NULL);
        return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
    }
    header.long_tag = family->next_tag;
    family->next_tag = family->next_tag == TAG_LONG_END ? TAG_LONG : family->next_tag + 1;
    struct mpib_flight flight = {.request = request,
                                 .group = group,
                                 .data = request->data,
                                 .left = request->bytes,
                                 .peer = to,
                                 .tag = header.long_tag,
                                 .sends = true,
                                 .is_message = true};
    int status = send_header(family, to, &header, request->data, &flight);
    return status == TUTTI_OK ? TUTTI_REQUEST_PENDING : status;
}

/* ---- receiving ------------------------------------------------------------------------------------------------- */

/* The rank in the group, -1 where it is none. */
static int32_t rank_in(const struct mpib_group *group, int32_t global)
{
    for (int32_t i = 0; i < group->world_size; i++)
        if (group->global_ranks[i] == global) return i;
    return -1;
}

static bool is_for(const struct mpib_group *group, const tutti_request *request, int32_t source,
                   const struct header *header)
{
    return header->group == group->id && header->tag == request->tag &&
           (request->peer == TUTTI_ANY_SOURCE || group->global_ranks[request->peer] == source);
}

static bool fits(const tutti_request *request, const struct header *header)
{
    return header->bytes == request->bytes && header->fingerprint == request->fingerprint;
}

/* A long message that nobody can take must be taken all the same, or its sender would wait for good. */
static void sink(struct mpib_family *family, int32_t source, const struct header *header)
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
static int take_in(struct mpib_group *group, tutti_request *request, int32_t source, const struct header *header,
                   const void *data)
{
    request->source = request->peer != TUTTI_ANY_SOURCE ? request->peer : rank_in(group, source);
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

static void refuse(struct mpib_group *group, tutti_request *request, int32_t source, const struct header *header)
{
    const tutti_host *host = group->family->host;
    request->source = rank_in(group, source);
    request->found_bytes = header->bytes;
    request->found_fingerprint = header->fingerprint;
    sink(group->family, source, header);
    host->complete(request, host->error(TUTTI_ERR_MISMATCH, "rank %d sent something else", source));
}

static int recv_locked(struct mpib_group *group, tutti_request *request)
{
    struct mpib_family *family = group->family;
    struct mpib_posted *posted = (struct mpib_posted *)request->priv;
    struct mpib_arrived *arrived;
    *posted = (struct mpib_posted){.group = group, .request = request, .waits = true};
    TAILQ_FOREACH(arrived, &family->arrived, link)
    {
        if (is_for(group, request, arrived->source, &arrived->header)) break;
    }
    if (arrived == NULL) {
        TAILQ_INSERT_TAIL(&family->posted, posted, link);
        return TUTTI_REQUEST_PENDING;
    }
    TAILQ_REMOVE(&family->arrived, arrived, link);
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
static bool is_awaited(const struct mpib_family *family, int32_t source, const struct header *header)
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
    struct mpib_arrived *arrived, *next;
    for (arrived = TAILQ_FIRST(&family->arrived); arrived != NULL; arrived = next) {
        next = TAILQ_NEXT(arrived, link);
        if (!is_dead(family, arrived->header.group)) continue;
        TAILQ_REMOVE(&family->arrived, arrived, link);
        sink(family, arrived->source, &arrived->header);
        free(arrived);
    }
}

static void keep(struct mpib_family *family, int32_t source, const struct envelope *envelope)
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
    arrived->source = source;
    arrived->header = envelope->header;
    memcpy(arrived->data, envelope->data, bytes);
    TAILQ_INSERT_TAIL(&family->arrived, arrived, link);
}

/* One for a group that is not here any more, for all of it opened it before the first note, is answered: see notify. */
static void pass_note(struct mpib_family *family, int32_t source, const struct envelope *envelope)
{
    struct header answer = {.group = envelope->header.group, .note = NOTE_OF_CORE};
    struct mpib_group *group;
    LIST_FOREACH(group, &family->groups, link)
    {
        if (group->id != answer.group) continue;
        int32_t peer = rank_in(group, source);
        if (peer >= 0) family->host->notified(group->core, peer, envelope->data, envelope->header.bytes);
        return;
    }
    if (envelope->header.bytes > 0 && !family->closing) send_header(family, source, &answer, NULL, NULL);
}

/* Whether a receive was waiting for it, and gets it.  One that is refused is no reason to stop: what fails it may have
 * a cause in a note that comes right behind, and the cause must win. */
static bool arrive(struct mpib_family *family, int32_t source, const struct envelope *envelope)
{
    const struct header *header = &envelope->header;
    struct mpib_posted *posted;
    family->goodbyes += header->note == NOTE_GOODBYE;
    if (header->note != 0) {
        if (header->note == NOTE_OF_CORE) pass_note(family, source, envelope); /* the last that is done with envelope */
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

static bool is_sound(const struct envelope *envelope, int bytes)
{
    const struct header *header = &envelope->header;
    if (bytes < (int)sizeof *header) return false;
    size_t here = (size_t)bytes - sizeof *header;
    return header->long_tag == 0 ? header->bytes == here : here == 0 && header->bytes > MPIB_SHORT;
}

enum came { NOTHING, KEPT, WANTED };

int mpib_messages_listen(struct mpib_family *family)
{
    int error = MPI_Recv_init(family->buffer, sizeof(struct envelope), MPI_BYTE, MPI_ANY_SOURCE, TAG_HEADER,
                              family->comm, &family->inbox);
    if (error == MPI_SUCCESS) error = post(family);
    return error == MPI_SUCCESS ? TUTTI_OK : mpib_error(family->host, "MPI_Recv_init and MPI_Start", error);
}

void mpib_messages_deafen(struct mpib_family *family)
{
    if (family->listens) {
        MPI_Cancel(&family->inbox);
        MPI_Wait(&family->inbox, MPI_STATUS_IGNORE);
        family->listens = false;
    }
    if (family->inbox != MPI_REQUEST_NULL) MPI_Request_free(&family->inbox);
}

/* Takes one header in, if one is there. */
static enum came poll_one(struct mpib_family *family)
{
    struct envelope *envelope = family->buffer;
    MPI_Status status;
    int there = 0, bytes = 0, error = post(family);
    if (error != MPI_SUCCESS) {
        family->host->failed(family->core, TUTTI_ERR_BACKEND, "MPI takes no receive");
        return NOTHING;
    }
    bool wanted = family->awaited.request != NULL || !TAILQ_EMPTY(&family->posted);
    bool looks_again = !family->shares_cores && family->n_flights == 0 && wanted;
    int looks = looks_again ? LOOKS : 1;
    for (int i = 0; i < looks && !there && error == MPI_SUCCESS; i++) error = MPI_Test(&family->inbox, &there, &status);
    if (!there && error == MPI_SUCCESS) return NOTHING;
    family->listens = false;
    enum came came = KEPT;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (error == MPI_SUCCESS && is_sound(envelope, bytes))
        came = arrive(family, status.MPI_SOURCE, envelope) ? WANTED : KEPT;
    else
        family->host->log(0, "a message of %d bytes from rank %d makes no sense", bytes, status.MPI_SOURCE);
    return came;
}

int mpib_messages_poll(struct mpib_family *family)
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
    for (int i = 0; i < POLL_MOST; i++) {
        enum came came = poll_one(family);
        if (came == NOTHING) break;
        n++;
        if (came == WANTED) break; /* somebody may be waiting for just this: asking on would take time */
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
    } else {
        TAILQ_REMOVE(&family->posted, posted, link);
    }
    return true;
}

static bool is_waiting(const struct mpib_family *family, const struct mpib_posted *wanted)
{
    return is_on(&family->posted, wanted) || is_on(&family->found, wanted) || is_on(&family->later, wanted);
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
    struct mpib_posted_list *lists[3] = {&group->family->posted, &group->family->found, &group->family->later};
    for (int i = 0; i < 3; i++) {
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
    struct header header = {.note = NOTE_GOODBYE};
    family->closing = true;
    sink_arrived(family);
    for (int32_t rank = 0; family->n_dead > 0 && rank <= peers; rank++)
        if (rank != family->rank) send_header(family, rank, &header, NULL, NULL);
}

/* ---- the table's entries --------------------------------------------------------------------------------------- */

/* The core's thread has come to a message that MPI lets the main thread alone begin: it does so when it next waits. */
static int put_off(struct mpib_group *group, tutti_request *request, bool sends)
{
    struct mpib_posted *posted = (struct mpib_posted *)request->priv;
    *posted = (struct mpib_posted){.group = group, .request = request, .waits = true, .sends = sends};
    TAILQ_INSERT_TAIL(&group->family->later, posted, link);
    return TUTTI_REQUEST_PENDING;
}

static int begin_put_off(struct mpib_family *family)
{
    struct mpib_posted *posted;
    int n = 0;
    while ((posted = TAILQ_FIRST(&family->later)) != NULL) {
        struct mpib_group *group = posted->group;
        tutti_request *request = posted->request;
        TAILQ_REMOVE(&family->later, posted, link);
        int status = posted->sends ? send_locked(group, request) : recv_locked(group, request);
        if (status != TUTTI_REQUEST_PENDING)
            family->host->complete(request, status == TUTTI_REQUEST_DONE ? TUTTI_OK : status);
        n++;
    }
    return n;
}

/* Whether the caller of a request waits for it, and nobody else needs the core meanwhile. */
static bool may_look(const struct mpib_group *group, const tutti_request *request)
{
    return (request->flags & TUTTI_REQUEST_AWAITED) && !group->family->shares_cores;
}

/* One whose caller waits has nothing else to do, but for what the same operation receives meanwhile. */
static int look(struct mpib_group *group, tutti_request *request, int status)
{
    struct mpib_family *family = group->family;
    if (status != TUTTI_REQUEST_PENDING || !may_look(group, request)) return status;
    size_t looks = LOOKS_LONG + request->bytes / LOOK_BYTES;
    if (looks > LOOKS_MOST) looks = LOOKS_MOST;
    for (; looks > 0 && status == TUTTI_REQUEST_PENDING; looks--) {
        if (!TAILQ_EMPTY(&family->posted)) poll_one(family);
        status = mpib_flights_look(family, request);
    }
    if (family->n_flights > 0) mpib_flights_test(family);
    return status;
}

int mpib_send(void *state, tutti_request *request)
{
    struct mpib_group *group = state;
    if (!mpib_enter()) return put_off(group, request, true);
    int status = look(group, request, send_locked(group, request));
    group->family->moved = true;
    mpib_leave();
    return status;
}

static int await(struct mpib_group *group, tutti_request *request)
{
    struct mpib_family *family = group->family;
    bool looks = may_look(group, request);
    family->awaited = (struct mpib_awaited){.group = group, .request = request};
    /* One that was posted before, or has come before, may be for the same message. */
    for (int i = 0; looks && i < ROUNDS && family->awaited.request != NULL; i++) {
        if (!TAILQ_EMPTY(&family->posted) || !TAILQ_EMPTY(&family->arrived)) break;
        poll_one(family);
    }
    family->awaited.request = NULL;
    return family->awaited.has_come ? look(group, request, family->awaited.status) : recv_locked(group, request);
}

int mpib_recv(void *state, tutti_request *request)
{
    struct mpib_group *group = state;
    if (!mpib_enter()) return put_off(group, request, false);
    int status = await(group, request);
    group->family->moved = true;
    mpib_leave();
    return status;
}

int mpib_recv_reduce(void *state, tutti_request *request)
{
    if (request->bytes <= MPIB_SHORT) return mpib_recv(state, request);
    return ((struct mpib_group *)state)
        ->family->host->error(TUTTI_ERR_INVALID_ARGUMENT, "a recv_reduce of %zu bytes; at most %d", request->bytes,
                              MPIB_SHORT);
}

int mpib_notify(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct mpib_group *group = state;
    if (group->family == NULL || peer == group->rank || bytes > MPIB_SHORT || !mpib_enter()) return TUTTI_OK;
    struct header header = {.group = group->id, .bytes = bytes, .note = NOTE_OF_CORE};
    int32_t to = group->global_ranks[peer];
    int status = send_header(group->family, to, &header, message, NULL);
    mpib_leave();
    mpib_bell_ring(group->family->bell, &group->family->bells[to]); /* it may have nothing to do but to sleep */
    return status;
}

int mpib_progress(void *state)
{
    struct mpib_family *family = ((struct mpib_group *)state)->family;
    if (family == NULL || !mpib_enter()) return 0;
    int moved = begin_put_off(family);
    moved += mpib_flights_test(family);
    moved += mpib_messages_poll(family);
    family->moved |= moved > 0;
    mpib_leave();
    return moved;
}
