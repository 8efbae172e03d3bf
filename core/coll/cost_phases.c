#include "cost_phases.h"

#include "ring.h"
#include "tree.h"

/* Assumptions about links and processors that backends do not report, in ns and bytes per us. */
enum {
    LINK_LATENCY = 7000,
    LINK_BYTES = 2500,
    LATENCY_PER_OVERHEAD = 6, /* processors' part of the latency, on each side */
    LOCAL_LATENCY = 800,
    LOCAL_OVERHEAD = 250,
    LOCAL_BYTES = 10000,
    LOCAL_COPIES = 8, /* of a host at full speed at once */
    VAIN_LOOKS = 4,   /* for each message, of ranks that share cores */
    REDUCE_BYTES = 8000,
    COPY_BYTES = 12000
};

struct wire {
    double latency, overhead; /* ns */
    double send, receive;     /* ns per byte of a processor */
    double rank, host;        /* ns per byte of the link of one rank, and of all ranks of a host together */
};

struct model {
    int size, corners;
    int per_host; /* ranks on the fullest host */
    int hosts;    /* 1 if the network's links are not shared */
    bool ordered; /* neighbours share hosts */
    bool is_part;
    bool gathers;         /* the root receives */
    double others;        /* ranks of a host that share a core with a rank */
    double segment;       /* bytes */
    struct wire net, own; /* between hosts and within one */
};

/* What one piece costs. */
struct sum {
    double latency;      /* time of its first segment alone */
    double cpu, in, out; /* time that the busiest processor, and link in each direction, work on it */
    double first;        /* time after which the next piece can start */
    double tail;         /* the end of its last message after the link is free */
    double work;         /* time that a rank's processor works on it, on average */
};

/* How many messages a phase has. */
struct count {
    double hops; /* one after the other */
    double most; /* that the busiest rank works on */
    double mean; /* the same of a rank on average */
};

static double greater(double a, double b)
{
    return a > b ? a : b;
}

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static double per_byte(int64_t bytes_per_us, double otherwise)
{
    return bytes_per_us > 0 ? 1000 / (double)bytes_per_us : otherwise;
}

/* Returns how many pieces of at most this size there are; the last one may count less. */
static double pieces_of(double bytes, double piece)
{
    return bytes > piece ? bytes / piece : 1;
}

/* ---- the group ----------------------------------------------------------------------------------------------------
 */

static int64_t given_or(int64_t given, int64_t assumed)
{
    return given > 0 ? given : assumed;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct coll_link cost_link(const struct coll_link *given)
{
    struct coll_link link = given != NULL ? *given : (struct coll_link){0};
    link.latency_ns = given_or(link.latency_ns, LINK_LATENCY);
    link.overhead_ns = given_or(link.overhead_ns, link.latency_ns / LATENCY_PER_OVERHEAD);
    link.bytes_per_us = given_or(link.bytes_per_us, LINK_BYTES);
    bool known = link.local_latency_ns > 0;
    int64_t overhead = known ? link.local_latency_ns / LATENCY_PER_OVERHEAD : LOCAL_OVERHEAD;
    link.local_latency_ns = known ? link.local_latency_ns : least_of(LOCAL_LATENCY, link.latency_ns);
    link.local_overhead_ns =
        given_or(link.local_overhead_ns, known ? overhead : least_of(LOCAL_OVERHEAD, link.overhead_ns));
    link.local_bytes_per_us = given_or(link.local_bytes_per_us, LOCAL_BYTES);
    return link;
}

static struct wire make_net(const struct coll_link *link)
{
    struct wire net = {.latency = (double)link->latency_ns, .overhead = (double)link->overhead_ns};
    net.rank = per_byte(link->bytes_per_us, 0);
    net.host = per_byte(link->host_bytes_per_us, net.rank);
    net.send = net.receive = per_byte(link->processor_bytes_per_us, 0);
    return net;
}

static struct wire make_own(const struct coll_link *link, bool is_socket)
{
    struct wire own = {.latency = (double)link->local_latency_ns, .overhead = (double)link->local_overhead_ns};
    own.receive = per_byte(link->local_bytes_per_us, 0);
    own.send = is_socket ? own.receive : 0; /* through shared memory the receiver copies */
    own.host = own.receive / LOCAL_COPIES;
    return own;
}

static struct model make_model(const struct coll_args *args)
{
    const struct coll_hosts *hosts = args->hosts;
    struct model model = {.size = args->size, .corners = tree_power(args->size), .per_host = 1, .hosts = args->size};
    struct coll_link link = cost_link(args->link);
    model.net = make_net(&link);
    model.own = make_own(&link, args->link != NULL && args->link->local_latency_ns > 0);
    model.segment = args->segment > 0 ? (double)args->segment * (double)args->element : 1;
    if (args->is_part && args->lanes == 0) model.per_host = args->size;
    if (args->is_part && args->lanes > 0) model.net.host *= args->lanes;
    if (!args->is_part && hosts != NULL) model.per_host = hosts->most;
    model.is_part = args->is_part;
    model.gathers = args->kind == TUTTI_GATHER;
    model.ordered = hosts == NULL || hosts->in_order;
    if (model.per_host > 1) model.hosts = hosts != NULL ? hosts->n : 1;
    double on_host = args->is_part && args->lanes > 0 ? args->lanes : model.per_host;
    if (link.host_cores > 0) model.others = greater(on_host / (double)link.host_cores - 1, 0);
    return model;
}

/* Returns how many ranks of a host send to others at once if every rank sends to the one at this distance; 0 if the
 * ranks are all within hosts. */
static double shift_flows(const struct model *model, double distance)
{
    if (model->hosts == 1) return 0;
    return model->ordered ? lesser(distance, model->per_host) : model->per_host;
}

static double cube_flows(const struct model *model, double bit)
{
    double corners = model->corners < model->size ? model->per_host / 2.0 : model->per_host; /* of a host */
    if (model->hosts == 1 || (model->ordered && 2 * bit <= corners)) return 0;
    return model->per_host;
}

/* The same for the round of a binomial tree in which ranks at this distance communicate. */
static double tree_flows(const struct model *model, double distance)
{
    if (model->hosts == 1 || (model->ordered && distance < model->per_host)) return 0;
    return model->ordered ? 1 : greater(1, model->size / (2 * distance) / model->hosts);
}

/* ---- phases -------------------------------------------------------------------------------------------------------
 */

/* What the busiest rank does in a phase. */
enum { EXCHANGES = 0, SENDS = 1, RECEIVES = 2, REDUCES = 4 };

static void add_messages(const struct model *model, struct sum *sum, struct count count, double bytes, double flows,
                         int does)
{
    double times = count.most;
    if (count.hops == 0 && times == 0) return;
    const struct wire *wire = flows > 0 ? &model->net : &model->own;
    double part = lesser(bytes, model->segment), messages = pieces_of(bytes, model->segment);
    double sharing = flows > 0 ? flows : does & (SENDS | RECEIVES) ? 1 : model->per_host;
    double link = greater(wire->rank, sharing * wire->host);
    double reduce = does & REDUCES ? 1000.0 / REDUCE_BYTES : 0, overhead = 0, cpu = reduce;
    double latency = wire->latency + model->others * wire->overhead; /* the others look for messages first */
    double wakes = model->others > 0 ? wire->overhead : 0;           /* a sender's, that wakes the receiver */
    if (!(does & SENDS)) overhead += wire->overhead, cpu += wire->receive, sum->in += times * bytes * link;
    if (!(does & RECEIVES)) overhead += wire->overhead + wakes, cpu += wire->send, sum->out += times * bytes * link;
    sum->latency += count.hops * (latency + part * (greater(link, wire->receive) + reduce));
    double busy = times * (overhead * messages + cpu * bytes);
    /* if one rank sends, the other side may have more to do */
    bool sends = (does & SENDS) && times > 0;
    sum->cpu += greater(busy, sends ? wire->overhead * messages + wire->receive * bytes : 0);
    sum->first = greater(sum->first, greater(overhead + cpu * part, link * part));
    sum->tail = greater(sum->tail, wire->latency + part * reduce);
    double looks = (2 + VAIN_LOOKS) * wire->overhead; /* of both ends of a message */
    sum->work += count.mean * (looks * messages + (wire->send + wire->receive + reduce) * bytes);
}

/* Returns the count of a phase that all ranks take part in alike. */
static struct count alike(double hops, double times)
{
    return (struct count){hops, times, times};
}

/* Returns the count of a phase in which this many of the ranks send. */
static struct count of_some(const struct model *model, double hops, double times, double senders)
{
    return (struct count){hops, times, times * senders / model->size};
}

static double busy_of(const struct sum *sum)
{
    return greater(sum->cpu, greater(sum->in, sum->out));
}

/* Adds a phase of which one rank, the root, does the most.  The next piece waits for it. */
static void add_root(struct sum *sum, const struct sum *root)
{
    sum->latency += root->latency;
    sum->cpu += root->cpu;
    sum->in += root->in;
    sum->out += root->out;
    sum->first = greater(sum->first, busy_of(root));
    sum->tail = greater(sum->tail, root->tail);
    sum->work += root->work;
}

/* Adds N - 1 hops from rank to rank, along a ring or from its first rank to its last.  The busiest ranks are those that
 * have a neighbour on another host. */
static void add_line(const struct model *model, struct sum *sum, bool is_ring, double bytes, int does)
{
    double hops = model->size - 1, times = is_ring ? hops : 1, flows = shift_flows(model, 1);
    double far = model->hosts == 1 ? 0 : (model->ordered ? model->hosts : model->size) - !is_ring;
    double senders = is_ring ? model->size : hops;
    if (far == 0 || far >= hops) {
        add_messages(model, sum, of_some(model, hops, times, senders), bytes, flows, does);
        return;
    }
    struct count near = of_some(model, hops - far, does & SENDS ? 0 : times, senders);
    add_messages(model, sum, near, bytes, 0, (does & REDUCES) | RECEIVES);
    add_messages(model, sum, of_some(model, far, does & RECEIVES ? 0 : times, 0), bytes, flows, SENDS);
}

/* On a number of ranks that is not a power of two no path has the most distant edge and all others. */
static void add_tree(const struct model *model, struct sum *sum, double bytes, bool spreads, int does)
{
    bool is_power = model->corners == model->size;
    struct sum root = {0};
    does |= does & REDUCES || model->gathers ? RECEIVES : SENDS;
    for (double distance = is_power ? model->corners / 2.0 : model->corners; distance >= 1; distance /= 2) {
        double below = lesser(distance, model->size - distance);
        struct count count =
            of_some(model, is_power || distance < model->corners, 1, greater(1, model->size / (2 * distance)));
        add_messages(model, &root, count, spreads ? bytes * below / model->size : bytes, tree_flows(model, distance),
                     does);
        if (!is_power && distance == model->corners) root.latency += lesser(busy_of(&root), root.first);
    }
    add_root(sum, &root);
}

/* Adds a tree for each rank, all with the same root. */
static void add_trees(const struct model *model, struct sum *sum, double bytes, int does)
{
    struct sum one = {0};
    add_tree(model, &one, bytes, false, does);
    one.cpu *= model->size;
    one.in *= model->size;
    one.out *= model->size;
    one.work *= model->size;
    add_root(sum, &one);
}

static void add_cube(const struct model *model, struct sum *sum, double bytes, bool halves, int does)
{
    for (double bit = 1; bit < model->corners; bit *= 2)
        add_messages(model, sum, alike(1, 1), halves ? bytes * bit / model->corners : bytes, cube_flows(model, bit),
                     does);
}

/* Adds a round in which every rank sends to `ways` others. */
static void add_ways(const struct model *model, struct sum *sum, double ways, double bytes, double flows, int does)
{
    struct sum others = {0};
    add_messages(model, sum, alike(1, ways), bytes, flows, does);
    add_messages(model, &others, alike(0, ways - 1), bytes, flows, does);
    sum->latency += busy_of(&others);
}

static void add_quads(const struct model *model, struct sum *sum, double bytes, int does)
{
    for (int bit = 1, ways; bit < model->corners; bit *= ways) {
        ways = model->corners / bit >= 4 ? 4 : 2;
        add_ways(model, sum, ways - 1, bytes, cube_flows(model, bit * ways / 2.0), does);
    }
}

static void add_circles(const struct model *model, struct sum *sum, double bytes, int does)
{
    for (int far = model->size, near; far > 1; far = near) {
        near = (far + 1) / 2;
        add_messages(model, sum, alike(1, 1), bytes * (far - near) / model->size, shift_flows(model, near), does);
    }
}

static void add_shifts_4(const struct model *model, struct sum *sum, double bytes, int does)
{
    for (double distance = 1; distance < model->size; distance *= 4) {
        int ways = 0;
        while (ways < 3 && (ways + 1) * distance < model->size) ways++;
        add_ways(model, sum, ways, bytes, shift_flows(model, distance), does);
    }
}

/* A rank has two children in one of the trees, so half of the hops also wait for the other child's message. */
static void add_two_trees(const struct model *model, struct sum *sum, double bytes, int does)
{
    double hops = 1, flows = model->hosts == 1 ? 0 : lesser(2, model->per_host);
    struct sum other = {0};
    for (double ranks = 1; ranks < model->size - 1; ranks = 2 * ranks + 1) hops++;
    add_messages(model, sum, of_some(model, hops, 1, model->size - 1), bytes, flows, does);
    add_messages(model, &other, alike(0, hops / 2), bytes, flows, does);
    sum->latency += busy_of(&other);
}

static void add_copy(struct sum *sum, double bytes, bool waits)
{
    if (waits) sum->latency += cost_copy(bytes);
    sum->cpu += cost_copy(bytes);
    sum->work += cost_copy(bytes);
}

/* On a number of ranks that is not a power of two the last round need not wait for all others.  Of the rounds within
 * the size of a host, a path leaves the host in one only. */
static void add_shifts(const struct model *model, struct sum *sum, double bytes, int pattern, int does)
{
    for (double distance = 1; distance < model->size; distance *= 2) {
        double blocks = lesser(distance, model->size - distance);
        double sent = pattern == COLL_SHIFT ? bytes : pattern == COLL_BRUCK ? bytes * blocks / model->size : bytes / 2;
        bool waits = bytes == 0 || (pattern == COLL_BRUCK ? 2 * blocks > distance : blocks == distance);
        if (pattern == COLL_SHUFFLE) add_copy(sum, sent, true);
        double flows = shift_flows(model, distance);
        bool few = does & REDUCES && model->hosts < 4; /* a scan passes each host once */
        bool is_near = model->ordered && distance < model->per_host && (few || 2 * distance < model->per_host);
        add_messages(model, sum, alike(waits && is_near, 0), sent, 0, does);
        add_messages(model, sum, alike(waits && !is_near, 1), sent, flows, does);
    }
}

/* Adds N - 1 messages of one rank, or of every rank. */
static void add_fan(const struct model *model, struct sum *sum, double bytes, bool all, int does)
{
    double near = model->per_host - 1, far = model->size - model->per_host;
    double senders = all ? model->size : 1;
    struct sum fan = {0}, sends = {0};
    int root = model->gathers ? RECEIVES : SENDS;
    if (!all) does |= root;
    if (near > 0) add_messages(model, &fan, of_some(model, far > 0 ? 0 : 1, near, senders), bytes, 0, does);
    if (far > 0) add_messages(model, &fan, of_some(model, 1, far, senders), bytes, all ? model->per_host : 1, does);
    add_messages(model, &sends, alike(0, near + far - 1), bytes, far > 0 ? 1 : 0, root);
    fan.latency += busy_of(&sends);
    add_root(sum, &fan);
}

static void add_phase(const struct model *model, struct sum *sum, int phase, double bytes)
{
    int pattern = phase & ~COLL_SUM, reduces = phase & COLL_SUM ? REDUCES : EXCHANGES;
    double block = bytes / model->size;
    switch (pattern) {
    case COLL_TREE:
    case COLL_SPREAD:
        add_tree(model, sum, bytes, pattern == COLL_SPREAD, reduces);
        break;
    case COLL_RING:
        add_line(model, sum, true, block, reduces);
        break;
    case COLL_CHAIN:
        if (model->size == 2) reduces |= reduces ? RECEIVES : SENDS;
        add_line(model, sum, false, bytes, reduces);
        break;
    case COLL_CUBE:
    case COLL_HALVES:
        add_cube(model, sum, bytes, pattern == COLL_HALVES, reduces);
        break;
    case COLL_QUADS:
        add_quads(model, sum, bytes, reduces);
        break;
    case COLL_TWO_TREES:
        add_two_trees(model, sum, bytes, reduces);
        break;
    case COLL_CIRCLES:
        add_circles(model, sum, bytes, reduces);
        break;
    case COLL_SHIFT_4:
        add_shifts_4(model, sum, bytes, reduces);
        break;
    case COLL_FOLD:
        if (model->corners < model->size)
            add_messages(model, sum, of_some(model, 1, 1, model->size - model->corners), bytes, cube_flows(model, 1),
                         reduces ? REDUCES | RECEIVES : SENDS);
        break;
    case COLL_SHIFT:
    case COLL_BRUCK:
    case COLL_SHUFFLE:
        add_shifts(model, sum, bytes, pattern, reduces);
        break;
    case COLL_FAN:
    case COLL_DEAL:
    case COLL_PAIRS:
        add_fan(model, sum, pattern == COLL_FAN ? bytes : block, pattern == COLL_PAIRS, reduces);
        break;
    case COLL_EACH:
        add_trees(model, sum, block, reduces);
        break;
    case COLL_COPY:
        add_copy(sum, bytes, true);
        break;
    case COLL_OWN:
        if (!model->is_part) add_copy(sum, block, false); /* parts are in place */
        break;
    }
}

struct cost_span cost_phases(const struct coll_algorithm *algorithm, const struct coll_args *args, double bytes)
{
    struct model model = make_model(args);
    double unit = bytes;
    if (algorithm->piece == COLL_SEGMENTS) unit = model.segment;
    if (algorithm->piece == COLL_RANKS) unit = model.segment * model.size;
    if (algorithm->piece == COLL_CORNERS) unit = model.segment * model.corners;
    double pieces = pieces_of(bytes, unit);
    struct sum sum = {0};
    for (int i = 0; i < COLL_PHASES; i++) add_phase(&model, &sum, algorithm->phase[i], lesser(bytes, unit));
    double cpu = pieces * sum.cpu, link = pieces * greater(sum.in, sum.out);
    double all = greater(sum.latency + (pieces - 1) * sum.first, greater(cpu, link + sum.tail));
    double waits = pieces * sum.work * model.others; /* for a core */
    return (struct cost_span){sum.latency, all + waits, cpu + waits, link};
}

double cost_copy(double bytes)
{
    return bytes * 1000 / COPY_BYTES;
}
