/* The life of a protocol state, of its groups and of its operations. */
#include "tcp/p2p/proto.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1 /* uthash ends the process otherwise */
#include <uthash.h>

/* ---- operations -------------------------------------------------------------------------------------------- */

enum { SLOTS = 64 };

static bool more_slots(struct proto *proto)
{
    size_t n = proto->n_slots == 0 ? SLOTS : proto->n_slots * 2;
    struct proto_op **slot = realloc(proto->slot, n * sizeof *slot);
    if (slot == NULL) return false;
    proto->slot = slot;
    /* One block a growth; operations never move, and all blocks live as long as the family. */
    struct proto_op *block = calloc(n - proto->n_slots, sizeof *block);
    if (block == NULL) return false;
    for (size_t i = n; i-- > proto->n_slots;) {
        struct proto_op *op = &block[i - proto->n_slots];
        slot[i] = op;
        op->id = i + 1;
        op->next_free = proto->free_ops;
        proto->free_ops = op;
    }
    proto->n_slots = n;
    return true;
}

struct proto_op *proto_op_new(struct proto_group *group, tutti_request *request, int32_t peer, enum proto_state state)
{
    struct proto *proto = group->proto;
    if (proto->free_ops == NULL && !more_slots(proto)) {
        proto->host->error(TUTTI_ERR_NO_MEMORY, "no memory for another message");
        return NULL;
    }
    struct proto_op *op = proto->free_ops;
    proto->free_ops = op->next_free;
    uint32_t generation = op->generation + 1;
    uint64_t id = (uint64_t)generation << 32 | (op->id & UINT32_MAX);
    *op = (struct proto_op){
        .request = request, .group = group, .id = id, .generation = generation, .peer = peer, .state = (uint8_t)state};
    op->match.key = tutti_match_receive_key(request, group->id, peer);
    request->priv[0] = op;
    return op;
}

struct proto_op *proto_op_find(const struct proto *proto, uint64_t id)
{
    uint64_t at = (id & UINT32_MAX) - 1;
    if (at >= proto->n_slots) return NULL;
    struct proto_op *op = proto->slot[at];
    return op->request != NULL && op->id == id ? op : NULL;
}

static tutti_matcher *matcher_of(struct proto *proto, const struct proto_op *op)
{
    return op->state == PROTO_SEND_WAITING ? &proto->grants : &proto->messages;
}

void proto_post(struct proto *proto, struct proto_op *op)
{
    tutti_matcher *matcher = matcher_of(proto, op);
    tutti_match_reserve(matcher, malloc, free);
    tutti_match_post(matcher, &op->match);
}

void proto_withdraw(struct proto *proto, struct proto_op *op)
{
    tutti_match_withdraw(matcher_of(proto, op), &op->match);
}

void proto_op_free(struct proto *proto, struct proto_op *op)
{
    proto_withdraw(proto, op);
    fabric_conceal(&op->memory);
    free(op->stage);
    if (op->is_due) TAILQ_REMOVE(op->cancelled ? &proto->revoked : &proto->patient, op, due);
    op->request->priv[0] = NULL;
    op->is_due = false;
    op->request = NULL;
    bulk_forget(proto, op); /* may end the link, and with it all that still has a request */
    op->next_free = proto->free_ops;
    proto->free_ops = op;
}

void proto_finish(struct proto *proto, struct proto_op *op, int status)
{
    tutti_request *request = op->request;
    bool closing = op->group->closing;
    proto->moved++;
    proto_op_free(proto, op);
    if (!closing) proto->host->complete(request, status);
}

/* ---- groups ------------------------------------------------------------------------------------------------ */

int32_t proto_group_rank(const struct proto_group *group, int32_t global)
{
    for (int32_t rank = 0; rank < group->world_size; rank++)
        if (group->global_ranks[rank] == global) return rank;
    return -1;
}

/* One rank of a group reserves its collective segment, and tells the others if it cannot. */
static void log_refused_coll(struct shm *shm)
{
    if (shm == NULL || shm->coll_refused == 0) return;
    shm->config.host->log(2, "tcp: no %zu bytes of shared memory for a group's collectives (%s): they are messages",
                          shm->coll_span, strerror(shm->coll_refused));
    shm->coll_refused = 0;
}

int proto_add_group(struct proto *proto, struct proto_group *group)
{
    group->proto = proto;
    struct shm *shm = group->plans_only ? NULL : proto->shm; /* the collective segment reduces in an order of its own */
    int status = coll_open(&group->coll, shm, group->coll_index, group->rank, group->world_size, group->global_ranks);
    log_refused_coll(proto->shm);
    LIST_INSERT_HEAD(&proto->groups, group, link);
    return status;
}

int proto_reserve_coll(struct proto *proto, const tutti_group_info *info)
{
    int index = COLL_ABSENT;
    if (proto->shm != NULL && !TUTTI_HAS(info, plans_only))
        index = coll_reserve(proto->shm, info->world_size, info->global_ranks);
    log_refused_coll(proto->shm);
    return index;
}

struct proto_past {
    uint64_t group;
    UT_hash_handle hh;
};

static void remember(struct proto *proto, uint64_t group)
{
    struct proto_past *past = malloc(sizeof *past);
    if (past == NULL) return; /* then what comes late is kept to the end */
    past->group = group;
    HASH_ADD(hh, proto->past, group, sizeof past->group, past);
    if (past->hh.tbl == NULL) free(past);
}

bool proto_is_past(const struct proto *proto, uint64_t group)
{
    const struct proto_past *past;
    HASH_FIND(hh, proto->past, &group, sizeof group, past);
    return past != NULL;
}

static void free_past(struct proto *proto)
{
    struct proto_past *past, *next;
    HASH_ITER(hh, proto->past, past, next)
    {
        HASH_DEL(proto->past, past);
        free(past);
    }
}

/* An offered message's memory goes back; what an eager one has cost counts no longer.  Others may be taken back, which
 * is answered then. */
void proto_disown(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    struct wire_header fin = {.kind = WIRE_FIN, .ref = header->id, .flags = WIRE_TAKEN_BACK};
    if (header->kind == WIRE_OFFER) proto_say(proto, peer, &fin, NULL, 0);
    if (header->kind == WIRE_RTS) proto_refuse(proto, peer, WIRE_NACK_SEND, header->id, NULL, true);
    if (header->kind == WIRE_EAGER_DATA) proto_consumed(proto, peer, header->bytes);
}

static struct proto_arrival *first_of_group(const tutti_matcher *matcher, uint64_t group)
{
    tutti_match_message *message = tutti_match_next_message(matcher, NULL);
    while (message != NULL && message->key.group != group) message = tutti_match_next_message(matcher, message);
    return (struct proto_arrival *)(void *)message; /* the first member */
}

/* Starts from the first one each time: what is said to a peer may end its link, and others go with it. */
static void forget_arrivals(struct proto *proto, tutti_matcher *matcher, uint64_t group)
{
    struct proto_arrival *arrival;
    while ((arrival = first_of_group(matcher, group)) != NULL) {
        tutti_match_take(matcher, &arrival->match);
        proto_disown(proto, &arrival->header);
        free(arrival);
    }
}

/* A peer may be using its memory. */
static bool is_exposed(const struct proto_op *op)
{
    return op->state == PROTO_RECV_OPEN || op->state == PROTO_SEND_WRITING || op->offered;
}

static bool is_open(const struct proto *proto, const struct proto_group *group)
{
    for (size_t i = 0; i < proto->n_slots; i++) {
        const struct proto_op *op = proto->slot[i];
        if (op->request == NULL || op->group != group) continue;
        if (is_exposed(op)) return true;
    }
    return false;
}

/* Memory of the group that a peer may be writing to is taken back politely for a while, then by ending the link. */
static void reclaim(struct proto *proto, struct proto_group *group)
{
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request != NULL && op->group == group && !op->cancelled) proto_cancel(group, op->request);
    }
    int64_t end = proto->host->now_ns() + 2 * (int64_t)PROTO_REVOKE_MS * 1000000;
    while (is_open(proto, group) && proto->host->now_ns() < end) proto_progress(proto);
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request == NULL || op->group != group) continue;
        if (is_exposed(op)) link_drop(proto, op->peer, "it did not give memory back", true);
    }
}

void proto_remove_group(struct proto_group *group)
{
    struct proto *proto = group->proto;
    if (proto == NULL) return;
    LIST_REMOVE(group, link);
    coll_close(&group->coll);
    group->closing = true;
    if (proto->closing) return; /* the family's end: what is pending is dropped once the links are gone */
    reclaim(proto, group);
    for (size_t i = 0; i < proto->n_slots; i++)
        if (proto->slot[i]->request != NULL && proto->slot[i]->group == group) proto_op_free(proto, proto->slot[i]);
    remember(proto, group->id);
    forget_arrivals(proto, &proto->messages, group->id);
    forget_arrivals(proto, &proto->grants, group->id);
    group->proto = NULL;
}

void proto_expects(struct proto *proto, int32_t peer)
{
    if (proto->peer[peer].owes_ns == 0) proto->peer[peer].owes_ns = proto->host->now_ns();
}

static int say_note(struct proto_group *group, int32_t peer, const void *message, size_t bytes)
{
    struct wire_header header = {.kind = WIRE_NOTE_DATA, .group = group->id, .bytes = bytes};
    return proto_say(group->proto, peer, &header, message, bytes);
}

int proto_tell(struct proto_group *group, int32_t peer, const void *message, size_t bytes)
{
    int32_t global = group->global_ranks[peer];
    int status = link_connect(group->proto, global);
    return status == TUTTI_OK ? say_note(group, global, message, bytes) : status;
}

int proto_notify(struct proto_group *group, int32_t peer, const void *message, size_t bytes)
{
    struct proto *proto = group->proto;
    int32_t global = group->global_ranks[peer];
    if (bytes > WIRE_NOTE)
        return proto->host->error(TUTTI_ERR_INVALID_ARGUMENT, "a note of %zu bytes; at most %d", bytes, WIRE_NOTE);
    if (!link_is_up(proto, global)) return TUTTI_OK;
    proto_expects(proto, global);
    return say_note(group, global, message, bytes);
}

/* ---- family ------------------------------------------------------------------------------------------------ */

static int open_local(struct proto *proto, const struct fabric_config *config)
{
    struct shm_config local = {.rank = config->rank,
                               .world_size = config->world_size,
                               .local_world_size = config->local_world_size,
                               .family = config->family,
                               .timeout_ms = config->timeout_ms,
                               .open_timeout_ms = config->open_timeout_ms,
                               .host = config->host,
                               .store = config->store,
                               .events = &proto_local_events,
                               .user = proto,
                               .group_bytes = coll_bytes,
                               .reserve_group = coll_directory_reserve};
    return shm_open_host(&local, &proto->shm);
}

/* Then libfabric is not even loaded. */
static bool all_local(const struct proto *proto)
{
    for (int32_t rank = 0; rank < proto->world_size; rank++)
        if (!link_is_local(proto, rank)) return false;
    return true;
}

int proto_open(struct proto *proto, const struct fabric_config *config, void *core)
{
    const tutti_host *host = config->host;
    *proto = (struct proto){.host = host, .rank = config->rank, .world_size = config->world_size, .core = core};
    TAILQ_INIT(&proto->patient);
    TAILQ_INIT(&proto->revoked);
    TAILQ_INIT(&proto->pulls);
    TAILQ_INIT(&proto->pushes);
    TAILQ_INIT(&proto->streams);
    LIST_INIT(&proto->groups);
    proto->peer = calloc((size_t)config->world_size, sizeof *proto->peer);
    proto->block = malloc(PROTO_REDUCE_MOST);
    if (proto->peer == NULL || proto->block == NULL || !tutti_match_reserve(&proto->messages, malloc, free) ||
        !tutti_match_reserve(&proto->grants, malloc, free))
        return host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group of %d ranks", config->world_size);
    int status = open_local(proto, config);
    if (status != TUTTI_OK || all_local(proto)) return status;
    struct fabric_config mine = *config;
    mine.events = &proto_events;
    mine.user = proto;
    return fabric_open(&mine, &proto->fabric);
}

/* Everything to and from this peer has come to its end. */
static bool has_parted(struct proto *proto, int32_t peer)
{
    if (!link_is_up(proto, peer)) return link_is_flushed(proto, peer);
    if (!proto->peer[peer].told) {
        struct wire_header header = {.kind = WIRE_BYE};
        proto_say(proto, peer, &header, NULL, 0);
        proto->peer[peer].told = true;
    }
    /* What lies in a ring is read after the writer's end, too. */
    return (proto->peer[peer].left || link_is_local(proto, peer)) && link_is_flushed(proto, peer);
}

/* Says goodbye, gives what was sent some time to leave, and the others to say goodbye too: what a peer sends to a
 * closed socket resets the connection, and that would take with it what the peer has not read yet. */
static void say_goodbye(struct proto *proto, int64_t limit_ms)
{
    enum { NAP_US = 50, NAPS_MOST = 10 };
    int64_t end = proto->host->now_ns() + limit_ms * 1000000;
    int naps = 1;
    for (int32_t peer = 0; peer < proto->world_size;) {
        if (peer == proto->rank || has_parted(proto, peer)) {
            peer++;
            continue;
        }
        if (proto->host->now_ns() > end) break;
        if (proto_progress(proto) == 0) {
            usleep((useconds_t)(naps * NAP_US));
            if (naps < NAPS_MOST) naps++;
        } else {
            naps = 1;
        }
    }
}

/* True if the peer may lack data that its sender was told are sent.  Only the peer's goodbye proves that it has the
 * writes; its credit proves that it has the eager messages. */
static bool may_lack_data(const struct proto *proto, int32_t peer)
{
    const struct proto_peer *state = &proto->peer[peer];
    return state->written || state->sent != state->sent_gone;
}

int32_t proto_drain(struct proto *proto)
{
    int32_t found = -1;
    if (proto->fabric == NULL && proto->shm == NULL) return -1;
    proto->closing = true;
    for (int32_t peer = 0; peer < proto->world_size; peer++) {
        if (peer == proto->rank) continue;
        bool parted = has_parted(proto, peer); /* says goodbye */
        if (found < 0 && !parted && may_lack_data(proto, peer)) found = peer;
    }
    return found;
}

void proto_leave(struct proto *proto)
{
    if (proto->fabric == NULL && proto->shm == NULL) return;
    proto->closing = true;
    say_goodbye(proto, 300);
}

static void free_matcher(tutti_matcher *matcher)
{
    tutti_match_message *message;
    while ((message = tutti_match_next_message(matcher, NULL)) != NULL) {
        tutti_match_take(matcher, message);
        free(message); /* the first member of its arrival */
    }
    free(matcher->links);
}

void proto_close(struct proto *proto)
{
    proto->closing = true;
    if (proto->fabric != NULL || proto->shm != NULL) {
        say_goodbye(proto, 900);
        for (int32_t peer = 0; peer < proto->world_size; peer++) link_drop(proto, peer, "closed", false);
    }
    for (size_t i = 0; i < proto->n_slots; i++)
        if (proto->slot[i]->request != NULL) proto_op_free(proto, proto->slot[i]);
    fabric_close(proto->fabric);
    shm_close(proto->shm);
    free_past(proto);
    free_matcher(&proto->messages);
    free_matcher(&proto->grants);
    /* The first slot of each block is the block: slots 0, SLOTS, 2 * SLOTS, 4 * SLOTS .. */
    for (size_t i = 0; i < proto->n_slots; i = i == 0 ? SLOTS : i * 2) free(proto->slot[i]);
    free(proto->slot);
    free(proto->peer);
    free(proto->block);
    *proto = (struct proto){0};
}

static bool is_overdue(const struct proto *proto, const struct proto_op *op, int64_t now)
{
    int64_t owes_ns = proto->peer[op->peer].owes_ns, ms = (now - op->since_ns) / 1000000;
    if (ms < PROTO_REVOKE_MS) return false;
    return ms >= PROTO_PATIENT_MS || (owes_ns != 0 && (now - owes_ns) / 1000000 >= PROTO_SILENT_MS);
}

/* Nobody asked for these yet: perhaps the receive is another one, which the RTS brings to light. */
static void tell_of_sends(struct proto *proto)
{
    struct proto_op *op;
    int64_t now = proto->host->now_ns();
    while ((op = TAILQ_FIRST(&proto->patient)) != NULL && now - op->since_ns > (int64_t)PROTO_PATIENCE_MS * 1000000) {
        TAILQ_REMOVE(&proto->patient, op, due);
        op->is_due = false;
        proto_ask(proto, op);
    }
    while ((op = TAILQ_FIRST(&proto->revoked)) != NULL && is_overdue(proto, op, now)) {
        link_drop(proto, op->peer, "it did not give memory back that an operation had opened to it", true);
        if (TAILQ_FIRST(&proto->revoked) == op) /* the link was lost before, or is being closed: nothing ended it */
            proto_finish(proto, op, proto_lost(proto, op->peer));
    }
}

int proto_progress(struct proto *proto)
{
    proto->moved = 0;
    int moved = link_progress(proto);
    if (!TAILQ_EMPTY(&proto->patient) || !TAILQ_EMPTY(&proto->revoked)) tell_of_sends(proto);
    return moved + proto->moved;
}
