/* Messages with tags and fingerprints of 64 bits, over MPI, whose tags have 31 at most.
 *
 * Each message begins with a header under one tag of MPI's: in it all that MPI has no room for.  A short message rides
 * along; a long one follows by itself, under a tag that its header names, straight from and to the program's memory.
 */
#include <stdlib.h>

#include "mpi_message.h"

enum {
    POLL_MOST = 16,  /* headers a round */
    ROUNDS = 32,     /* for a message that a caller waits for, before its receive is posted */
    LOOKS_LONG = 64, /* at a long one that a caller waits for, before it is left to the rounds of progress, */
    LOOK_BYTES = 64, /* and one more for so many bytes: two or three times as long as it should take, */
    LOOKS_MOST = 4096
};

int mpib_messages_open(struct mpib_family *family, int world_size)
{
    TAILQ_INIT(&family->posted);
    TAILQ_INIT(&family->found);
    TAILQ_INIT(&family->peeking);
    TAILQ_INIT(&family->later);
    family->next_tag = MPIB_TAG_LONG;
    family->buffer = malloc(sizeof *family->buffer);
    family->peers = calloc((size_t)world_size, sizeof *family->peers);
    if (family->buffer == NULL || family->peers == NULL)
        return family->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    for (; family->n_peers < world_size; family->n_peers++) TAILQ_INIT(&family->peers[family->n_peers].arrived);
    return TUTTI_OK;
}

void mpib_messages_close(struct mpib_family *family)
{
    for (int i = 0; i < family->n_peers; i++) {
        struct mpib_arrived *arrived;
        while ((arrived = TAILQ_FIRST(&family->peers[i].arrived)) != NULL) {
            TAILQ_REMOVE(&family->peers[i].arrived, arrived, link);
            free(arrived);
        }
    }
    struct mpib_slot *slot;
    while ((slot = family->spare) != NULL) {
        family->spare = slot->next;
        free(slot);
    }
    free(family->peers);
    free(family->buffer);
    free(family->dead);
}

static int send_locked(struct mpib_group *group, tutti_request *request)
{
    struct mpib_family *family = group->family;
    int32_t to = group->global_ranks[request->peer];
    struct mpib_header header = {
        .group = group->id, .tag = request->tag, .fingerprint = request->fingerprint, .bytes = request->bytes};
    struct mpib_flight flight = {.request = request, .group = group, .sends = true, .is_message = true};
    if (request->bytes > MPIB_SHORT) {
        header.long_tag = family->next_tag;
        family->next_tag = family->next_tag == MPIB_TAG_LONG_END ? MPIB_TAG_LONG : family->next_tag + 1;
        flight.data = request->data;
        flight.left = request->bytes;
        flight.peer = to;
        flight.tag = header.long_tag;
    }
    return mpib_header_send(family, to, &header, request->data, &flight);
}

int mpib_messages_poll(struct mpib_family *family)
{
    int n = mpib_match_tell(family);
    for (int i = 0; i < POLL_MOST; i++) {
        enum mpib_came came = mpib_header_poll(family);
        if (came == MPIB_NOTHING) break;
        n++;
        if (came == MPIB_WANTED) break; /* somebody may be waiting for just this: asking on would take time */
    }
    return n;
}

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
        int status = posted->sends ? send_locked(group, request) : mpib_match_recv(group, request);
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
        if (!TAILQ_EMPTY(&family->posted)) mpib_header_poll(family);
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

static bool may_have_come(const struct mpib_group *group, const tutti_request *request)
{
    const struct mpib_family *family = group->family;
    return family->n_arrived > 0 && (request->peer == TUTTI_ANY_SOURCE ||
                                     !TAILQ_EMPTY(&family->peers[group->global_ranks[request->peer]].arrived));
}

static int await(struct mpib_group *group, tutti_request *request)
{
    struct mpib_family *family = group->family;
    bool looks = may_look(group, request) && (request->flags & TUTTI_REQUEST_PEEK) == 0;
    family->awaited = (struct mpib_awaited){.group = group, .request = request};
    /* One that was posted before, or has come before, may be for the same message. */
    for (int i = 0; looks && i < ROUNDS && family->awaited.request != NULL; i++) {
        if (!TAILQ_EMPTY(&family->posted) || may_have_come(group, request)) break;
        mpib_header_poll(family);
    }
    family->awaited.request = NULL;
    if (family->awaited.has_come) return look(group, request, family->awaited.status);
    int status = mpib_match_recv(group, request);
    return ((struct mpib_posted *)request->priv)->waits ? status : look(group, request, status);
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
    struct mpib_header header = {.group = group->id, .bytes = bytes, .note = MPIB_NOTE_OF_CORE};
    int32_t to = group->global_ranks[peer];
    int status = mpib_header_send(group->family, to, &header, message, NULL);
    mpib_leave();
    mpib_bell_ring(group->family->bell, &group->family->bells[to]); /* it may have nothing to do but to sleep */
    return status < 0 ? status : TUTTI_OK;
}

/* One that was to be told from a thread that may not call MPI: it is, by the one that may. */
struct mpib_untold {
    STAILQ_ENTRY(mpib_untold) link;
    int32_t peer;
    size_t bytes;
    uint8_t message[];
};

static int keep_untold(struct mpib_group *group, int32_t peer, const void *message, size_t bytes)
{
    struct mpib_untold *untold = malloc(sizeof *untold + bytes);
    if (untold == NULL) return group->own.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message");
    untold->peer = peer;
    untold->bytes = bytes;
    memcpy(untold->message, message, bytes);
    STAILQ_INSERT_TAIL(&group->untold, untold, link);
    return TUTTI_OK;
}

static void tell_kept(struct mpib_group *group)
{
    struct mpib_untold *untold;
    while ((untold = STAILQ_FIRST(&group->untold)) != NULL) {
        STAILQ_REMOVE_HEAD(&group->untold, link);
        mpib_notify(group, untold->peer, untold->message, untold->bytes);
        free(untold);
    }
}

void mpib_forget_untold(struct mpib_group *group)
{
    struct mpib_untold *untold;
    while ((untold = STAILQ_FIRST(&group->untold)) != NULL) {
        STAILQ_REMOVE_HEAD(&group->untold, link);
        free(untold);
    }
}

int mpib_tell(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct mpib_group *group = state;
    if (group->family == NULL) return TUTTI_OK;
    if (!mpib_enter()) return keep_untold(group, peer, message, bytes);
    mpib_leave();
    return mpib_notify(state, peer, message, bytes);
}

/* Nothing of this rank's comes any more, and not every launcher ends the others for it. */
void mpib_left(void *state)
{
    struct mpib_group *group = state;
    struct mpib_header header = {.note = MPIB_NOTE_LEFT};
    if (group->family == NULL || !mpib_enter()) return;
    for (int32_t rank = 0; rank < group->world_size; rank++) {
        if (rank == group->rank) continue;
        mpib_header_send(group->family, rank, &header, NULL, NULL);
        mpib_bell_ring(group->family->bell, &group->family->bells[rank]);
    }
    mpib_leave();
}

int mpib_progress(void *state)
{
    struct mpib_family *family = ((struct mpib_group *)state)->family;
    if (family == NULL || !mpib_enter()) return 0;
    int moved = begin_put_off(family);
    moved += mpib_flights_test(family);
    family->hears = moved == 0 || !family->hears; /* what has ended comes first, but not always */
    if (family->hears) moved += mpib_messages_poll(family);
    family->moved |= moved > 0;
    mpib_leave();
    tell_kept(state);
    return moved;
}
