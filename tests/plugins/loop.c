/* A backend for tests: ranks are threads of one process, and messages go through one table in memory.
 *
 * A send copies its message into the receiver's mailbox.  The receiver's progress empties the mailbox and matches its
 * messages (tutti/match.h).  Environment variables, which are read when a group is opened, cause faults:
 *   LOOP_FAIL_OPEN=R   rank R's open fails
 *   LOOP_HOSTS=0,1,1   hosts of the ranks; further ranks are on the last one
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <tutti/match.h>
#include <unistd.h>

struct message {
    tutti_match_message match; /* first, for tutti_match_release; sources are global ranks */
    TAILQ_ENTRY(message) link;
    uint64_t world, fingerprint;
    int to; /* global rank */
    bool is_control;
    size_t bytes;
    char data[];
};

TAILQ_HEAD(messages, message);

/* Mailboxes by group tree and receiver, so that a rank neither scans the messages of others nor waits for their lock.
 */
enum { BOXES = 1024 };
static struct box {
    pthread_mutex_t lock;
    struct messages messages;
    LIST_HEAD(, loop) receivers; /* root groups */
} boxes[BOXES] = {[0 ... BOXES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* Counts sent messages, for tests. */
TUTTI_BACKEND_EXPORT extern atomic_long loop_messages;
atomic_long loop_messages;

/* Counts how often a sleeper has armed twice without progress in between. */
TUTTI_BACKEND_EXPORT extern atomic_long loop_armed_twice;
atomic_long loop_armed_twice;

/* Counts batches, and receives that were started after a send of the same batch. */
TUTTI_BACKEND_EXPORT extern atomic_long loop_batches, loop_late_receives;
atomic_long loop_batches, loop_late_receives;

struct loop {
    const tutti_host *host;
    tutti_group_info info;
    uint64_t world; /* id of the group tree; a process may have several trees */
    struct loop *first;
    LIST_ENTRY(loop) tree_link;
    LIST_HEAD(, loop) tree; /* root group only */
    LIST_ENTRY(loop) box_link;
    int doorbell;          /* root group only: rung when a message for its rank arrives */
    tutti_matcher matcher; /* root group only */
    atomic_uint arrived;   /* root group only: messages for its rank so far */
    unsigned seen;         /* root group only: `arrived` at the last poll */
    bool has_opened; /* root group only: a group was opened since the last poll, and control messages may wait for it */
    int armed;       /* root group only: calls of arm since the last progress */
    bool batch, sent; /* within a batch; a send was started in it */
};

/* A posted receive or probe, in the words that a request has for its backend. */
struct posted {
    tutti_match_receive match; /* first: see tutti_match_request */
    struct loop *loop;
};
_Static_assert(sizeof(struct posted) <= sizeof((tutti_request){0}.priv), "a request's words hold a struct posted");

static struct box *lock_box(uint64_t world, int to)
{
    struct box *box = &boxes[(world + (uint64_t)to) % BOXES];
    pthread_mutex_lock(&box->lock);
    if (box->messages.tqh_last == NULL) TAILQ_INIT(&box->messages);
    return box;
}

static void ring(const struct loop *loop)
{
    uint64_t one = 1;
    ssize_t written = write(loop->doorbell, &one, sizeof one);
    (void)written;
}

/* Registers the rank with its mailbox.  Messages may have arrived already, whose senders found no doorbell to ring. */
static void enlist(struct loop *loop, uint64_t world)
{
    loop->world = world;
    struct box *box = lock_box(world, loop->info.rank);
    LIST_INSERT_HEAD(&box->receivers, loop, box_link);
    atomic_fetch_add(&loop->arrived, 1);
    pthread_mutex_unlock(&box->lock);
    ring(loop);
}

static int loop_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct loop *loop = state;
    loop->host = host;
    loop->info = *info;
    loop->first = info->parent != NULL ? info->parent : loop;
    LIST_INIT(&loop->tree);
    LIST_INSERT_HEAD(&loop->first->tree, loop, tree_link);
    loop->doorbell = -1;
    loop->first->has_opened = true;
    const char *fail = host->env("LOOP_FAIL_OPEN");
    if (fail != NULL && atoi(fail) == info->rank)
        return host->error(TUTTI_ERR_BACKEND, "open fails on rank %d, as LOOP_FAIL_OPEN says", info->rank);
    if (info->parent != NULL) {
        loop->world = loop->first->world;
        return TUTTI_OK;
    }
    if (!tutti_match_reserve(&loop->matcher, malloc, free))
        return host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    loop->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* rank 0 draws the tree's number */
    uint64_t world = 0;
    size_t bytes = 0;
    int status = TUTTI_OK;
    if (info->rank == 0) {
        host->random(&world, sizeof world);
        status = host->store_set(info->store, "loop", &world, sizeof world);
    }
    if (status == TUTTI_OK) status = host->store_get(info->store, "loop", &world, sizeof world, &bytes, 10000);
    enlist(loop, world);
    return status;
}

static void loop_close(void *state)
{
    struct loop *loop = state;
    if (loop->host == NULL) return;
    LIST_REMOVE(loop, tree_link);
    tutti_match_withdraw_group(&loop->first->matcher, loop->info.id);
    tutti_match_release(&loop->matcher, free); /* NULL in a subgroup */
    if (loop->doorbell < 0) return;
    struct box *box = lock_box(loop->world, loop->info.rank);
    LIST_REMOVE(loop, box_link);
    pthread_mutex_unlock(&box->lock);
    close(loop->doorbell);
}

/* Returns a message to a rank of the group, or NULL. */
static struct message *make_message(struct loop *loop, int to, uint64_t tag, const void *data, size_t bytes)
{
    struct message *message = malloc(sizeof *message + bytes);
    if (message == NULL) return NULL;
    *message = (struct message){.world = loop->world, .to = loop->info.global_ranks[to], .bytes = bytes};
    message->match.key = tutti_match_message_key(loop->info.id, loop->first->info.rank, tag);
    if (bytes > 0) memcpy(message->data, data, bytes);
    return message;
}

static void post(struct message *message)
{
    uint64_t world = message->world;
    int to = message->to;
    struct loop *other;
    struct box *box = lock_box(world, to);
    TAILQ_INSERT_TAIL(&box->messages, message, link);
    LIST_FOREACH(other, &box->receivers, box_link)
    {
        if (other->world != world || other->info.rank != to) continue;
        atomic_fetch_add(&other->arrived, 1);
        ring(other);
    }
    pthread_mutex_unlock(&box->lock);
}

static int loop_arm(void *state, int *descriptors)
{
    struct loop *first = state;
    descriptors[0] = first->doorbell;
    if (++first->armed == 2) atomic_fetch_add(&loop_armed_twice, 1);
    return 1;
}

static int loop_send(void *state, tutti_request *request)
{
    struct loop *loop = state;
    struct message *message = make_message(loop, request->peer, request->tag, request->data, request->bytes);
    if (message == NULL) return loop->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message");
    message->fingerprint = request->fingerprint;
    loop->sent = true;
    atomic_fetch_add(&loop_messages, 1);
    post(message);
    return TUTTI_REQUEST_DONE;
}

/* Ends a receive with its message, or a probe without taking the message. */
static int deliver(const struct loop *loop, tutti_request *request, const struct message *message)
{
    request->source = tutti_match_rank(loop->info.global_ranks, loop->info.world_size, message->match.key.source);
    if (!tutti_request_fits(request, message->bytes, message->fingerprint)) {
        request->found_bytes = message->bytes;
        request->found_fingerprint = message->fingerprint;
        return loop->host->error(TUTTI_ERR_MISMATCH, "rank %d sent a message that does not match the receive",
                                 request->source);
    }
    tutti_request_settle(request, message->match.key.tag, message->bytes, message->fingerprint);
    bool takes = (request->flags & TUTTI_REQUEST_PEEK) == 0;
    if (takes && message->bytes > 0) memcpy(request->data, message->data, message->bytes);
    return TUTTI_OK;
}

static int loop_recv(void *state, tutti_request *request)
{
    struct loop *loop = state;
    tutti_matcher *matcher = &loop->first->matcher;
    struct posted *posted = (struct posted *)request->priv;
    int32_t source = request->peer == TUTTI_ANY_SOURCE ? TUTTI_ANY_SOURCE : loop->info.global_ranks[request->peer];
    if (loop->batch && loop->sent) atomic_fetch_add(&loop_late_receives, 1);
    *posted = (struct posted){.match.key = tutti_match_receive_key(request, loop->info.id, source), .loop = loop};
    tutti_match_message *match = tutti_match_find_message(matcher, &posted->match.key);
    if (match == NULL) {
        tutti_match_reserve(matcher, malloc, free);
        tutti_match_post(matcher, &posted->match);
        return TUTTI_REQUEST_PENDING;
    }
    struct message *message = (struct message *)(void *)match;
    int status = deliver(loop, request, message);
    if ((request->flags & TUTTI_REQUEST_PEEK) == 0) {
        tutti_match_take(matcher, match);
        free(message);
    }
    return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
}

static void complete(struct loop *first, tutti_match_receive *receive, const struct message *message)
{
    tutti_request *request = tutti_match_request(receive);
    tutti_match_withdraw(&first->matcher, receive);
    first->host->complete(request, deliver(((struct posted *)(void *)receive)->loop, request, message));
}

/* Passes a message to its receive, or keeps it, and completes the probes that wait for it. */
static void match_message(struct loop *first, struct message *message)
{
    tutti_match_receive *receive = tutti_match_find_receive(&first->matcher, &message->match.key);
    if (receive != NULL) {
        complete(first, receive, message);
        free(message);
        return;
    }
    tutti_match_reserve(&first->matcher, malloc, free);
    tutti_match_keep(&first->matcher, &message->match);
    while ((receive = tutti_match_find_probe(&first->matcher, &message->match.key)) != NULL)
        complete(first, receive, message);
}

static struct loop *find_group(struct loop *first, uint64_t id)
{
    struct loop *loop;
    LIST_FOREACH(loop, &first->tree, tree_link)
    {
        if (loop->info.id == id) break;
    }
    return loop;
}

static void handle(struct loop *first, struct message *message)
{
    if (!message->is_control) {
        match_message(first, message);
        return;
    }
    struct loop *loop = find_group(first, message->match.key.group);
    first->host->notified(loop->info.core,
                          tutti_match_rank(loop->info.global_ranks, loop->info.world_size, message->match.key.source),
                          message->data, message->bytes);
    free(message);
}

/* Moves this rank's messages out of its mailbox.  A control message for a group that is not open yet stays there. */
static void empty_mailbox(struct loop *first, struct messages *messages)
{
    struct box *box = lock_box(first->world, first->info.rank);
    for (struct message *message = TAILQ_FIRST(&box->messages), *next; message != NULL; message = next) {
        next = TAILQ_NEXT(message, link);
        if (message->world != first->world || message->to != first->info.rank) continue;
        if (message->is_control && find_group(first, message->match.key.group) == NULL) continue;
        TAILQ_REMOVE(&box->messages, message, link);
        TAILQ_INSERT_TAIL(messages, message, link);
    }
    pthread_mutex_unlock(&box->lock);
}

static int loop_progress(void *state)
{
    struct loop *first = state;
    struct messages messages = TAILQ_HEAD_INITIALIZER(messages);
    struct message *message;
    int moved = 0;
    uint64_t rings;
    first->armed = 0;
    ssize_t got = read(first->doorbell, &rings, sizeof rings);
    (void)got;
    unsigned arrived = atomic_load(&first->arrived);
    if (arrived == first->seen && !first->has_opened)
        return 0; /* a polling rank must not keep the others from the mailbox */
    first->seen = arrived;
    first->has_opened = false;
    empty_mailbox(first, &messages);
    for (; (message = TAILQ_FIRST(&messages)) != NULL; moved++) {
        TAILQ_REMOVE(&messages, message, link);
        handle(first, message);
    }
    return moved;
}

static int loop_cancel(void *state, tutti_request *request)
{
    struct loop *loop = state;
    struct posted *posted = (struct posted *)request->priv;
    if (!tutti_match_is_posted(&posted->match)) return TUTTI_ERR_NOT_FOUND;
    tutti_match_withdraw(&loop->first->matcher, &posted->match);
    return TUTTI_OK;
}

static int loop_notify(void *state, int32_t peer, const void *data, size_t bytes)
{
    struct message *message = make_message(state, peer, 0, data, bytes);
    if (message == NULL) return TUTTI_ERR_NO_MEMORY;
    message->is_control = true;
    post(message);
    return TUTTI_OK;
}

static int loop_coalesce(void *state, bool begin)
{
    struct loop *loop = state;
    loop->batch = begin;
    loop->sent = false;
    if (begin) atomic_fetch_add(&loop_batches, 1);
    return TUTTI_OK;
}

static int loop_hosts(void *state, int32_t *host)
{
    const struct loop *loop = state;
    const char *text = loop->host->env("LOOP_HOSTS");
    for (int i = 0; i < loop->info.world_size; i++) {
        host[i] = text != NULL ? (int32_t)atoi(text) : 0;
        const char *comma = text != NULL ? strchr(text, ',') : NULL;
        if (comma != NULL) text = comma + 1;
    }
    return TUTTI_OK;
}

static int loop_describe(const tutti_host *host, void *state, char *text, size_t capacity)
{
    const struct loop *loop = state;
    (void)host;
    if (loop == NULL)
        snprintf(text, capacity, "a table in memory\n");
    else
        snprintf(text, capacity, "loop: rank %d of %d, a thread\n", loop->info.rank, loop->info.world_size);
    return TUTTI_OK;
}

/* Entries that plain.c leaves out. */
#ifdef LOOP_PLAIN
#define LOOP_NAME "plain"
#define LOOP_IS_PLAIN 1
#define LOOP_MORE(entry) (1 ? NULL : (entry))
#else
#define LOOP_NAME "loop"
#define LOOP_IS_PLAIN 0
#define LOOP_MORE(entry) (entry)
#endif

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,
    .name = LOOP_NAME,
    .version = "for tests",
    .group_bytes = sizeof(struct loop),
    .devices = 1u << TUTTI_CPU,
    .open = loop_open,
    .close = loop_close,
    .send = loop_send,
    .recv = loop_recv,
    .progress = loop_progress,
    .segment_bytes = 4096,
    .arm = LOOP_MORE(loop_arm),
    .cancel = LOOP_MORE(loop_cancel),
    .notify = LOOP_MORE(loop_notify),
    .coalesce = LOOP_MORE(loop_coalesce),
    .hosts = LOOP_MORE(loop_hosts),
    .describe = LOOP_MORE(loop_describe),
    .traits = TUTTI_BACKEND_OPENS_ALONE | (LOOP_IS_PLAIN ? 0 : TUTTI_BACKEND_UNSIZED),
    .tell = LOOP_MORE(loop_notify),
};
