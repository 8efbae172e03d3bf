/* Measures the network between two hosts: latency, overhead and bandwidth.
 *
 * Two ranks take part.  Rank 0 sends probes, and the first rank of another host answers each.  Both poll until the
 * measurement has ended, because a wake-up takes longer than most networks do.  A probe is a message of a kind that is
 * none of the protocol's.
 */
#include <sched.h>
#include <stdlib.h>

#include "tcp/net/fabric_impl.h"

enum { ASK = 1, ANSWER, END }; /* flags of a probe */

enum {
    START_MS = 500,  /* maximum wait for the other rank, which may not run yet */
    START_PART = 10, /* the same as a part of the timeout of opening */
    LIMIT_MS = 20,   /* after this time no step is started */
    STEP_MS = 100,   /* maximum duration of a step */
    ROUNDS = 8,      /* small messages */
    ROUNDS_PART = 4, /* the small messages' part of the limit */
    GROWTH = 4,      /* largest ratio of two steps */
    STEPS_MOST = 2,  /* steps that the other rank waits for at most: the first late one is the last */
    WINDOW = 8       /* maximum number of large probes without an answer */
};

/* ---- probes -------------------------------------------------------------------------------------------------- */

static int send_probe(struct fabric *fabric, int32_t rank, uint8_t step, uint64_t id, const void *data, size_t bytes)
{
    struct transport_header header = {
        .kind = FABRIC_PROBE, .flags = step, .source = (uint32_t)fabric->config.rank, .id = id};
    return fabric->kind->send(&fabric->transport, rank, &header, data, bytes);
}

void fabric_handle_probe(struct fabric *fabric, const struct transport_header *header)
{
    struct fabric_probes *probes = &fabric->probes;
    int32_t rank = (int32_t)header->source;
    if (header->source >= (uint32_t)fabric->config.world_size || rank != probes->partner) return;
    if (header->flags == ASK && fabric_is_up(fabric, rank)) send_probe(fabric, rank, ANSWER, header->id, NULL, 0);
    if (header->flags == ANSWER && header->id > probes->answered && header->id <= probes->sent)
        probes->answered = header->id;
    if (header->flags == END) probes->ended = true;
}

/* ---- waiting ------------------------------------------------------------------------------------------------- */

/* True if the wait is over for a reason that has nothing to do with what is awaited.  Makes progress otherwise. */
static bool gives_up(struct fabric *fabric, int64_t end_ns)
{
    if (fabric_lost(fabric, fabric->probes.partner) != NULL || fabric->config.host->now_ns() > end_ns) return true;
    if (fabric->kind->progress(fabric) == 0) sched_yield();
    return false;
}

static bool await_answers(struct fabric *fabric, uint64_t n_open, int64_t end_ns)
{
    while (fabric->probes.sent - fabric->probes.answered > n_open)
        if (gives_up(fabric, end_ns)) return false;
    return true;
}

static bool ask(struct fabric *fabric, const void *data, size_t bytes)
{
    struct fabric_probes *probes = &fabric->probes;
    return send_probe(fabric, probes->partner, ASK, ++probes->sent, data, bytes) == TUTTI_OK;
}

static int64_t start_ns(const struct fabric *fabric)
{
    int64_t part_ms = fabric->config.open_timeout_ms / START_PART;
    return fabric->config.host->now_ns() + (part_ms < START_MS ? part_ms : START_MS) * 1000000;
}

/* Returns OK, or PEER_LOST with the reason as error text. */
static int check_partner(struct fabric *fabric)
{
    int32_t rank = fabric->probes.partner;
    const char *why = fabric_lost(fabric, rank);
    if (why == NULL) return TUTTI_OK;
    return fabric->config.host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", rank, why);
}

/* ---- measuring ----------------------------------------------------------------------------------------------- */

/* Measures the round trip, and the time that a send takes.  Returns the round trip, or 0. */
static int64_t measure_latency(struct fabric *fabric, int64_t begin_ns, int64_t end_ns, tutti_link *link)
{
    const tutti_host *host = fabric->config.host;
    int64_t shortest = INT64_MAX, busy = INT64_MAX, last_ns = begin_ns + (int64_t)LIMIT_MS * 1000000 / ROUNDS_PART;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t start = host->now_ns();
        if (i > 0 && start > last_ns) break;
        if (!ask(fabric, NULL, 0)) break;
        int64_t sent = host->now_ns();
        if (!await_answers(fabric, 0, end_ns)) break;
        int64_t answered = host->now_ns();
        if (answered - start < shortest) shortest = answered - start;
        if (sent - start < busy) busy = sent - start;
    }
    if (shortest == INT64_MAX) return 0;
    link->latency_ns = shortest / 2;
    link->overhead_ns = busy < shortest / 2 ? busy : shortest / 2;
    link->latency_from = TUTTI_LINK_MEASURED;
    return shortest;
}

/* Sends `bytes` and returns the time until the last answer.  If that takes too long, sets *bytes to what was answered
 * in time. */
static int64_t run_step(struct fabric *fabric, const void *data, int64_t *bytes)
{
    const tutti_host *host = fabric->config.host;
    int64_t begin = host->now_ns(), end_ns = begin + (int64_t)STEP_MS * 1000000;
    int64_t piece = *bytes < TRANSPORT_PAYLOAD_MAX ? *bytes : TRANSPORT_PAYLOAD_MAX;
    uint64_t before = fabric->probes.answered;
    bool arrives = true;
    for (int64_t at = 0; at < *bytes && arrives; at += piece)
        arrives = await_answers(fabric, WINDOW - 1, end_ns) && ask(fabric, data, (size_t)piece);
    if (!arrives || !await_answers(fabric, 0, end_ns)) *bytes = (int64_t)(fabric->probes.answered - before) * piece;
    return host->now_ns() - begin;
}

/* Measures the bandwidth in steps of growing size.  The largest size counts, and the best of its steps.  A step is made
 * only if it will most likely end within the limit, so a slow network carries little. */
static void measure_bandwidth(struct fabric *fabric, int64_t begin_ns, int64_t round_trip, tutti_link *link)
{
    static const int64_t steps[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20, 1 << 20, 1 << 20};
    const tutti_host *host = fabric->config.host;
    void *data = calloc(1, TRANSPORT_PAYLOAD_MAX);
    int64_t took = round_trip, last_ns = begin_ns + (int64_t)LIMIT_MS * 1000000, before = 0;
    for (size_t i = 0; data != NULL && i < sizeof steps / sizeof *steps; i++) {
        int64_t bytes = steps[i];
        if (host->now_ns() + took * (bytes > before ? GROWTH : 1) > last_ns) break;
        took = run_step(fabric, data, &bytes);
        int64_t moving = took > 2 * round_trip ? took - round_trip : took / 2;
        int64_t found = bytes * 1000 / (moving > 0 ? moving : 1);
        if (found == 0) found = 1;
        if (steps[i] > before || found > link->bytes_per_us) link->bytes_per_us = found;
        link->bytes_from = TUTTI_LINK_MEASURED;
        if (bytes < steps[i]) break;
        before = steps[i];
    }
    free(data);
}

int fabric_measure(struct fabric *fabric, tutti_link *link)
{
    struct fabric_probes *probes = &fabric->probes;
    int64_t begin_ns, end_ns = start_ns(fabric);
    int status = fabric_try_to_connect(fabric, probes->partner);
    while (status == TUTTI_OK && !fabric_is_up(fabric, probes->partner))
        if (gives_up(fabric, end_ns)) break;
    if (status == TUTTI_OK) status = check_partner(fabric);
    if (status != TUTTI_OK || !fabric_is_up(fabric, probes->partner)) return status;
    begin_ns = fabric->config.host->now_ns();
    int64_t round_trip = measure_latency(fabric, begin_ns, end_ns, link);
    if (round_trip > 0) measure_bandwidth(fabric, begin_ns, round_trip, link);
    send_probe(fabric, probes->partner, END, 0, NULL, 0);
    return check_partner(fabric);
}

int fabric_answer(struct fabric *fabric)
{
    int64_t end_ns = start_ns(fabric) + (int64_t)(LIMIT_MS + STEPS_MOST * STEP_MS) * 1000000;
    while (!fabric->probes.ended)
        if (gives_up(fabric, end_ns)) break;
    return fabric->probes.ended ? TUTTI_OK : check_partner(fabric);
}
