/* Links of datagram endpoints: greetings, which give a link its secret; heartbeats, which tell that it lives.
 *
 *   HELLO     who calls: a greeting, with the caller's own entry of the address book
 *   WELCOME   its answer; from now on the caller may send
 *   any other message of the caller, a heartbeat at least: now the callee may send, too
 *
 * Each is repeated until it is answered.  Where two ranks call each other, the call of the lower rank counts.  What
 * does not prove the token is dropped without a word, and so is a HELLO for a link that was made already.
 *
 * Time is counted in ticks, which pass only while this rank looks: one that was stopped does not take its own silence
 * for that of the others. */
#include <stdio.h>
#include <string.h>

#include "tcp/net/rdm.h"

enum {
    HELLO_SIGNED = HANDSHAKE_BYTES + WIRE_ENTRY_MAX,
    CONNECT_TICKS = 3 * RDM_TICKS, /* without an answer */
    UNHEARD = RDM_TICKS + 1,       /* one is the tick that was under way */
    SUSPECT_TICKS = RDM_SAY_TICKS + 2
};

static const char LOST_MESSAGES[] = "the provider lost messages: its connection broke";

/* ---- secrets ----------------------------------------------------------------------------------------------- */

/* What marks messages from one of the two to the other: only they can know, for the token goes into it. */
static uint64_t secret(const struct fabric_link *link, uint32_t from)
{
    struct peer_handshake greeting = link->greeting;
    uint8_t text[8 + HANDSHAKE_BYTES] = {'s', 'e', 's', 's', 'i', 'o', 'n', (uint8_t)(from == greeting.from)};
    uint8_t mac[HANDSHAKE_MAC];
    uint64_t session;
    greeting.kind = HANDSHAKE_CONNECT;
    memset(greeting.mac, 0, sizeof greeting.mac);
    peer_handshake_encode(text + 8, &greeting);
    link->fabric->config.host->token_mac(mac, text, 8 + HANDSHAKE_SIGNED);
    memcpy(&session, mac, sizeof session);
    return session | 1; /* 0 means none */
}

static void begin_session(struct fabric_link *link)
{
    link->rdm.session_out = secret(link, (uint32_t)link->fabric->config.rank);
    link->rdm.session_in = secret(link, (uint32_t)link->rank);
    link->rdm.sent = link->rdm.heard = 0;
}

static void set_state(struct fabric_link *link, enum fabric_state state)
{
    fabric_set_state(link, state);
    rdm_end_probe(link);
    link->rdm.refused = false;
    link->rdm.mute = link->rdm.deaf = 0;
}

/* ---- calling ----------------------------------------------------------------------------------------------- */

static void *name_of(const struct fabric *fabric, int32_t rank)
{
    return fabric->rdm.names + (size_t)rank * rdm_name_words(fabric);
}

/* The peer's address in the provider's table. */
static int insert_address(struct fabric_link *link)
{
    struct fid_av *av = link->fabric->rdm.av;
    const void *name = name_of(link->fabric, link->rank);
    size_t bytes = sizeof link->where;
    fi_av_straddr(av, name, link->where, &bytes);
    int n = fi_av_insert(av, name, 1, &link->rdm.address, 0, NULL);
    link->rdm.has_address = n == 1;
    return n == 1 ? TUTTI_OK : fabric_failed(link->fabric, "fi_av_insert", n < 0 ? n : -FI_EINVAL);
}

/* Those of another provider are of another length, as a rule. */
static bool take_name(struct fabric *fabric, int32_t rank, const struct wire_name *name)
{
    if (name->bytes != fabric->rdm.name_bytes) return false;
    fabric->addresses[rank] = name->host;
    memcpy(name_of(fabric, rank), name->name, name->bytes);
    return true;
}

bool rdm_take_entry(struct fabric *fabric, int32_t rank, const uint8_t *entry, size_t bytes)
{
    struct wire_name name;
    return wire_name_parse(entry, bytes, &name) && take_name(fabric, rank, &name);
}

/* The higher rank gives the other one time to call first: calls that cross cost more than this.  They are no more than
 * costly: ofi_rxm ends one of its two connections, and takes what is sent again until the other one stands. */
int rdm_ask(struct fabric_link *link)
{
    enum { COURTESY_MS = 20 };
    struct fabric *fabric = link->fabric;
    int status = fabric_look_up(fabric, link->rank);
    if (status == TUTTI_OK && !link->rdm.has_address) status = insert_address(link);
    if (status != TUTTI_OK) return status;
    fabric_greet(link);
    set_state(link, FABRIC_CONNECTING);
    link->rdm.hello_due = true;
    link->rdm.hello_ns = fabric->config.host->now_ns();
    if (link->rank < fabric->config.rank) link->rdm.hello_ns += (int64_t)COURTESY_MS * 1000000;
    rdm_flush(link);
    return TUTTI_OK;
}

static int say_hello(struct fabric_link *link)
{
    struct fabric *fabric = link->fabric;
    if (link->rdm.hello_ns > fabric->config.host->now_ns()) {
        fabric->rdm.retry = true;
        return -FI_EAGAIN;
    }
    uint8_t text[HELLO_SIGNED + HANDSHAKE_MAC];
    size_t n = HANDSHAKE_BYTES;
    peer_handshake_sign(fabric->config.host, &link->greeting, text);
    memcpy(text + n, fabric->entry, fabric->entry_bytes);
    n += fabric->entry_bytes;
    fabric->config.host->token_mac(text + n, text, n);
    struct rdm_parts parts = {.first = text, .first_bytes = n + HANDSHAKE_MAC};
    return rdm_post(link, (struct wire_envelope){.kind = WIRE_HELLO}, &parts, NULL);
}

static int say_welcome(struct fabric_link *link)
{
    uint8_t text[HANDSHAKE_BYTES];
    link->greeting.kind = HANDSHAKE_ACCEPT;
    peer_handshake_sign(link->fabric->config.host, &link->greeting, text);
    struct rdm_parts parts = {.first = text, .first_bytes = sizeof text};
    return rdm_post(link, (struct wire_envelope){.kind = WIRE_WELCOME}, &parts, NULL);
}

/* What is due, if the provider takes it. */
int rdm_say(struct fabric_link *link)
{
    struct rdm_link *rdm = &link->rdm;
    const struct rdm_parts nothing = {0};
    int status = 0;
    if (rdm->hello_due && (status = say_hello(link)) == 0) rdm->hello_due = false;
    if (rdm->welcome_due && (status = say_welcome(link)) == 0) rdm->welcome_due = false;
    if (rdm->beat_due && (status = rdm_post(link, (struct wire_envelope){.kind = WIRE_HEARTBEAT}, &nothing, NULL)) == 0)
        rdm->beat_due = false;
    return status;
}

/* ---- being called ------------------------------------------------------------------------------------------ */

/* A HELLO that proves the token, to us: with its caller's entry. */
static bool is_hello(const struct fabric *fabric, const uint8_t *data, size_t n, struct peer_handshake *greeting,
                     struct wire_name *name)
{
    uint8_t mac[HANDSHAKE_MAC];
    if (n <= HANDSHAKE_BYTES + HANDSHAKE_MAC || n > HELLO_SIGNED + HANDSHAKE_MAC) return false;
    size_t covered = n - HANDSHAKE_MAC;
    fabric->config.host->token_mac(mac, data, covered);
    return fabric->config.host->token_equal(mac, data + covered) &&
           fabric_verify(fabric, data, HANDSHAKE_BYTES, HANDSHAKE_CONNECT, greeting) &&
           fabric_is_for_us(fabric, greeting) &&
           wire_name_parse(data + HANDSHAKE_BYTES, covered - HANDSHAKE_BYTES, name);
}

static void accept_call(struct fabric_link *link, const struct peer_handshake *greeting, const struct wire_name *name)
{
    if (!link->rdm.has_address && (!take_name(link->fabric, link->rank, name) || insert_address(link) != TUTTI_OK))
        return;
    link->greeting = *greeting;
    begin_session(link);
    set_state(link, FABRIC_ACCEPTING);
    link->rdm.hello_due = false;
    link->rdm.welcome_due = true;
    rdm_flush(link);
}

static void handle_hello(struct fabric *fabric, const struct peer_handshake *greeting, const struct wire_name *name)
{
    struct fabric_link *link = fabric_make_link(fabric, (int32_t)greeting->from);
    if (link == NULL) return; /* out of memory; the peer repeats it */
    bool crossed = link->state == FABRIC_CONNECTING && link->rank < fabric->config.rank;
    if (link->state == FABRIC_IDLE || crossed) {
        accept_call(link, greeting, name);
    } else if (link->state == FABRIC_ACCEPTING && fabric_is_answer(link, greeting)) { /* our answer was lost */
        link->rdm.welcome_due = true;
        rdm_flush(link);
    }
}

static void handle_welcome(struct fabric_link *link)
{
    begin_session(link);
    set_state(link, FABRIC_UP);
    link->rdm.hello_due = false;
    link->rdm.beat_due = true; /* the peer waits for a sign */
    rdm_flush(link);
}

void rdm_handle_greeting(struct fabric *fabric, const struct wire_envelope *envelope, const uint8_t *data, size_t n)
{
    struct fabric_link *link = fabric->link[envelope->from];
    struct peer_handshake greeting;
    struct wire_name name;
    if (envelope->kind == WIRE_HELLO && is_hello(fabric, data, n, &greeting, &name) && greeting.from == envelope->from)
        handle_hello(fabric, &greeting, &name);
    else if (envelope->kind == WIRE_WELCOME && link != NULL && link->state == FABRIC_CONNECTING &&
             fabric_verify(fabric, data, n, HANDSHAKE_ACCEPT, &greeting) && fabric_is_answer(link, &greeting))
        handle_welcome(link);
    else
        fabric->config.host->log(3, "tcp: dropped a greeting that did not prove the job's token, or came twice");
}

/* ---- life -------------------------------------------------------------------------------------------------- */

/* Whether a message, which is no greeting, is this link's, and not one that was here before. */
bool rdm_is_of_link(struct fabric *fabric, const struct wire_envelope *envelope)
{
    struct fabric_link *link = fabric->link[envelope->from];
    bool is_open = link != NULL && (link->state == FABRIC_UP || link->state == FABRIC_ACCEPTING);
    if (!is_open || envelope->session != link->rdm.session_in) {
        fabric->config.host->log(3, "tcp: dropped a message of no link, said to be from rank %u", envelope->from);
        return false;
    }
    link->rdm.listened = true;
    if (envelope->sequence - link->rdm.heard - 1 < RDM_WINDOW) return true; /* wraps: one from before is far ahead */
    fabric_drop(fabric, link->rank, LOST_MESSAGES, true);
    return false;
}

/* The next one's turn has come. */
void rdm_heard(struct fabric_link *link)
{
    link->rdm.heard++;
    link->rdm.advanced = true;
    if (link->state != FABRIC_ACCEPTING) return;
    set_state(link, FABRIC_UP);
    rdm_flush(link);
}

/* The peer is told, if that is possible without waiting; buffers in the provider come back in their time. */
void rdm_end(struct fabric_link *link)
{
    const struct rdm_parts nothing = {0};
    struct rdm_slot *slot;
    TAILQ_FOREACH(slot, &link->rdm.flying, entry) slot->write = NULL;
    rdm_end_probe(link);
    if (link->state == FABRIC_UP) rdm_post(link, (struct wire_envelope){.kind = WIRE_END}, &nothing, NULL);
    link->rdm.hello_due = link->rdm.welcome_due = link->rdm.beat_due = false;
}

static void lose_silent(struct fabric_link *link)
{
    char why[96];
    if (link->state != FABRIC_UP) {
        snprintf(why, sizeof why, "no answer for %d s (it has left or died, or its job token differs)",
                 3 * link->fabric->silent_ms / 1000);
        fabric_lose_connecting(link, why);
        return;
    }
    snprintf(why, sizeof why, "no heartbeat for %d s (TUTTI_SILENT_MS)", link->fabric->silent_ms / 1000);
    fabric_drop(link->fabric, link->rank, why, true);
}

static void tick_link(struct fabric_link *link)
{
    struct rdm_link *rdm = &link->rdm;
    rdm->mute = rdm->spoke ? 0 : rdm->mute + 1;
    rdm->deaf = rdm->listened ? 0 : rdm->deaf + 1;
    rdm->stuck = rdm->advanced || STAILQ_EMPTY(&rdm->early) ? 0 : rdm->stuck + 1;
    rdm->spoke = rdm->listened = rdm->advanced = false;
    if (rdm->deaf >= (link->state == FABRIC_UP ? SUSPECT_TICKS : 0) && rdm_is_gone(link)) {
        fabric_lose_connecting(link, "its process has ended or left: connection refused");
        return;
    }
    if (rdm->deaf >= (link->state == FABRIC_UP ? UNHEARD : CONNECT_TICKS)) {
        lose_silent(link);
        return;
    }
    if (rdm->stuck >= UNHEARD) {
        fabric_drop(link->fabric, link->rank, LOST_MESSAGES, true);
        return;
    }
    if (rdm->mute < RDM_SAY_TICKS) return;
    rdm->mute = 0;
    rdm->beat_due = link->state == FABRIC_UP;
    rdm->hello_due = link->state == FABRIC_CONNECTING;
    rdm_flush(link);
}

void rdm_tick(struct fabric *fabric)
{
    rdm_accept_probes(fabric);
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        if (link->state == FABRIC_UP || fabric_is_on_its_way(link)) tick_link(link);
    }
}
