/* The smallest useful plug-in: messages between the ranks of one host, over unix datagram sockets.
 *
 * It only sends and receives, and Tutti builds every collective from that.  docs/backend-guide.md walks through this
 * file.  Each rank has one socket.  A message travels as packets of up to 32 KiB, which the receiver joins.  Then
 * <tutti/match.h> finds the posted receive of the message, or keeps the message until one is posted. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tutti/match.h>
#include <unistd.h>

enum { PROOF = 32, PACKET = 32 << 10 };
#define MESSAGE_BYTES_MAX ((uint64_t)1 << 40)

/* Precedes each packet.  All ranks share a host, and so a byte order. */
struct header {
    uint8_t proof[PROOF]; /* derived from the job's token and the receiver's address: other users cannot know it */
    uint64_t from;        /* global rank of the sender */
    uint64_t group, tag, fingerprint, bytes;
};

/* A message that arrives in packets, or is complete and waits for its receive. */
struct message {
    tutti_match_message match; /* must be the first member, for tutti_match_release */
    struct header header;
    size_t done; /* bytes that have arrived */
    char data[];
};

/* A posted request.  It is stored in request->priv, the words that a request has for its backend. */
struct pending {
    union {
        tutti_match_receive match; /* for a receive */
        struct {                   /* for a send */
            TAILQ_ENTRY(pending) link;
            size_t done; /* bytes sent */
        };
    };
    struct group *group;
    struct peer *peer; /* for a send, else NULL */
};
_Static_assert(sizeof(struct pending) <= sizeof((tutti_request){0}.priv), "a request's words hold a struct pending");

struct peer {
    struct sockaddr_un address;
    uint8_t proof[PROOF];
    TAILQ_HEAD(, pending) sends;
    struct message *arriving;
};

struct group {
    const tutti_host *host;
    tutti_group_info info;
    struct group *first; /* the tree's first group; only that one has the members below */
    int fd;
    struct peer *peers;    /* by global rank */
    tutti_matcher matcher; /* posted receives, and messages that arrived before their receive */
};

/* ---- messages ------------------------------------------------------------------------------------------------ */

/* Copies a message to its receive and frees it.  Returns MISMATCH if sizes or fingerprints differ. */
static int deliver(const struct group *group, tutti_request *receive, struct message *message)
{
    int status = TUTTI_OK;
    for (int rank = 0; rank < group->info.world_size; rank++)
        if ((uint64_t)group->info.global_ranks[rank] == message->header.from) receive->source = rank;
    receive->found_bytes = message->header.bytes;
    receive->found_fingerprint = message->header.fingerprint;
    if (tutti_request_fits(receive, receive->found_bytes, receive->found_fingerprint))
        tutti_copy(receive->data, message->data, receive->bytes);
    else
        status = group->host->error(TUTTI_ERR_MISMATCH, "a message of %llu bytes does not match its receive of %zu",
                                    (unsigned long long)receive->found_bytes, receive->bytes);
    free(message);
    return status;
}

static void arrive(struct group *first, struct message *message)
{
    const struct header *header = &message->header;
    message->match.key = tutti_match_message_key(header->group, (int32_t)header->from, header->tag);
    tutti_match_receive *receive = tutti_match_find_receive(&first->matcher, &message->match.key);
    if (receive == NULL) {
        tutti_match_reserve(&first->matcher, malloc, free);
        tutti_match_keep(&first->matcher, &message->match);
        return;
    }
    tutti_match_withdraw(&first->matcher, receive);
    tutti_request *request = tutti_match_request(receive);
    first->host->complete(request, deliver(((struct pending *)request->priv)->group, request, message));
}

/* ---- packets ------------------------------------------------------------------------------------------------- */

/* Reads one packet.  Drops it if its header is invalid.  Returns false if there is none. */
static bool receive_packet(struct group *first)
{
    struct header header;
    struct message *message = NULL;
    ssize_t got = recv(first->fd, &header, sizeof header, MSG_PEEK | MSG_TRUNC), bytes = got - (ssize_t)sizeof header;
    if (got < 0) return false;
    if (bytes >= 0 && first->host->token_equal(header.proof, first->peers[first->info.rank].proof) &&
        header.from < (uint64_t)first->info.world_size && header.bytes <= MESSAGE_BYTES_MAX) {
        message = first->peers[header.from].arriving;
        if (message == NULL && (message = malloc(sizeof *message + header.bytes)) != NULL)
            *message = (struct message){.header = header};
        if (message == NULL) first->host->failed(first->info.core, TUTTI_ERR_NO_MEMORY, "no memory for a message");
        first->peers[header.from].arriving = message;
    }
    if (message == NULL || (size_t)bytes > message->header.bytes - message->done)
        return recv(first->fd, NULL, 0, 0) >= 0;
    struct iovec parts[] = {{&header, sizeof header}, {message->data + message->done, (size_t)bytes}};
    if (recvmsg(first->fd, &(struct msghdr){.msg_iov = parts, .msg_iovlen = 2}, 0) < 0) return false;
    message->done += (size_t)bytes;
    if (message->done < message->header.bytes) return true;
    first->peers[header.from].arriving = NULL;
    arrive(first, message);
    return true;
}

/* Sends one packet of the oldest message to a peer.  Returns false if there is none or the peer's queue is full. */
static bool send_packet(struct group *first, struct peer *peer)
{
    struct pending *send = TAILQ_FIRST(&peer->sends);
    if (send == NULL) return false;
    tutti_request *request = tutti_match_request(&send->match);
    size_t left = request->bytes - send->done, bytes = left < PACKET ? left : PACKET;
    struct header header = {.from = (uint64_t)first->info.rank,
                            .group = send->group->info.id,
                            .tag = request->tag,
                            .fingerprint = request->fingerprint,
                            .bytes = request->bytes};
    memcpy(header.proof, peer->proof, PROOF);
    struct iovec parts[] = {{&header, sizeof header}, {(char *)request->data + send->done, bytes}};
    struct msghdr packet = {&peer->address, sizeof peer->address, parts, 2, NULL, 0, 0};
    bool sent = sendmsg(first->fd, &packet, MSG_NOSIGNAL) >= 0;
    if (!sent && (errno == EAGAIN || errno == EINTR)) return false;
    send->done += bytes;
    if (sent && send->done < request->bytes) return true;
    TAILQ_REMOVE(&peer->sends, send, link);
    first->host->complete(request, sent ? TUTTI_OK : first->host->error(TUTTI_ERR_PEER_LOST, "its socket is closed"));
    return true;
}

/* ---- the table's entries ------------------------------------------------------------------------------------- */

/* Creates this rank's socket and publishes its address. */
static int open_socket(struct group *group)
{
    const tutti_host *host = group->host;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char key[16];
    host->random(address.sun_path + 1, 16); /* after a zero byte: an abstract name, which ends with its socket */
    snprintf(key, sizeof key, "%d", group->info.rank);
    group->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (group->fd < 0 || bind(group->fd, (struct sockaddr *)&address, sizeof address) != 0)
        return host->error(TUTTI_ERR_SYSTEM, "minimal: cannot create a socket: %s", strerror(errno));
    return host->store_set(group->info.store, key, &address, sizeof address);
}

static int my_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct group *group = state;
    *group = (struct group){.host = host, .info = *info, .first = info->parent ? info->parent : group, .fd = -1};
    if (info->parent != NULL) return TUTTI_OK;
    group->peers = calloc((size_t)info->world_size, sizeof *group->peers);
    if (group->peers == NULL || !tutti_match_reserve(&group->matcher, malloc, free))
        return host->error(TUTTI_ERR_NO_MEMORY, "no memory for %d ranks", info->world_size);
    int status = open_socket(group);
    for (int rank = 0; rank < info->world_size && status == TUTTI_OK; rank++) {
        struct peer *peer = &group->peers[rank];
        size_t bytes, most = sizeof peer->address;
        char key[16];
        snprintf(key, sizeof key, "%d", rank);
        TAILQ_INIT(&peer->sends);
        status = host->store_get(info->store, key, &peer->address, most, &bytes, info->timeout_ms);
        host->token_mac(peer->proof, &peer->address, most);
    }
    return status;
}

static void drop_sends(struct peer *peer, const struct group *group)
{
    for (struct pending *send = TAILQ_FIRST(&peer->sends), *next; send != NULL; send = next) {
        next = TAILQ_NEXT(send, link);
        if (send->group == group) TAILQ_REMOVE(&peer->sends, send, link);
    }
}

static void my_close(void *state)
{
    struct group *group = state, *first = group->first;
    if (first == NULL || first->peers == NULL) return; /* the group was never open */
    tutti_match_withdraw_group(&first->matcher, group->info.id);
    for (int rank = 0; rank < first->info.world_size; rank++) drop_sends(&first->peers[rank], group);
    if (group != first) return;
    tutti_match_release(&first->matcher, free);
    for (int rank = 0; rank < first->info.world_size; rank++) free(first->peers[rank].arriving);
    free(first->peers);
    if (first->fd >= 0) close(first->fd);
}

static int my_send(void *state, tutti_request *request)
{
    struct group *group = state;
    struct pending *send = (struct pending *)request->priv;
    struct peer *peer = &group->first->peers[group->info.global_ranks[request->peer]];
    *send = (struct pending){.group = group, .peer = peer};
    TAILQ_INSERT_TAIL(&peer->sends, send, link);
    return TUTTI_REQUEST_PENDING;
}

static int my_recv(void *state, tutti_request *request)
{
    struct group *group = state;
    tutti_matcher *matcher = &group->first->matcher;
    struct pending *receive = (struct pending *)request->priv;
    int32_t source = request->peer == TUTTI_ANY_SOURCE ? TUTTI_ANY_SOURCE : group->info.global_ranks[request->peer];
    *receive = (struct pending){.match.key = tutti_match_receive_key(request, group->info.id, source), .group = group};
    tutti_match_message *message = tutti_match_find_message(matcher, &receive->match.key);
    if (message == NULL) {
        tutti_match_reserve(matcher, malloc, free);
        tutti_match_post(matcher, &receive->match);
        return TUTTI_REQUEST_PENDING;
    }
    tutti_match_take(matcher, message);
    int status = deliver(group, request, (struct message *)(void *)message);
    return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
}

/* Withdraws a request, unless a part of its message has been sent. */
static int my_cancel(void *state, tutti_request *request)
{
    struct pending *pending = (struct pending *)request->priv;
    struct group *group = state;
    if (pending->peer == NULL)
        tutti_match_withdraw(&group->first->matcher, &pending->match);
    else if (pending->done > 0)
        return group->host->error(TUTTI_ERR_ABORTED, "a part of the message has been sent; it cannot be cancelled");
    else
        TAILQ_REMOVE(&pending->peer->sends, pending, link);
    return TUTTI_OK;
}

static int my_progress(void *state)
{
    struct group *first = state;
    int moved = 0;
    while (receive_packet(first)) moved++;
    for (int rank = 0; rank < first->info.world_size; rank++)
        while (send_packet(first, &first->peers[rank])) moved++;
    return moved;
}

TUTTI_BACKEND_EXPORT extern const tutti_backend tutti_backend_v1;

const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,
    .name = "minimal",
    .version = "an example",
    .group_bytes = sizeof(struct group),
    .devices = 1u << TUTTI_CPU,
    .open = my_open,
    .close = my_close,
    .send = my_send,
    .recv = my_recv,
    .progress = my_progress,
    .cancel = my_cancel,
    .traits = TUTTI_BACKEND_OPENS_ALONE,
};
