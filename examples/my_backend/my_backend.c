/* A backend outside Tutti's tree: tagged messages over plain TCP sockets on one host. */
#include "my_backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct pending *pending_of(tutti_request *request)
{
    return (struct pending *)request->priv;
}

static struct group *find_group(struct group *first, uint64_t id)
{
    struct group *group;
    LIST_FOREACH(group, &first->groups, link)
    {
        if (group->info.id == id) return group;
    }
    return NULL;
}

/* ---- matching ---------------------------------------------------------------------------------------------- */

/* Returns MISMATCH if sizes or fingerprints of a message and its receive differ. */
static int agree(const struct group *group, tutti_request *request, const struct frame *frame, int peer)
{
    bool same = request->fingerprint == 0 || frame->fingerprint == 0 || request->fingerprint == frame->fingerprint;
    request->source = tutti_match_rank(group->info.global_ranks, group->info.world_size, peer);
    if (same && frame->bytes == request->bytes) return TUTTI_OK;
    request->found_bytes = frame->bytes;
    request->found_fingerprint = frame->fingerprint;
    return group->host->error(TUTTI_ERR_MISMATCH, "rank %d sent %llu bytes where this rank expects %zu", peer,
                              (unsigned long long)frame->bytes, request->bytes);
}

static int take(struct group *group, tutti_request *request, const struct kept *kept)
{
    int status = agree(group, request, &kept->frame, kept->peer);
    if (status == TUTTI_OK && kept->frame.bytes > 0) memcpy(request->data, kept->data, kept->frame.bytes);
    return status;
}

/* Handles a message that has arrived completely. */
static void arrived(struct group *first, struct kept *kept)
{
    struct group *group = find_group(first, kept->frame.group);
    if (kept->frame.kind == FRAME_GOODBYE) {
        first->peers[kept->peer].left = true; /* from now on its connection may close without failing the group */
        free(kept);
        return;
    }
    if (kept->frame.kind == FRAME_CONTROL) {
        int from = group != NULL ? tutti_match_rank(group->info.global_ranks, group->info.world_size, kept->peer) : -1;
        if (from >= 0) first->host->notified(group->info.core, from, kept->data, kept->frame.bytes);
        free(kept);
        return;
    }
    kept->match.key = tutti_match_message_key(kept->frame.group, kept->peer, kept->frame.tag);
    tutti_match_receive *receive = tutti_match_find_receive(&first->matcher, &kept->match.key);
    if (receive == NULL) { /* or its group is not open on this rank yet */
        tutti_match_reserve(&first->matcher, malloc, free);
        tutti_match_keep(&first->matcher, &kept->match);
        return;
    }
    tutti_match_withdraw(&first->matcher, receive);
    tutti_request *request = tutti_match_request(receive);
    first->host->complete(request, take(pending_of(request)->group, request, kept));
    free(kept);
}

/* ---- the sockets ------------------------------------------------------------------------------------------- */

static void want(struct group *first, int peer, bool to_write)
{
    struct epoll_event event = {.events = EPOLLIN | (to_write ? EPOLLOUT : 0u), .data.u32 = (uint32_t)peer};
    epoll_ctl(first->poll, EPOLL_CTL_MOD, first->peers[peer].fd, &event);
}

static void out_done(struct group *first, struct peer *peer, struct out *out, int status, int rank)
{
    TAILQ_REMOVE(&peer->out, out, link);
    if (status != TUTTI_OK) first->host->error(status, "rank %d is lost", rank);
    if (out->request != NULL) first->host->complete(out->request, status);
    free(out);
}

static void lose(struct group *first, int peer)
{
    struct peer *lost = &first->peers[peer];
    tutti_match_receive *receive, *next;
    struct out *out;
    if (lost->fd < 0) return;
    close(lost->fd);
    lost->fd = -1;
    free(lost->in);
    lost->in = NULL;
    while ((out = TAILQ_FIRST(&lost->out)) != NULL) out_done(first, lost, out, TUTTI_ERR_PEER_LOST, peer);
    for (receive = tutti_match_next_receive(&first->matcher, NULL); receive != NULL; receive = next) {
        next = tutti_match_next_receive(&first->matcher, receive);
        if (receive->key.source != peer) continue;
        tutti_match_withdraw(&first->matcher, receive);
        first->host->complete(tutti_match_request(receive),
                              first->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost", peer));
    }
    first->host->peer_lost(first->info.core, peer, lost->left, lost->left ? "it left the group" : "connection closed");
}

static int write_some(struct group *first, int rank)
{
    struct peer *peer = &first->peers[rank];
    struct out *out;
    int moved = 0;
    while (peer->fd >= 0 && (out = TAILQ_FIRST(&peer->out)) != NULL) {
        size_t head = sizeof out->frame, bytes = head + out->frame.bytes;
        const char *at = out->at < head ? (const char *)&out->frame + out->at : out->data + (out->at - head);
        ssize_t sent = send(peer->fd, at, (out->at < head ? head : bytes) - out->at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0) break; /* the next read finds the cause */
        out->at += (size_t)sent;
        moved++;
        if (out->at == bytes) out_done(first, peer, out, TUTTI_OK, rank);
    }
    if (peer->fd >= 0) want(first, rank, !TAILQ_EMPTY(&peer->out));
    return moved;
}

/* Reads a frame, then its data into memory of the right size, until the socket is empty. */
static int read_some(struct group *first, int rank)
{
    struct peer *peer = &first->peers[rank];
    for (int moved = 0;; moved++) {
        size_t head = sizeof peer->frame, bytes = peer->got < head ? head : head + peer->frame.bytes;
        char *at = peer->got < head ? (char *)&peer->frame + peer->got : peer->in->data + (peer->got - head);
        ssize_t got = peer->got == bytes ? 0 : recv(peer->fd, at, bytes - peer->got, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return moved;
        if (got < 0 || (got == 0 && peer->got < bytes)) {
            lose(first, rank);
            return 1;
        }
        peer->got += (size_t)got;
        if (peer->got < head) continue;
        if (peer->in == NULL) { /* check the size before allocating memory */
            peer->in = peer->frame.bytes <= FRAME_BYTES_MAX ? malloc(sizeof *peer->in + peer->frame.bytes) : NULL;
            if (peer->in == NULL) {
                lose(first, rank);
                return 1;
            }
            *peer->in = (struct kept){.frame = peer->frame, .peer = rank};
        }
        if (peer->got < head + peer->frame.bytes) continue;
        struct kept *kept = peer->in;
        peer->in = NULL;
        peer->got = 0;
        arrived(first, kept);
    }
}

/* ---- the table's entries ----------------------------------------------------------------------------------- */

static int enqueue(struct group *group, uint32_t kind, int peer, tutti_request *request, const void *data, size_t bytes)
{
    struct group *first = group->first;
    bool copied = request == NULL;
    if (first->peers[peer].fd < 0) return group->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost", peer);
    struct out *out = malloc(sizeof *out + (copied ? bytes : 0));
    if (out == NULL) return group->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message to rank %d", peer);
    *out = (struct out){.group = group, .request = request, .data = copied ? out->copy : data};
    out->frame = (struct frame){.kind = kind, .group = group->info.id, .bytes = bytes};
    if (copied) memcpy(out->copy, data, bytes);
    if (request != NULL) {
        out->frame.tag = request->tag;
        out->frame.fingerprint = request->fingerprint;
        *pending_of(request) = (struct pending){.group = group, .out = out};
    }
    TAILQ_INSERT_TAIL(&first->peers[peer].out, out, link);
    return TUTTI_REQUEST_PENDING; /* progress writes it and completes the request */
}

static int my_send(void *state, tutti_request *request)
{
    struct group *group = state;
    int peer = group->info.global_ranks[request->peer];
    int status = enqueue(group, FRAME_DATA, peer, request, request->data, request->bytes);
    if (status == TUTTI_REQUEST_PENDING) group->first->unwritten = true;
    return status;
}

static int my_recv(void *state, tutti_request *request)
{
    struct group *group = state, *first = group->first;
    struct pending *pending = pending_of(request);
    int32_t source = request->peer == TUTTI_ANY_SOURCE ? TUTTI_ANY_SOURCE : group->info.global_ranks[request->peer];
    *pending = (struct pending){.match.key = tutti_match_receive_key(request, group->info.id, source), .group = group};
    tutti_match_message *message = tutti_match_find_message(&first->matcher, &pending->match.key);
    if (message != NULL) {
        struct kept *kept = (struct kept *)(void *)message; /* the message is its first member */
        tutti_match_take(&first->matcher, message);
        int status = take(group, request, kept);
        free(kept);
        return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
    }
    if (source != TUTTI_ANY_SOURCE && first->peers[source].fd < 0)
        return group->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost", source);
    tutti_match_reserve(&first->matcher, malloc, free);
    tutti_match_post(&first->matcher, &pending->match);
    return TUTTI_REQUEST_PENDING;
}

/* Withdraws a request, unless its message has been written in part. */
static int my_cancel(void *state, tutti_request *request)
{
    struct group *group = state;
    struct out *out = pending_of(request)->out;
    if (tutti_match_is_posted(&pending_of(request)->match)) {
        tutti_match_withdraw(&group->first->matcher, &pending_of(request)->match);
        return TUTTI_OK;
    }
    if (out == NULL || out->at > 0)
        return group->host->error(TUTTI_ERR_ABORTED, "the message has been sent in part; it cannot be cancelled");
    TAILQ_REMOVE(&group->first->peers[group->info.global_ranks[request->peer]].out, out, link);
    free(out);
    return TUTTI_OK;
}

static int my_notify(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct group *group = state;
    int status = enqueue(group, FRAME_CONTROL, group->info.global_ranks[peer], NULL, message, bytes);
    group->first->unwritten = true;
    return status < 0 ? status : TUTTI_OK;
}

static int my_progress(void *state)
{
    struct group *first = state;
    struct epoll_event events[16];
    int moved = 0;
    for (int peer = 0; first->unwritten && peer < first->info.world_size; peer++)
        if (!TAILQ_EMPTY(&first->peers[peer].out)) moved += write_some(first, peer);
    first->unwritten = false;
    int n = epoll_wait(first->poll, events, 16, 0);
    for (int i = 0; i < n; i++) {
        int peer = (int)events[i].data.u32;
        if (events[i].events & EPOLLOUT) moved += write_some(first, peer);
        if (first->peers[peer].fd >= 0 && (events[i].events & ~(uint32_t)EPOLLOUT)) moved += read_some(first, peer);
    }
    return moved;
}

static int my_arm(void *state, int *descriptors)
{
    struct group *first = state;
    if (first->unwritten) return 0;
    descriptors[0] = first->poll;
    return 1;
}

static int my_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct group *group = state;
    *group = (struct group){.host = host, .info = *info, .first = info->parent != NULL ? info->parent : group};
    LIST_INSERT_HEAD(&group->first->groups, group, link);
    return info->parent != NULL ? TUTTI_OK : mesh_open(group);
}

/* Drops a group's unsent messages.  If one has been written in part, drops the connection: no other may follow it. */
static void drop_outs(struct group *group, int peer)
{
    struct out *out, *next;
    for (out = TAILQ_FIRST(&group->first->peers[peer].out); out != NULL; out = next) {
        next = TAILQ_NEXT(out, link);
        if (out->group != group) continue;
        out->request = NULL; /* the core has dropped the request */
        if (out->at > 0 && out->data != out->copy) {
            lose(group->first, peer);
            return;
        }
        TAILQ_REMOVE(&group->first->peers[peer].out, out, link);
        free(out);
    }
}

static void my_close(void *state)
{
    struct group *group = state;
    if (group->host == NULL) return; /* the group was never opened */
    LIST_REMOVE(group, link);
    tutti_match_withdraw_group(&group->first->matcher, group->info.id);
    if (group->first == group) {
        for (int peer = 0; group->peers != NULL && peer < group->info.world_size; peer++) {
            if (group->peers[peer].fd >= 0) enqueue(group, FRAME_GOODBYE, peer, NULL, "", 0);
            write_some(group, peer);
        }
        mesh_close(group);
    } else {
        for (int peer = 0; peer < group->first->info.world_size; peer++) drop_outs(group, peer);
    }
}

TUTTI_BACKEND_EXPORT extern const tutti_backend tutti_backend_v1;

const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,
    .name = "sockets",
    .version = "an example",
    .group_bytes = sizeof(struct group),
    .devices = 1u << TUTTI_CPU,
    .open = my_open,
    .close = my_close,
    .send = my_send,
    .recv = my_recv,
    .progress = my_progress,
    .arm = my_arm,
    .cancel = my_cancel,
    .notify = my_notify,
};
