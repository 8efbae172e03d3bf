/* Runs the plans of all ranks on a model of a network, event by event. */
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

enum event_kind {
    EVENT_TURN,   /* a rank's processor is free */
    EVENT_DONE,   /* a send has completed */
    EVENT_INJECT, /* a message enters the sender's rail */
    EVENT_HEAD,   /* its first byte arrives at the receiver's rail */
    EVENT_ARRIVE  /* the receiver's processor may take it */
};

struct event {
    double time;
    uint64_t number; /* order of events at one time */
    enum event_kind kind;
    int rank;      /* of the step */
    uint32_t step; /* the send for DONE and INJECT, the receive for HEAD and ARRIVE */
    double end;    /* HEAD: arrival of the last byte if the receiver's rail is free */
};

struct queue {
    uint32_t *step;
    uint32_t head, tail;
};

/* A receive, and what is known of its message. */
struct receive {
    double posted; /* time, or -1 */
    double sent;   /* time at which the sender waits for the receive, or -1 */
    uint32_t send; /* the step of the sender */
    bool arrived;  /* before it was posted */
};

struct rank {
    const struct plan *plan;
    uint32_t *waits;
    struct queue messages, arrivals, locals;
    struct receive *receive; /* one per step */
    uint32_t *first, *found; /* receives by peer: found[first[peer] + slot] is the step */
    double free;             /* time at which the processor is free */
    bool has_turn;           /* an EVENT_TURN is pending */
    bool was_local;          /* the processor's last step was a local one */
    int host, rail;
    uint32_t left;
};

struct engine {
    const struct sim_network *network;
    struct rank *rank;
    int size;
    int64_t element;
    struct event *heap;
    size_t n, room;
    uint64_t numbers;
    double *sends, *receives; /* time at which a rail is free: host * rails + rail */
    double *memory;           /* of a host */
    double end;
};

/* ---- events -------------------------------------------------------------------------------------------------------
 */

static bool is_before(const struct event *a, const struct event *b)
{
    return a->time < b->time || (a->time == b->time && a->number < b->number);
}

static void push(struct engine *engine, struct event event)
{
    if (engine->n == engine->room) {
        engine->room = 2 * engine->room + 1024;
        engine->heap = realloc(engine->heap, engine->room * sizeof *engine->heap);
    }
    event.number = engine->numbers++;
    size_t i = engine->n++;
    for (; i > 0 && is_before(&event, &engine->heap[(i - 1) / 4]); i = (i - 1) / 4)
        engine->heap[i] = engine->heap[(i - 1) / 4];
    engine->heap[i] = event;
}

static struct event pop(struct engine *engine)
{
    struct event first = engine->heap[0], last = engine->heap[--engine->n];
    size_t i = 0;
    for (size_t child = 1; child < engine->n; child = 4 * i + 1) {
        size_t least = child;
        for (size_t k = child + 1; k < child + 4 && k < engine->n; k++)
            if (is_before(&engine->heap[k], &engine->heap[least])) least = k;
        if (!is_before(&engine->heap[least], &last)) break;
        engine->heap[i] = engine->heap[least];
        i = least;
    }
    engine->heap[i] = last;
    return first;
}

/* ---- steps --------------------------------------------------------------------------------------------------------
 */

static void request_turn(struct engine *engine, int rank, double time)
{
    struct rank *self = &engine->rank[rank];
    if (self->has_turn) return;
    self->has_turn = true;
    push(engine, (struct event){.time = time > self->free ? time : self->free, .kind = EVENT_TURN, .rank = rank});
}

static void enqueue(struct rank *self, uint32_t id)
{
    struct queue *queue = self->plan->steps[id].kind <= PLAN_RECV_REDUCE ? &self->messages : &self->locals;
    queue->step[queue->tail++] = id;
}

static void complete_step(struct engine *engine, int rank, uint32_t id, double time)
{
    struct rank *self = &engine->rank[rank];
    const struct plan_step *step = &self->plan->steps[id];
    for (uint32_t i = 0; i < step->nexts; i++) {
        uint32_t next = self->plan->next[step->first_next + i];
        if (--self->waits[next] > 0) continue;
        enqueue(self, next);
        request_turn(engine, rank, time);
    }
    if (time > engine->end) engine->end = time;
    self->left--;
}

static double bytes_of(const struct engine *engine, const struct plan_step *step)
{
    return (double)(step->numel * engine->element);
}

static double time_of(double bytes, double rate)
{
    return rate > 0 ? bytes * 1000 / rate : 0;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static bool is_local(const struct engine *engine, int rank, const struct plan_step *step)
{
    return engine->rank[rank].host == engine->rank[step->peer].host;
}

/* Starts the transfer of a message whose sender is ready at `sent` and whose receive has been posted, or is eager. */
static void start_transfer(struct engine *engine, int to, uint32_t id, double sent, double posted)
{
    const struct sim_network *network = engine->network;
    const struct plan_step *step = &engine->rank[to].plan->steps[id];
    bool local = is_local(engine, to, step), is_eager = bytes_of(engine, step) <= (double)network->eager_bytes;
    if (local)
        push(engine,
             (struct event){
                 .time = later(sent + network->local_latency, posted), .kind = EVENT_ARRIVE, .rank = to, .step = id});
    else
        push(engine, (struct event){.time = is_eager ? sent : later(sent, posted + network->latency),
                                    .kind = EVENT_INJECT,
                                    .rank = to,
                                    .step = id});
}

static void run_send(struct engine *engine, int rank, uint32_t id, double now)
{
    const struct sim_network *network = engine->network;
    struct rank *self = &engine->rank[rank];
    const struct plan_step *step = &self->plan->steps[id];
    struct rank *peer = &engine->rank[step->peer];
    uint32_t to = peer->found[peer->first[rank] + step->slot];
    struct receive *receive = &peer->receive[to];
    double bytes = bytes_of(engine, step);
    bool local = is_local(engine, rank, step), is_eager = bytes <= (double)network->eager_bytes;
    double sent = now + (local ? network->local_overhead : network->overhead);
    self->free = local ? sent : sent + time_of(bytes, network->rank);
    receive->send = id;
    if (is_eager) push(engine, (struct event){.time = self->free, .kind = EVENT_DONE, .rank = rank, .step = id});
    if (is_eager || receive->posted >= 0)
        start_transfer(engine, step->peer, to, sent, receive->posted);
    else
        receive->sent = sent;
}

static void run_post(struct engine *engine, int rank, uint32_t id, double now)
{
    struct rank *self = &engine->rank[rank];
    struct receive *receive = &self->receive[id];
    receive->posted = now;
    if (receive->arrived)
        self->arrivals.step[self->arrivals.tail++] = id;
    else if (receive->sent >= 0)
        start_transfer(engine, rank, id, receive->sent, now);
}

/* Takes a message from the network, or copies it from another rank of the host. */
static void run_arrival(struct engine *engine, int rank, uint32_t id, double now)
{
    const struct sim_network *network = engine->network;
    struct rank *self = &engine->rank[rank];
    const struct plan_step *step = &self->plan->steps[id];
    double bytes = bytes_of(engine, step), end;
    if (is_local(engine, rank, step)) {
        double *memory = &engine->memory[self->host];
        *memory = later(*memory, now) + time_of(bytes, network->memory);
        end = later(now + network->local_overhead + time_of(bytes, network->local_rank), *memory);
    } else {
        end = now + network->overhead + time_of(bytes, network->rank);
    }
    if (step->kind == PLAN_RECV_REDUCE) end += time_of(bytes, network->reduce);
    self->free = end;
    complete_step(engine, rank, id, end);
    if (bytes > (double)network->eager_bytes && is_local(engine, rank, step))
        push(engine, (struct event){.time = end + network->local_latency,
                                    .kind = EVENT_DONE,
                                    .rank = step->peer,
                                    .step = self->receive[id].send});
}

static void run_local(struct engine *engine, int rank, uint32_t id, double now)
{
    struct rank *self = &engine->rank[rank];
    const struct plan_step *step = &self->plan->steps[id];
    double rate = step->kind == PLAN_REDUCE ? engine->network->reduce : engine->network->copy;
    self->free = now + time_of(bytes_of(engine, step), rate);
    complete_step(engine, rank, id, self->free);
}

/* ---- handlers -----------------------------------------------------------------------------------------------------
 */

static bool is_empty(const struct queue *queue)
{
    return queue->head == queue->tail;
}

/* Does what the executor would do next: start messages, then local steps, with a poll for messages after each. */
static void take_turn(struct engine *engine, int rank, double now)
{
    struct rank *self = &engine->rank[rank];
    struct queue *queue = &self->messages;
    self->has_turn = false;
    if (is_empty(queue)) queue = is_empty(&self->locals) || self->was_local ? &self->arrivals : &self->locals;
    if (is_empty(queue)) queue = &self->locals;
    if (is_empty(queue)) return;
    uint32_t id = queue->step[queue->head++];
    if (queue == &self->messages && self->plan->steps[id].kind == PLAN_SEND)
        run_send(engine, rank, id, now);
    else if (queue == &self->messages)
        run_post(engine, rank, id, now);
    else if (queue == &self->arrivals)
        run_arrival(engine, rank, id, now);
    else
        run_local(engine, rank, id, now);
    self->was_local = queue == &self->locals;
    if (!is_empty(&self->messages) || !is_empty(&self->arrivals) || !is_empty(&self->locals))
        request_turn(engine, rank, now);
}

static void inject(struct engine *engine, const struct event *event)
{
    const struct sim_network *network = engine->network;
    const struct plan_step *step = &engine->rank[event->rank].plan->steps[event->step];
    const struct rank *from = &engine->rank[step->peer];
    double bytes = bytes_of(engine, step), *rail = &engine->sends[from->host * network->rails + from->rail];
    double start = later(event->time, *rail);
    *rail = start + time_of(bytes, network->rail);
    double end = later(*rail, start + time_of(bytes, network->rank));
    push(engine, (struct event){.time = start + network->latency,
                                .kind = EVENT_HEAD,
                                .rank = event->rank,
                                .step = event->step,
                                .end = end + network->latency});
    if (bytes > (double)network->eager_bytes)
        push(engine, (struct event){.time = end,
                                    .kind = EVENT_DONE,
                                    .rank = step->peer,
                                    .step = engine->rank[event->rank].receive[event->step].send});
}

/* The receiver's processor is busy while the bytes arrive, so it begins that much before the end. */
static void receive_head(struct engine *engine, const struct event *event)
{
    const struct sim_network *network = engine->network;
    const struct rank *to = &engine->rank[event->rank];
    double bytes = bytes_of(engine, &to->plan->steps[event->step]);
    double *rail = &engine->receives[to->host * network->rails + to->rail];
    *rail = later(event->time, *rail) + time_of(bytes, network->rail);
    double end = later(*rail, event->end) - time_of(bytes, network->rank);
    push(engine, (struct event){
                     .time = later(end, event->time), .kind = EVENT_ARRIVE, .rank = event->rank, .step = event->step});
}

static void arrive(struct engine *engine, const struct event *event)
{
    struct rank *self = &engine->rank[event->rank];
    if (self->receive[event->step].posted < 0) {
        self->receive[event->step].arrived = true;
        return;
    }
    self->arrivals.step[self->arrivals.tail++] = event->step;
    request_turn(engine, event->rank, event->time);
}

static void handle(struct engine *engine, const struct event *event)
{
    switch (event->kind) {
    case EVENT_TURN:
        take_turn(engine, event->rank, event->time);
        break;
    case EVENT_DONE:
        complete_step(engine, event->rank, event->step, event->time);
        break;
    case EVENT_INJECT:
        inject(engine, event);
        break;
    case EVENT_HEAD:
        receive_head(engine, event);
        break;
    case EVENT_ARRIVE:
        arrive(engine, event);
        break;
    }
}

/* ---- a run --------------------------------------------------------------------------------------------------------
 */

/* Lists the receives by peer: the k-th from a peer matches its k-th send to this rank. */
static void index_receives(struct rank *self, int size)
{
    const struct plan *plan = self->plan;
    self->first = calloc((size_t)size + 1, sizeof *self->first);
    self->found = malloc((plan->n_steps + 1) * sizeof *self->found);
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].kind == PLAN_RECV || plan->steps[i].kind == PLAN_RECV_REDUCE)
            self->first[plan->steps[i].peer + 1]++;
    for (int peer = 0; peer < size; peer++) self->first[peer + 1] += self->first[peer];
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].kind == PLAN_RECV || plan->steps[i].kind == PLAN_RECV_REDUCE)
            self->found[self->first[plan->steps[i].peer] + plan->steps[i].slot] = i;
}

static void open_rank(struct rank *self, const struct plan *plan, int size)
{
    size_t steps = plan->n_steps + 1;
    self->plan = plan;
    self->left = plan->n_steps;
    self->waits = malloc(4 * steps * sizeof *self->waits);
    self->messages.step = self->waits + steps;
    self->arrivals.step = self->waits + 2 * steps;
    self->locals.step = self->waits + 3 * steps;
    self->receive = malloc(steps * sizeof *self->receive);
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        self->waits[i] = plan->steps[i].waits;
        self->receive[i] = (struct receive){.posted = -1, .sent = -1};
    }
    index_receives(self, size);
    for (uint32_t i = 0; i < plan->n_ready; i++) enqueue(self, plan->ready[i]);
}

static void place_ranks(struct engine *engine, const struct coll_hosts *hosts)
{
    for (int host = 0; host < hosts->n; host++) {
        for (int i = hosts->begin[host]; i < hosts->begin[host + 1]; i++) {
            engine->rank[hosts->rank[i]].host = host;
            engine->rank[hosts->rank[i]].rail = (i - hosts->begin[host]) % engine->network->rails;
        }
    }
}

double sim_run(const struct sim_network *network, struct plan *const *plans, const struct coll_hosts *hosts, int size,
               int64_t element)
{
    size_t rails = (size_t)hosts->n * (size_t)network->rails;
    struct engine engine = {.network = network, .size = size, .element = element};
    bool finished = true;
    engine.rank = calloc((size_t)size, sizeof *engine.rank);
    engine.sends = calloc(2 * rails + (size_t)hosts->n, sizeof *engine.sends);
    engine.receives = engine.sends + rails;
    engine.memory = engine.receives + rails;
    place_ranks(&engine, hosts);
    for (int rank = 0; rank < size; rank++) {
        open_rank(&engine.rank[rank], plans[rank], size);
        request_turn(&engine, rank, 0);
    }
    while (engine.n > 0) {
        struct event event = pop(&engine);
        handle(&engine, &event);
    }
    for (int rank = 0; rank < size; rank++) {
        struct rank *self = &engine.rank[rank];
        finished = finished && self->left == 0;
        free(self->waits);
        free(self->receive);
        free(self->first);
        free(self->found);
    }
    free(engine.rank);
    free(engine.sends);
    free(engine.heap);
    return finished ? engine.end : -1;
}
