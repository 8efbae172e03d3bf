/* Links of datagram endpoints: the handshake, which gives a link its secrets, and heartbeats.
 *
 *   HELLO     the client sends a handshake and its address book entry
 *   WELCOME   the server answers; from now on the client may send
 *   message   the client sends any other message, at least a heartbeat; from now on the server may send too
 *
 * Each is repeated until it is answered.  If two ranks send a HELLO to each other, that of the lower rank counts.  A
 * message that does not prove the token is dropped without an answer, and so is a HELLO for a link that is up.
 *
 * Time is counted in ticks, which pass only while this rank polls.  A rank that was stopped therefore does not mistake
 * its own silence for its peers'. */
#include <stdio.h>
#include <string.h>

#include "tcp/net/rdm.h"

enum {
    HELLO_SIGNED = HANDSHAKE_BYTES + WIRE_ENTRY_MAX,
    CONNECT_TICKS = 3 * RDM_TICKS, /* limit for the peer's answer */
    SILENT_TICKS = RDM_TICKS + 1,  /* one more for the current, incomplete tick */
    SUSPECT_TICKS = RDM_HEARTBEAT_TICKS + 2
};

static const char LOST_MESSAGES[] = "the provider lost messages: its connection broke";

/* ---- secrets ------------------------------------------------------------------------------------------------- */

/* Returns the secret that marks messages from rank `from` to the other rank of the link.  It is derived from the token,
 * so no process without the token can know it. */
static uint64_t derive_secret(const struct fabric_link *link, uint32_t from)
{
    struct peer_handshake handshake = link->handshake;
    uint8_t text[8 + HANDSHAKE_BYTES] = {'s', 'e', 's', 's', 'i', 'o', 'n', (uint8_t)(from == handshake.from)};
    uint8_t mac[HANDSHAKE_MAC];
    uint64_t session;
    handshake.kind = HANDSHAKE_CONNECT;
    memset(handshake.mac, 0, sizeof handshake.mac);
    peer_handshake_encode(text + 8, &handshake);
    link->fabric->config.host->token_mac(mac, text, 8 + HANDSHAKE_SIGNED);
    memcpy(&session, mac, sizeof session);
    return session | 1; /* never 0, which means no session */
}

static void begin_session(struct fabric_link *link)
{
    link->rdm.session_out = derive_secret(link, (uint32_t)link->fabric->config.rank);
    link->rdm.session_in = derive_secret(link, (uint32_t)link->rank);
    link->rdm.sent = link->rdm.received = 0;
}

static void set_state(struct fabric_link *link, enum fabric_state state)
{
    fabric_set_state(link, state);
    rdm_end_probe(link);
    link->rdm.refused = false;
    link->rdm.quiet_ticks = link->rdm.silent_ticks = 0;
}

/* ---- client -------------------------------------------------------------------------------------------------- */

static void *name_of(const struct fabric *fabric, int32_t rank)
{
    return fabric->rdm.names + (size_t)rank * rdm_name_words(fabric);
}

/* Inserts the peer's name into the provider's address vector. */
static int insert_address(struct fabric_link *link)
{
    struct fid_av *av = link->fabric->rdm.av;
    const void *name = name_of(link->fabric, link->rank);
    size_t bytes = sizeof link->address_text;
    fi_av_straddr(av, name, link->address_text, &bytes);
    int n = fi_av_insert(av, name, 1, &link->rdm.address, 0, NULL);
    link->rdm.has_address = n == 1;
    return n == 1 ? TUTTI_OK : fabric_fail(link->fabric, "fi_av_insert", n < 0 ? n : -FI_EINVAL);
}

/* Stores a name.  Returns false if it has another length, as names of most other providers have. */
static bool read_name(struct fabric *fabric, int32_t rank, const struct wire_name *name)
{
    if (name->bytes != fabric->rdm.name_bytes) return false;
    fabric->addresses[rank] = name->host;
    memcpy(name_of(fabric, rank), name->name, name->bytes);
    return true;
}

bool rdm_read_entry(struct fabric *fabric, int32_t rank, const uint8_t *entry, size_t bytes)
{
    struct wire_name name;
    return wire_name_parse(entry, bytes, &name) && read_name(fabric, rank, &name);
}

/* Starts to connect.  The higher rank gives the lower one time to connect first, because crossing requests cost more
 * than this delay.  They do no harm: ofi_rxm ends one of its two connections and refuses messages until the other one
 * is up. */
int rdm_connect(struct fabric_link *link)
{
    enum { DELAY_MS = 20 };
    struct fabric *fabric = link->fabric;
    int status = fabric_look_up(fabric, link->rank);
    if (status == TUTTI_OK && !link->rdm.has_address) status = insert_address(link);
    if (status != TUTTI_OK) return status;
    fabric_start_handshake(link);
    set_state(link, FABRIC_CONNECTING);
    link->rdm.hello_due = true;
    link->rdm.hello_ns = fabric->config.host->now_ns();
    if (link->rank < fabric->config.rank) link->rdm.hello_ns += (int64_t)DELAY_MS * 1000000;
    rdm_flush(link);
    return TUTTI_OK;
}

static int send_hello(struct fabric_link *link)
{
    struct fabric *fabric = link->fabric;
    if (link->rdm.hello_ns > fabric->config.host->now_ns()) {
        fabric->rdm.retry = true;
        return -FI_EAGAIN;
    }
    uint8_t text[HELLO_SIGNED + HANDSHAKE_MAC];
    size_t n = HANDSHAKE_BYTES;
    peer_handshake_sign(fabric->config.host, &link->handshake, text);
    memcpy(text + n, fabric->entry, fabric->entry_bytes);
    n += fabric->entry_bytes;
    fabric->config.host->token_mac(text + n, text, n);
    struct rdm_parts parts = {.first = text, .first_bytes = n + HANDSHAKE_MAC};
    return rdm_post(link, (struct wire_envelope){.kind = WIRE_HELLO}, &parts, NULL);
}

static int send_welcome(struct fabric_link *link)
{
    uint8_t text[HANDSHAKE_BYTES];
    link->handshake.kind = HANDSHAKE_ACCEPT;
    peer_handshake_sign(link->fabric->config.host, &link->handshake, text);
    struct rdm_parts parts = {.first = text, .first_bytes = sizeof text};
    return rdm_post(link, (struct wire_envelope){.kind = WIRE_WELCOME}, &parts, NULL);
}

/* Sends the handshake messages and heartbeats that are due, if the provider has space. */
int rdm_send_due(struct fabric_link *link)
{
    struct rdm_link *rdm = &link->rdm;
    const struct rdm_parts empty = {0};
    int status = 0;
    if (rdm->hello_due && (status = send_hello(link)) == 0) rdm->hello_due = false;
    if (rdm->welcome_due && (status = send_welcome(link)) == 0) rdm->welcome_due = false;
    if (rdm->heartbeat_due &&
        (status = rdm_post(link, (struct wire_envelope){.kind = WIRE_HEARTBEAT}, &empty, NULL)) == 0)
        rdm->heartbeat_due = false;
    return status;
}

/* ---- server -------------------------------------------------------------------------------------------------- */

/* True if the data are a HELLO to this rank that proves the token.  Parses the client's entry into *name. */
static bool is_hello(const struct fabric *fabric, const uint8_t *data, size_t n, struct peer_handshake *handshake,
                     struct wire_name *name)
{
    uint8_t mac[HANDSHAKE_MAC];
    if (n <= HANDSHAKE_BYTES + HANDSHAKE_MAC || n > HELLO_SIGNED + HANDSHAKE_MAC) return false;
    size_t covered = n - HANDSHAKE_MAC;
    fabric->config.host->token_mac(mac, data, covered);
    return fabric->config.host->token_equal(mac, data + covered) &&
           fabric_verify_handshake(fabric, data, HANDSHAKE_BYTES, HANDSHAKE_CONNECT, handshake) &&
           fabric_is_for_this_rank(fabric, handshake) &&
           wire_name_parse(data + HANDSHAKE_BYTES, covered - HANDSHAKE_BYTES, name);
}

static void accept_hello(struct fabric_link *link, const struct peer_handshake *handshake, const struct wire_name *name)
{
    if (!link->rdm.has_address && (!read_name(link->fabric, link->rank, name) || insert_address(link) != TUTTI_OK))
        return;
    link->handshake = *handshake;
    begin_session(link);
    set_state(link, FABRIC_ACCEPTING);
    link->rdm.hello_due = false;
    link->rdm.welcome_due = true;
    rdm_flush(link);
}

static void handle_hello(struct fabric *fabric, const struct peer_handshake *handshake, const struct wire_name *name)
{
    struct fabric_link *link = fabric_make_link(fabric, (int32_t)handshake->from);
    if (link == NULL) return; /* out of memory; the peer will repeat its HELLO */
    bool crossed = link->state == FABRIC_CONNECTING && link->rank < fabric->config.rank;
    if (link->state == FABRIC_IDLE || crossed) {
        accept_hello(link, handshake, name);
    } else if (link->state == FABRIC_ACCEPTING &&
               fabric_is_answer(&link->handshake, handshake)) { /* the WELCOME was lost */
        link->rdm.welcome_due = true;
        rdm_flush(link);
    }
}

static void handle_welcome(struct fabric_link *link)
{
    begin_session(link);
    set_state(link, FABRIC_UP);
    link->rdm.hello_due = false;
    link->rdm.heartbeat_due = true; /* the peer may send once it has received a heartbeat */
    rdm_flush(link);
}

void rdm_handle_handshake(struct fabric *fabric, const struct wire_envelope *envelope, const uint8_t *data, size_t n)
{
    struct fabric_link *link = fabric->link[envelope->from];
    struct peer_handshake handshake;
    struct wire_name name;
    if (envelope->kind == WIRE_HELLO && is_hello(fabric, data, n, &handshake, &name) &&
        handshake.from == envelope->from)
        handle_hello(fabric, &handshake, &name);
    else if (envelope->kind == WIRE_WELCOME && link != NULL && link->state == FABRIC_CONNECTING &&
             fabric_verify_handshake(fabric, data, n, HANDSHAKE_ACCEPT, &handshake) &&
             fabric_is_answer(&link->handshake, &handshake))
        handle_welcome(link);
    else
        TUTTI_LOG_AS(fabric->config.host, "net", 3,
                     "tcp: dropped a handshake from rank %u that did not prove the job's token, or a duplicate",
                     envelope->from);
}

/* ---- link ---------------------------------------------------------------------------------------------------- */

/* True if the envelope has its link's secret and a sequence number that is due.  Drops the link for other numbers. */
bool rdm_belongs_to_link(struct fabric *fabric, const struct wire_envelope *envelope)
{
    struct fabric_link *link = fabric->link[envelope->from];
    bool is_open = link != NULL && (link->state == FABRIC_UP || link->state == FABRIC_ACCEPTING);
    if (!is_open || envelope->session != link->rdm.session_in) {
        TUTTI_LOG_AS(fabric->config.host, "net", 3,
                     "tcp: dropped a message without its link's secret; its envelope names rank %u", envelope->from);
        return false;
    }
    link->rdm.has_received = true;
    if (envelope->sequence - link->rdm.received - 1 < RDM_WINDOW)
        return true; /* the difference wraps, so earlier numbers fail too */
    fabric_drop(fabric, link->rank, LOST_MESSAGES, true);
    return false;
}

/* Counts a message that is delivered in its turn.  The first one completes the server's handshake. */
void rdm_count_received(struct fabric_link *link)
{
    link->rdm.received++;
    link->rdm.has_advanced = true;
    if (link->state != FABRIC_ACCEPTING) return;
    set_state(link, FABRIC_UP);
    rdm_flush(link);
}

/* Ends the link.  Notifies the peer if that is possible without waiting.  The provider returns its buffers later. */
void rdm_end(struct fabric_link *link)
{
    const struct rdm_parts empty = {0};
    struct rdm_buffer *buffer;
    TAILQ_FOREACH(buffer, &link->rdm.in_flight, entry) buffer->write = NULL;
    rdm_end_probe(link);
    rdm_end_readings(link);
    rdm_end_offers(link);
    if (link->state == FABRIC_UP) rdm_post(link, (struct wire_envelope){.kind = WIRE_END}, &empty, NULL);
    link->rdm.hello_due = link->rdm.welcome_due = link->rdm.heartbeat_due = false;
}

static void drop_silent(struct fabric_link *link)
{
    char why[96];
    if (link->state != FABRIC_UP) {
        snprintf(why, sizeof why, "no answer for %d s (it has left or died, or its job token differs)",
                 3 * link->fabric->silent_ms / 1000);
        fabric_fail_connecting(link, why);
        return;
    }
    snprintf(why, sizeof why, "no heartbeat for %d s (TUTTI_SILENT_MS)", link->fabric->silent_ms / 1000);
    fabric_drop(link->fabric, link->rank, why, true);
}

static void tick_link(struct fabric_link *link)
{
    struct rdm_link *rdm = &link->rdm;
    rdm->quiet_ticks = rdm->has_sent ? 0 : rdm->quiet_ticks + 1;
    rdm->silent_ticks = rdm->has_received ? 0 : rdm->silent_ticks + 1;
    rdm->stuck_ticks = rdm->has_advanced || STAILQ_EMPTY(&rdm->early) ? 0 : rdm->stuck_ticks + 1;
    rdm->has_sent = rdm->has_received = rdm->has_advanced = false;
    if (rdm->silent_ticks >= (link->state == FABRIC_UP ? SUSPECT_TICKS : 0) && rdm_has_exited(link)) {
        fabric_fail_connecting(link, "connection refused (its process has exited or left)");
        return;
    }
    if (rdm->silent_ticks >= (link->state == FABRIC_UP ? SILENT_TICKS : CONNECT_TICKS)) {
        drop_silent(link);
        return;
    }
    if (rdm->stuck_ticks >= SILENT_TICKS) {
        fabric_drop(link->fabric, link->rank, LOST_MESSAGES, true);
        return;
    }
    if (rdm->quiet_ticks < RDM_HEARTBEAT_TICKS) return;
    rdm->quiet_ticks = 0;
    rdm->heartbeat_due = link->state == FABRIC_UP;
    rdm->hello_due = link->state == FABRIC_CONNECTING;
    rdm_flush(link);
}

void rdm_tick(struct fabric *fabric)
{
    rdm_accept_probes(fabric);
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        if (link->state == FABRIC_UP || fabric_is_connecting(link)) tick_link(link);
    }
}
