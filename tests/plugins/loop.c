/* A backend for tests: ranks are threads of one process, messages go through one table in memory.
 *
 * The smallest honest plug-in: send, recv, progress.  Sends are copied at once, receives match in progress, those of
 * unknown size or tag as well.  What a
 * test wants to go wrong is asked for by environment variables when a group is opened:
 *   LOOP_FAIL_OPEN=R   rank R's open fails
 *   LOOP_HOSTS=0,1,1   the ranks are on these hosts; those beyond the list are on the last one
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <tutti/backend.h>
#include <unistd.h>

struct message {
    TAILQ_ENTRY(message) link;
    uint64_t world, group, tag, fingerprint;
    int to, from; /* ranks in the group */
    bool note;
    size_t bytes;
    char data[];
};

/* Lists by group and receiver, so that a rank does not scan the messages of others. */
enum { BOXES = 256 };
TAILQ_HEAD(box, message);
static struct box boxes[BOXES];

/* Counts sent messages, for tests. */
TUTTI_BACKEND_EXPORT extern atomic_long loop_messages;
atomic_long loop_messages;

/* Counts how often a sleeper has armed twice without progress in between. */
TUTTI_BACKEND_EXPORT extern atomic_long loop_armed_twice;
atomic_long loop_armed_twice;

/* Counts batches, and receives started after a send of the same batch. */
TUTTI_BACKEND_EXPORT extern atomic_long loop_batches, loop_late_receives;
atomic_long loop_batches, loop_late_receives;

static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;

struct loop {
    const tutti_host *host;
    tutti_group_info info;
    uint64_t world; /* identifies the group tree: a process may have several */
    struct loop *first;
    LIST_ENTRY(loop) family_link;
    LIST_HEAD(, loop) family; /* root group only */
    LIST_ENTRY(loop) world_link;
    int bell;            /* root group only: rung when a message for its rank arrives */
    atomic_uint arrived; /* root group only: messages for its rank so far */
    unsigned seen;       /* root group only: `arrived` at the last poll */
    bool asked;          /* root group only: a receive was started since */
    int armed;           /* root group only: calls of arm since the last progress */
    bool batch, sent;    /* between the two calls of coalesce; a send was started since */
    tutti_request *pending[4096];
    int n_pending;
};

static LIST_HEAD(, loop) worlds = LIST_HEAD_INITIALIZER(worlds);

/* Messages may have come for it already, whose senders found no bell to ring. */
static void enlist(struct loop *loop, uint64_t world)
{
    uint64_t one = 1;
    pthread_mutex_lock(&mailbox_lock);
    loop->world = world;
    LIST_INSERT_HEAD(&worlds, loop, world_link);
    atomic_fetch_add(&loop->arrived, 1);
    pthread_mutex_unlock(&mailbox_lock);
    ssize_t written = write(loop->bell, &one, sizeof one);
    (void)written;
}

static int loop_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct loop *loop = state;
    loop->host = host;
    loop->info = *info;
    loop->first = info->parent != NULL ? info->parent : loop;
    LIST_INIT(&loop->family);
    LIST_INSERT_HEAD(&loop->first->family, loop, family_link);
    loop->bell = -1;
    loop->first->asked = true;
    const char *fail = host->env("LOOP_FAIL_OPEN");
    if (fail != NULL && atoi(fail) == info->rank)
        return host->error(TUTTI_ERR_BACKEND, "loop was told to fail on rank %d", info->rank);
    if (info->parent != NULL) {
        loop->world = loop->first->world;
        return TUTTI_OK;
    }
    loop->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
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
    LIST_REMOVE(loop, family_link);
    if (loop->bell < 0) return;
    pthread_mutex_lock(&mailbox_lock);
    LIST_REMOVE(loop, world_link);
    pthread_mutex_unlock(&mailbox_lock);
    close(loop->bell);
}

static struct box *box_of(const struct loop *loop, int to)
{
    struct box *box = &boxes[(loop->world + loop->info.id * 31 + (uint64_t)to) % BOXES];
    if (box->tqh_last == NULL) TAILQ_INIT(box);
    return box;
}

static struct message *put(struct loop *loop, int to, const void *data, size_t bytes)
{
    struct message *message = malloc(sizeof *message + bytes);
    if (message == NULL) return NULL;
    *message = (struct message){
        .world = loop->world, .group = loop->info.id, .to = to, .from = loop->info.rank, .bytes = bytes};
    if (bytes > 0) memcpy(message->data, data, bytes);
    return message;
}

static void post(struct loop *loop, struct message *message)
{
    int global = loop->info.global_ranks[message->to];
    uint64_t one = 1;
    struct loop *other;
    pthread_mutex_lock(&mailbox_lock);
    TAILQ_INSERT_TAIL(box_of(loop, message->to), message, link);
    LIST_FOREACH(other, &worlds, world_link)
    {
        if (other->world != loop->world || other->info.rank != global) continue;
        atomic_fetch_add(&other->arrived, 1);
        ssize_t written = write(other->bell, &one, sizeof one);
        (void)written;
    }
    pthread_mutex_unlock(&mailbox_lock);
}

static int loop_arm(void *state, int *descriptors)
{
    struct loop *first = state;
    descriptors[0] = first->bell;
    if (++first->armed == 2) atomic_fetch_add(&loop_armed_twice, 1);
    return 1;
}

static int loop_send(void *state, tutti_request *request)
{
    struct loop *loop = state;
    struct message *message = put(loop, request->peer, request->data, request->bytes);
    if (message == NULL) return loop->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message");
    message->tag = request->tag;
    message->fingerprint = request->fingerprint;
    loop->sent = true;
    atomic_fetch_add(&loop_messages, 1);
    post(loop, message);
    return TUTTI_REQUEST_DONE;
}

/* Finds the first message that matches the request. */
static struct message *find(struct loop *loop, const tutti_request *request)
{
    struct message *message;
    struct box *box = box_of(loop, loop->info.rank);
    TAILQ_FOREACH(message, box, link)
    {
        if (message->world != loop->world || message->group != loop->info.id || message->to != loop->info.rank)
            continue;
        if (message->note || !tutti_request_takes_tag(request, message->tag)) continue;
        if (request->peer != TUTTI_ANY_SOURCE && request->peer != message->from) continue;
        return message;
    }
    return NULL;
}

/* A probe leaves the message in the table. */
static int deliver(struct loop *loop, tutti_request *request, struct message *message)
{
    int status = TUTTI_OK;
    bool takes = (request->flags & TUTTI_REQUEST_PEEK) == 0;
    request->source = message->from;
    if (!tutti_request_fits(request, message->bytes, message->fingerprint)) {
        request->found_bytes = message->bytes;
        request->found_fingerprint = message->fingerprint;
        status = loop->host->error(TUTTI_ERR_MISMATCH, "rank %d sent a message that does not match the receive",
                                   message->from);
    } else {
        tutti_request_settle(request, message->tag, message->bytes, message->fingerprint);
        if (takes && message->bytes > 0) memcpy(request->data, message->data, message->bytes);
    }
    if (!takes) return status;
    TAILQ_REMOVE(box_of(loop, loop->info.rank), message, link);
    free(message);
    return status;
}

static int loop_recv(void *state, tutti_request *request)
{
    struct loop *loop = state;
    if (loop->n_pending == 4096) return loop->host->error(TUTTI_ERR_NO_MEMORY, "too many receives");
    loop->pending[loop->n_pending++] = request;
    if (loop->batch && loop->sent) atomic_fetch_add(&loop_late_receives, 1);
    loop->first->asked = true;
    return TUTTI_REQUEST_PENDING;
}

static int progress_group(struct loop *loop)
{
    int moved = 0;
    pthread_mutex_lock(&mailbox_lock); /* for the whole pass: receives of one tag match in order */
    for (int i = 0; i < loop->n_pending; i++) {
        tutti_request *request = loop->pending[i];
        struct message *message = find(loop, request);
        if (message == NULL) continue;
        memmove(&loop->pending[i], &loop->pending[i + 1], (size_t)(--loop->n_pending - i) * sizeof *loop->pending);
        i--;
        moved++;
        int status = deliver(loop, request, message);
        loop->host->complete(request, status);
    }
    struct message *message, *next;
    struct box *box = box_of(loop, loop->info.rank);
    for (message = TAILQ_FIRST(box); message != NULL; message = next) {
        next = TAILQ_NEXT(message, link);
        if (!message->note || message->world != loop->world || message->group != loop->info.id ||
            message->to != loop->info.rank)
            continue;
        TAILQ_REMOVE(box, message, link);
        loop->host->notified(loop->info.core, message->from, message->data, message->bytes);
        free(message);
        moved++;
    }
    pthread_mutex_unlock(&mailbox_lock);
    return moved;
}

static int loop_progress(void *state)
{
    struct loop *first = state, *loop;
    int moved = 0;
    uint64_t rings;
    first->armed = 0;
    ssize_t got = read(first->bell, &rings, sizeof rings);
    (void)got;
    unsigned arrived = atomic_load(&first->arrived);
    if (arrived == first->seen && !first->asked)
        return 0; /* a polling rank must not keep the others from the mailbox */
    first->seen = arrived;
    first->asked = false;
    LIST_FOREACH(loop, &first->family, family_link) moved += progress_group(loop);
    return moved;
}

static int loop_cancel(void *state, tutti_request *request)
{
    struct loop *loop = state;
    for (int i = 0; i < loop->n_pending; i++) {
        if (loop->pending[i] != request) continue;
        memmove(&loop->pending[i], &loop->pending[i + 1], (size_t)(--loop->n_pending - i) * sizeof *loop->pending);
        return TUTTI_OK;
    }
    return TUTTI_ERR_NOT_FOUND;
}

static int loop_notify(void *state, int32_t peer, const void *data, size_t bytes)
{
    struct message *message = put(state, peer, data, bytes);
    if (message == NULL) return TUTTI_ERR_NO_MEMORY;
    message->note = true;
    post(state, message);
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
