/* Matches messages with receives (tutti/match.h).
 *
 * Matching happens as headers arrive.  A receive that does not fit is detected before any byte of it is written, and
 * receives from any source need no special case.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi_message.h"

tutti_match_key mpib_match_key(const struct mpib_group *group, const tutti_request *request)
{
    int32_t source = request->peer != TUTTI_ANY_SOURCE ? group->global_ranks[request->peer] : TUTTI_ANY_SOURCE;
    return tutti_match_receive_key(request, group->id, source);
}

static struct mpib_waiting *waiting_of(tutti_match_receive *receive)
{
    return (struct mpib_waiting *)(void *)receive; /* the first member */
}

static struct mpib_arrived *arrived_of(tutti_match_message *message)
{
    return (struct mpib_arrived *)(void *)message; /* the first member */
}

static bool fits(const tutti_request *request, const struct mpib_header *header)
{
    return tutti_request_fits(request, header->bytes, header->fingerprint);
}

/* Receives and discards a long message that no receive will match; otherwise its sender would wait forever. */
static void discard(struct mpib_tree *tree, int32_t source, const struct mpib_header *header)
{
    if (header->long_tag == 0) return;
    struct mpib_pending pending = {.left = header->bytes,
                                   .peer = source,
                                   .tag = header->long_tag,
                                   .is_message = true,
                                   .memory = malloc(header->bytes)};
    pending.data = pending.memory;
    if (pending.memory == NULL || mpib_pending_begin(tree, &pending) != TUTTI_OK) {
        free(pending.memory);
        TUTTI_LOG_AS(tree->host, "mpi", 1, "out of memory to discard a message of %llu bytes that no receive matches",
                     (unsigned long long)header->bytes);
    }
}

/* Receives a message into a request that it fits.  Returns DONE, PENDING or an error. */
static int receive_message(struct mpib_group *group, tutti_request *request, int32_t source,
                           const struct mpib_header *header, const void *data)
{
    request->source = request->peer != TUTTI_ANY_SOURCE
                          ? request->peer
                          : tutti_match_rank(group->global_ranks, group->world_size, source);
    tutti_request_settle(request, header->tag, header->bytes, header->fingerprint);
    if (group->tree->counters != NULL) group->tree->counters->library.received += header->bytes;
    if (header->long_tag == 0) {
        tutti_request_take(group->tree->host, request, 0, data, header->bytes);
        return TUTTI_REQUEST_DONE;
    }
    struct mpib_pending pending = {.request = request,
                                   .group = group,
                                   .data = request->data,
                                   .left = request->bytes,
                                   .peer = source,
                                   .tag = header->long_tag,
                                   .is_message = true};
    int status = mpib_pending_begin(group->tree, &pending);
    return status == TUTTI_OK ? TUTTI_REQUEST_PENDING : status;
}

static void fail_mismatch(struct mpib_group *group, tutti_request *request, int32_t source,
                          const struct mpib_header *header)
{
    const tutti_host *host = group->tree->host;
    request->source = tutti_match_rank(group->global_ranks, group->world_size, source);
    request->found_bytes = header->bytes;
    request->found_fingerprint = header->fingerprint;
    discard(group->tree, source, header);
    host->complete(request, host->error(TUTTI_ERR_MISMATCH,
                                        "rank %d sent a message of %llu bytes that does not match the receive", source,
                                        (unsigned long long)header->bytes));
}

static int report_peer_lost(const struct mpib_tree *tree, int32_t rank)
{
    return tree->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: it left the group", rank);
}

/* Takes a message out of the matcher; the caller frees it. */
static struct mpib_arrived *take_arrived(struct mpib_tree *tree, tutti_match_message *message)
{
    tutti_match_take(&tree->matcher, message);
    tree->peers[message->key.source].n_arrived--;
    return arrived_of(message);
}

/* Takes a receive or probe out of the matcher and returns its request. */
static tutti_request *unpost(struct mpib_tree *tree, tutti_match_receive *receive)
{
    tutti_match_withdraw(&tree->matcher, receive);
    waiting_of(receive)->state = MPIB_STARTED;
    return tutti_match_request(receive);
}

/* Fails all receives that still wait for a rank that has left.  Messages of one rank arrive in order, so they can never
 * match. */
static void handle_departure(struct mpib_tree *tree, int32_t rank)
{
    tutti_match_receive *receive, *next;
    tree->peers[rank].has_left = true;
    tree->host->peer_lost(tree->core, rank, true, "it left the group");
    for (receive = tutti_match_next_receive(&tree->matcher, NULL); receive != NULL; receive = next) {
        next = tutti_match_next_receive(&tree->matcher, receive);
        if (receive->key.source != rank) continue;
        tree->host->complete(unpost(tree, receive), report_peer_lost(tree, rank));
    }
}

/* Fills a probe (TUTTI_REQUEST_PEEK) with the envelope of the message it matches. */
static int fill_probe(const struct mpib_group *group, tutti_request *request, const struct mpib_arrived *arrived)
{
    request->source = tutti_match_rank(group->global_ranks, group->world_size, arrived->match.key.source);
    tutti_request_settle(request, arrived->header.tag, arrived->header.bytes, arrived->header.fingerprint);
    return TUTTI_REQUEST_DONE;
}

/* Completes the probes that match a message just queued. */
static void complete_probes(struct mpib_tree *tree, const struct mpib_arrived *arrived)
{
    tutti_match_receive *probe;
    while ((probe = tutti_match_find_probe(&tree->matcher, &arrived->match.key)) != NULL) {
        const struct mpib_group *group = waiting_of(probe)->group;
        tutti_request *request = unpost(tree, probe);
        fill_probe(group, request, arrived);
        tree->host->complete(request, TUTTI_OK);
    }
}

static int post_receive(struct mpib_group *group, tutti_request *request, const tutti_match_key *key)
{
    struct mpib_tree *tree = group->tree;
    struct mpib_waiting *waiting = (struct mpib_waiting *)request->priv;
    if (key->source != TUTTI_ANY_SOURCE && tree->peers[key->source].has_left)
        return report_peer_lost(tree, key->source);
    waiting->match.key = *key;
    waiting->state = MPIB_POSTED;
    tutti_match_reserve(&tree->matcher, malloc, free);
    tutti_match_post(&tree->matcher, &waiting->match);
    return TUTTI_REQUEST_PENDING;
}

int mpib_match_recv(struct mpib_group *group, tutti_request *request)
{
    struct mpib_tree *tree = group->tree;
    struct mpib_waiting *waiting = (struct mpib_waiting *)request->priv;
    *waiting = (struct mpib_waiting){.group = group};
    tutti_match_key key = mpib_match_key(group, request);
    struct mpib_arrived *arrived = arrived_of(tutti_match_find_message(&tree->matcher, &key));
    if (arrived == NULL) return post_receive(group, request, &key);
    if (request->flags & TUTTI_REQUEST_PEEK) return fill_probe(group, request, arrived);
    take_arrived(tree, &arrived->match);
    if (!fits(request, &arrived->header)) { /* reported by the next progress call, not from within this one */
        waiting->arrived = arrived;
        waiting->state = MPIB_MISMATCHED;
        TAILQ_INSERT_TAIL(&tree->mismatched, waiting, link);
        return TUTTI_REQUEST_PENDING;
    }
    int status = receive_message(group, request, arrived->match.key.source, &arrived->header, arrived->data);
    free(arrived);
    return status;
}

/* True if the message matches the receive whose caller is polling before it is posted; the data then goes directly to
 * it. */
static bool is_awaited(const struct mpib_tree *tree, const tutti_match_key *key, const struct mpib_header *header)
{
    const struct mpib_awaited *awaited = &tree->awaited;
    return awaited->request != NULL && tutti_match_takes(&awaited->key, key) && fits(awaited->request, header);
}

static bool has_failed(const struct mpib_tree *tree, uint64_t group)
{
    for (int i = 0; i < tree->n_failed_groups; i++)
        if (tree->failed_groups[i] == group) return true;
    return tree->closing;
}

/* Discards queued messages of failed groups. */
static void discard_arrived(struct mpib_tree *tree)
{
    tutti_match_message *message, *next;
    for (message = tutti_match_next_message(&tree->matcher, NULL); message != NULL; message = next) {
        next = tutti_match_next_message(&tree->matcher, message);
        if (!has_failed(tree, message->key.group)) continue;
        struct mpib_arrived *arrived = take_arrived(tree, message);
        discard(tree, message->key.source, &arrived->header);
        free(arrived);
    }
}

static void queue_unexpected(struct mpib_tree *tree, const tutti_match_key *key, const struct mpib_envelope *envelope)
{
    if (has_failed(tree, key->group)) {
        discard(tree, key->source, &envelope->header);
        return;
    }
    size_t bytes = envelope->header.long_tag == 0 ? envelope->header.bytes : 0;
    struct mpib_arrived *arrived = malloc(sizeof *arrived + bytes);
    if (arrived == NULL) {
        tree->host->failed(tree->core, TUTTI_ERR_NO_MEMORY, "out of memory for an unexpected message");
        return;
    }
    arrived->match = (tutti_match_message){.key = *key};
    arrived->header = envelope->header;
    memcpy(arrived->data, envelope->data, bytes);
    tutti_match_reserve(&tree->matcher, malloc, free);
    tutti_match_keep(&tree->matcher, &arrived->match);
    tree->peers[key->source].n_arrived++;
    complete_probes(tree, arrived);
}

/* Delivers a control message.  If its group is no longer open, the sender gets an empty answer: all members opened the
 * group before the first control message (see notify). */
static void deliver_control(struct mpib_tree *tree, int32_t source, const struct mpib_envelope *envelope)
{
    struct mpib_header answer = {.group = envelope->header.group, .control = MPIB_CONTROL_CORE};
    struct mpib_group *group;
    LIST_FOREACH(group, &tree->groups, link)
    {
        if (group->id != answer.group) continue;
        int32_t peer = tutti_match_rank(group->global_ranks, group->world_size, source);
        if (peer >= 0) tree->host->notified(group->core, peer, envelope->data, envelope->header.bytes);
        return;
    }
    if (envelope->header.bytes > 0 && !tree->closing) mpib_header_send(tree, source, &answer, NULL, NULL);
}

/* Handles an arrived message.  A mismatch does not stop the polling round: a control message right behind it may carry
 * the root cause, and the root cause must win. */
bool mpib_match_arrive(struct mpib_tree *tree, int32_t source, const struct mpib_envelope *envelope)
{
    const struct mpib_header *header = &envelope->header;
    tree->n_departed += header->control == MPIB_CONTROL_DEPARTURE;
    if (header->control != 0) {
        if (header->control == MPIB_CONTROL_EXIT) handle_departure(tree, source);
        if (header->control == MPIB_CONTROL_CORE) deliver_control(tree, source, envelope); /* last use of envelope */
        return false;
    }
    tutti_match_key key = tutti_match_message_key(header->group, source, header->tag);
    if (is_awaited(tree, &key, header)) {
        struct mpib_awaited awaited = tree->awaited;
        tree->awaited = (struct mpib_awaited){
            .status = receive_message(awaited.group, awaited.request, source, header, envelope->data),
            .has_arrived = true};
        return true;
    }
    tutti_match_receive *receive = tutti_match_find_receive(&tree->matcher, &key);
    if (receive == NULL) {
        queue_unexpected(tree, &key, envelope);
        return false;
    }
    struct mpib_group *group = waiting_of(receive)->group; /* it lives in the request: invalid once that completes */
    tutti_request *request = unpost(tree, receive);
    if (!fits(request, header)) {
        fail_mismatch(group, request, source, header);
        return false;
    }
    int status = receive_message(group, request, source, header, envelope->data);
    if (status != TUTTI_REQUEST_PENDING)
        tree->host->complete(request, status == TUTTI_REQUEST_DONE ? TUTTI_OK : status);
    return true;
}

int mpib_match_report(struct mpib_tree *tree)
{
    int n = 0;
    struct mpib_waiting *waiting;
    while ((waiting = TAILQ_FIRST(&tree->mismatched)) != NULL) {
        struct mpib_arrived *arrived = waiting->arrived;
        TAILQ_REMOVE(&tree->mismatched, waiting, link);
        waiting->state = MPIB_STARTED;
        fail_mismatch(waiting->group, tutti_match_request(&waiting->match), arrived->match.key.source,
                      &arrived->header);
        free(arrived);
        n++;
    }
    return n;
}

/* ---- cancellation --------------------------------------------------------------------------------------------- */

/* Takes a request back.  Returns false if MPI owns it. */
static bool withdraw(struct mpib_tree *tree, struct mpib_waiting *waiting)
{
    switch (waiting->state) {
    case MPIB_STARTED:
        return false;
    case MPIB_POSTED:
        tutti_match_withdraw(&tree->matcher, &waiting->match);
        break;
    case MPIB_MISMATCHED:
        TAILQ_REMOVE(&tree->mismatched, waiting, link);
        discard(tree, waiting->arrived->match.key.source, &waiting->arrived->header);
        free(waiting->arrived);
        break;
    case MPIB_DEFERRED:
        TAILQ_REMOVE(&tree->deferred, waiting, link);
        break;
    }
    waiting->state = MPIB_STARTED;
    return true;
}

int mpib_cancel(void *state, tutti_request *request)
{
    struct mpib_group *group = state;
    struct mpib_tree *tree = group->tree;
    if (tree == NULL) return TUTTI_ERR_NOT_FOUND;
    if (withdraw(tree, (struct mpib_waiting *)request->priv)) return TUTTI_OK;
    if (!mpib_enter()) return TUTTI_ERR_UNSUPPORTED;
    int status = mpib_pending_cancel(tree, request);
    mpib_leave();
    return status;
}

void mpib_messages_drop(struct mpib_group *group)
{
    struct mpib_tree *tree = group->tree;
    struct mpib_waiting_list *lists[2] = {&tree->mismatched, &tree->deferred};
    for (int i = 0; i < 2; i++) {
        struct mpib_waiting *waiting, *next;
        for (waiting = TAILQ_FIRST(lists[i]); waiting != NULL; waiting = next) {
            next = TAILQ_NEXT(waiting, link);
            if (waiting->group == group) withdraw(tree, waiting);
        }
    }
    tutti_match_withdraw_group(&tree->matcher, group->id);
}

/* ---- close and abort ------------------------------------------------------------------------------------------ */

void mpib_abort(void *state)
{
    struct mpib_group *group = state;
    struct mpib_tree *tree = group->tree;
    if (tree == NULL || has_failed(tree, group->id)) return;
    uint64_t *failed_groups = realloc(tree->failed_groups, (size_t)(tree->n_failed_groups + 1) * sizeof *failed_groups);
    if (failed_groups == NULL) return; /* a peer may then have to abandon what it is sending */
    failed_groups[tree->n_failed_groups++] = group->id;
    tree->failed_groups = failed_groups;
    if (!mpib_enter()) return;
    discard_arrived(tree);
    mpib_leave();
}

void mpib_messages_last(struct mpib_tree *tree, int peers)
{
    struct mpib_header header = {.control = MPIB_CONTROL_DEPARTURE};
    tree->closing = true;
    discard_arrived(tree);
    for (int32_t rank = 0; tree->n_failed_groups > 0 && rank <= peers; rank++)
        if (rank != tree->rank) mpib_header_send(tree, rank, &header, NULL, NULL);
}
