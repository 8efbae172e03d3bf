/* Messages with 64-bit tags and fingerprints over MPI, whose tags have at most 31 bits.
 *
 * Each message begins with a header, sent under one MPI tag, that holds everything MPI has no field for.  A short
 * message travels in its header.  A long one follows under the tag its header names, directly between the user
 * buffers. */
#include <stdlib.h>

#include "mpi_message.h"

enum {
    POLL_MAX = 16,       /* headers per round */
    AWAIT_POLLS = 32,    /* polls for an awaited message before its receive is posted */
    POLLS_LONG = 64,     /* polls of an awaited long message before it is left to progress, */
    BYTES_PER_POLL = 64, /* plus one per this many bytes: two to three times the expected duration */
    POLLS_MAX = 4096
};

int mpib_messages_open(struct mpib_tree *tree, int world_size)
{
    TAILQ_INIT(&tree->mismatched);
    TAILQ_INIT(&tree->deferred);
    tree->next_tag = MPIB_TAG_LONG;
    tree->buffer = malloc(sizeof *tree->buffer);
    tree->peers = calloc((size_t)world_size, sizeof *tree->peers);
    if (tree->buffer == NULL || tree->peers == NULL || !tutti_match_reserve(&tree->matcher, malloc, free))
        return tree->host->error(TUTTI_ERR_NO_MEMORY, "out of memory for a group of %d ranks", world_size);
    return TUTTI_OK;
}

void mpib_messages_close(struct mpib_tree *tree)
{
    tutti_match_release(&tree->matcher, free);
    struct mpib_outgoing *outgoing;
    while ((outgoing = tree->spare) != NULL) {
        tree->spare = outgoing->next;
        free(outgoing);
    }
    free(tree->peers);
    free(tree->buffer);
    free(tree->failed_groups);
}

static int send_locked(struct mpib_group *group, tutti_request *request)
{
    struct mpib_tree *tree = group->tree;
    int32_t to = group->global_ranks[request->peer];
    struct mpib_header header = {
        .group = group->id, .tag = request->tag, .fingerprint = request->fingerprint, .bytes = request->bytes};
    struct mpib_pending pending = {.request = request, .group = group, .sends = true, .is_message = true};
    if (request->bytes > MPIB_SHORT) {
        header.long_tag = tree->next_tag;
        tree->next_tag = tree->next_tag == MPIB_TAG_LONG_END ? MPIB_TAG_LONG : tree->next_tag + 1;
        pending.data = request->data;
        pending.left = request->bytes;
        pending.peer = to;
        pending.tag = header.long_tag;
    }
    if (tree->counters != NULL) tree->counters->library.sent += request->bytes;
    return mpib_header_send(tree, to, &header, request->data, &pending);
}

int mpib_messages_poll(struct mpib_tree *tree)
{
    int n = mpib_match_report(tree);
    for (int i = 0; i < POLL_MAX; i++) {
        enum mpib_arrival arrival = mpib_header_poll(tree);
        if (arrival == MPIB_NOTHING) break;
        n++;
        if (arrival == MPIB_WANTED) break; /* a caller may be waiting for this message; further polls would delay it */
    }
    return n;
}

/* Defers a request that the progress thread started although MPI admits only the main thread, which starts it when it
 * next waits. */
static int defer(struct mpib_group *group, tutti_request *request, bool sends)
{
    struct mpib_waiting *waiting = (struct mpib_waiting *)request->priv;
    *waiting = (struct mpib_waiting){.group = group, .state = MPIB_DEFERRED, .sends = sends};
    TAILQ_INSERT_TAIL(&group->tree->deferred, waiting, link);
    return TUTTI_REQUEST_PENDING;
}

static int start_deferred(struct mpib_tree *tree)
{
    struct mpib_waiting *waiting;
    int n = 0;
    while ((waiting = TAILQ_FIRST(&tree->deferred)) != NULL) {
        struct mpib_group *group = waiting->group;
        tutti_request *request = tutti_match_request(&waiting->match);
        TAILQ_REMOVE(&tree->deferred, waiting, link);
        waiting->state = MPIB_STARTED;
        int status = waiting->sends ? send_locked(group, request) : mpib_match_recv(group, request);
        if (status != TUTTI_REQUEST_PENDING)
            tree->host->complete(request, status == TUTTI_REQUEST_DONE ? TUTTI_OK : status);
        n++;
    }
    return n;
}

/* True if the request's caller waits for it and no other rank needs the core. */
static bool may_poll(const struct mpib_group *group, const tutti_request *request)
{
    return (request->flags & TUTTI_REQUEST_AWAITED) && !group->tree->shares_cores;
}

/* Polls a request whose caller waits.  Meanwhile it also serves messages received by the same operation. */
static int poll_request(struct mpib_group *group, tutti_request *request, int status)
{
    struct mpib_tree *tree = group->tree;
    if (status != TUTTI_REQUEST_PENDING || !may_poll(group, request)) return status;
    size_t polls = POLLS_LONG + request->bytes / BYTES_PER_POLL;
    if (polls > POLLS_MAX) polls = POLLS_MAX;
    for (; polls > 0 && status == TUTTI_REQUEST_PENDING; polls--) {
        if (tree->matcher.n_receives > 0) mpib_header_poll(tree);
        status = mpib_pending_poll(tree, request);
    }
    if (tree->n_pending > 0) mpib_pending_test(tree);
    return status;
}

int mpib_send(void *state, tutti_request *request)
{
    struct mpib_group *group = state;
    if (!mpib_enter()) return defer(group, request, true);
    int status = poll_request(group, request, send_locked(group, request));
    group->tree->has_moved = true;
    mpib_leave();
    return status;
}

static bool may_have_arrived(const struct mpib_group *group, const tutti_request *request)
{
    const struct mpib_tree *tree = group->tree;
    return tree->matcher.n_messages > 0 &&
           (request->peer == TUTTI_ANY_SOURCE || tree->peers[group->global_ranks[request->peer]].n_arrived > 0);
}

static int await_message(struct mpib_group *group, tutti_request *request)
{
    struct mpib_tree *tree = group->tree;
    bool polls = may_poll(group, request) && (request->flags & TUTTI_REQUEST_PEEK) == 0;
    tree->awaited = (struct mpib_awaited){.group = group, .request = request, .key = mpib_match_key(group, request)};
    /* A receive posted earlier, or a message that arrived earlier, may take precedence. */
    for (int i = 0; polls && i < AWAIT_POLLS && tree->awaited.request != NULL; i++) {
        if (tree->matcher.n_receives > 0 || may_have_arrived(group, request)) break;
        mpib_header_poll(tree);
    }
    tree->awaited.request = NULL;
    if (tree->awaited.has_arrived) return poll_request(group, request, tree->awaited.status);
    int status = mpib_match_recv(group, request);
    bool is_waiting = ((const struct mpib_waiting *)request->priv)->state != MPIB_STARTED;
    return is_waiting ? status : poll_request(group, request, status);
}

int mpib_recv(void *state, tutti_request *request)
{
    struct mpib_group *group = state;
    if (!mpib_enter()) return defer(group, request, false);
    int status = await_message(group, request);
    group->tree->has_moved = true;
    mpib_leave();
    return status;
}

int mpib_recv_reduce(void *state, tutti_request *request)
{
    if (request->bytes <= MPIB_SHORT) return mpib_recv(state, request);
    return ((struct mpib_group *)state)
        ->tree->host->error(TUTTI_ERR_INVALID_ARGUMENT, "recv_reduce of %zu bytes exceeds the limit of %d",
                            request->bytes, MPIB_SHORT);
}

int mpib_notify(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct mpib_group *group = state;
    if (group->tree == NULL || peer == group->rank || bytes > MPIB_SHORT || !mpib_enter()) return TUTTI_OK;
    struct mpib_header header = {.group = group->id, .bytes = bytes, .control = MPIB_CONTROL_CORE};
    int32_t to = group->global_ranks[peer];
    int status = mpib_header_send(group->tree, to, &header, message, NULL);
    mpib_leave();
    mpib_doorbell_ring(group->tree->doorbell_fd, &group->tree->doorbells[to]); /* the peer may be asleep */
    return status < 0 ? status : TUTTI_OK;
}

/* A failure notice from a thread that may not call MPI; the main thread sends it later. */
struct mpib_unsent {
    STAILQ_ENTRY(mpib_unsent) link;
    int32_t peer;
    size_t bytes;
    uint8_t message[];
};

static int queue_failure(struct mpib_group *group, int32_t peer, const void *message, size_t bytes)
{
    struct mpib_unsent *unsent = malloc(sizeof *unsent + bytes);
    if (unsent == NULL)
        return group->own.host->error(TUTTI_ERR_NO_MEMORY, "out of memory for a failure notice of %zu bytes", bytes);
    unsent->peer = peer;
    unsent->bytes = bytes;
    memcpy(unsent->message, message, bytes);
    STAILQ_INSERT_TAIL(&group->unsent, unsent, link);
    return TUTTI_OK;
}

static void send_queued_failures(struct mpib_group *group)
{
    struct mpib_unsent *unsent;
    while ((unsent = STAILQ_FIRST(&group->unsent)) != NULL) {
        STAILQ_REMOVE_HEAD(&group->unsent, link);
        mpib_notify(group, unsent->peer, unsent->message, unsent->bytes);
        free(unsent);
    }
}

void mpib_drop_unsent(struct mpib_group *group)
{
    struct mpib_unsent *unsent;
    while ((unsent = STAILQ_FIRST(&group->unsent)) != NULL) {
        STAILQ_REMOVE_HEAD(&group->unsent, link);
        free(unsent);
    }
}

int mpib_tell(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct mpib_group *group = state;
    if (group->tree == NULL) return TUTTI_OK;
    if (!mpib_enter()) return queue_failure(group, peer, message, bytes);
    mpib_leave();
    return mpib_notify(state, peer, message, bytes);
}

/* Notifies all peers that this rank is gone, since not every launcher ends them. */
void mpib_announce_exit(void *state)
{
    struct mpib_group *group = state;
    struct mpib_header header = {.control = MPIB_CONTROL_EXIT};
    if (group->tree == NULL || !mpib_enter()) return;
    for (int32_t rank = 0; rank < group->world_size; rank++) {
        if (rank == group->rank) continue;
        mpib_header_send(group->tree, rank, &header, NULL, NULL);
        mpib_doorbell_ring(group->tree->doorbell_fd, &group->tree->doorbells[rank]);
    }
    mpib_leave();
}

int mpib_progress(void *state)
{
    struct mpib_tree *tree = ((struct mpib_group *)state)->tree;
    if (tree == NULL || !mpib_enter()) return 0;
    int has_moved = start_deferred(tree);
    has_moved += mpib_pending_test(tree);
    tree->polled_inbox = has_moved == 0 || !tree->polled_inbox; /* completions come first, but not in every round */
    if (tree->polled_inbox) has_moved += mpib_messages_poll(tree);
    tree->has_moved |= has_moved > 0;
    mpib_leave();
    send_queued_failures(state);
    return has_moved;
}
