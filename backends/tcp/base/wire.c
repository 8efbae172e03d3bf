#include "tcp/base/wire.h"

#include <string.h>

enum {
    MAGIC = 0x7554,                                 /* "Tu" */
    ENVELOPE_MAGIC = 0x6554,                        /* "Te" */
    NAME_AT = WIRE_ADDRESS,                         /* in an entry */
    PROTOCOL = WIRE_VERSION << 24 | WIRE_EAGER / 64 /* must be the same on both sides */
};

static const char GREETING_MAGIC[8] = {'T', 'U', 'T', 'T', 'I', 't', 'c', 'p'};
static const char NAME_MAGIC[8] = {'T', 'U', 'T', 'T', 'I', 'r', 'd', 'm'};
static const char ADDRESS_MAGIC[8] = {'T', 'U', 'T', 'T', 'I', 'a', 'd', 'r'};

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)v);
    put16(p + 2, (uint16_t)(v >> 16));
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

/* What each kind uses; everything else must be zero. */
enum { GROUP = 1, TAG = 2, BYTES = 4, PRINT = 8, ID = 16, REF = 32, REF_OR_0 = 64, PAYLOAD = 128, FLAGS = 256 };

static const uint16_t uses[WIRE_KINDS] = {
    [WIRE_EAGER_DATA] = GROUP | TAG | BYTES | PRINT | REF_OR_0 | PAYLOAD,
    [WIRE_RTS] = GROUP | TAG | BYTES | PRINT | ID,
    [WIRE_CTS] = GROUP | TAG | BYTES | PRINT | ID | REF_OR_0,
    [WIRE_NACK_SEND] = BYTES | PRINT | REF | FLAGS,
    [WIRE_NACK_RECV] = BYTES | PRINT | REF | FLAGS,
    [WIRE_CREDIT] = 0,
    [WIRE_NOTE_DATA] = GROUP | BYTES | PAYLOAD,
    [WIRE_BYE] = 0,
    [WIRE_REVOKE] = REF,
    [WIRE_REVOKED] = REF,
    [WIRE_UNASK] = REF,
    [WIRE_OFFER] = GROUP | TAG | BYTES | PRINT | ID | REF,
    [WIRE_UNOFFER] = REF,
    [WIRE_FIN] = BYTES | REF | FLAGS,
    [WIRE_STREAM] = BYTES | ID | REF,
};

void wire_encode(uint8_t out[WIRE_HEADER], const struct wire_header *header)
{
    put16(out, MAGIC);
    out[2] = (uint8_t)(WIRE_VERSION << 4 | header->kind);
    out[3] = header->flags;
    put32(out + 4, header->source);
    put64(out + 8, header->group);
    put64(out + 16, header->tag);
    put64(out + 24, header->bytes);
    put64(out + 32, header->fingerprint);
    put64(out + 40, header->id);
    put64(out + 48, header->ref);
    put64(out + 56, header->credit);
}

bool wire_is_valid(const struct wire_header *h, size_t payload, uint32_t world_size)
{
    if (h->kind == WIRE_EAGER_DATA) /* as below, but nearly all are of this kind */
        return h->source < world_size && h->bytes == payload && payload <= WIRE_EAGER && h->flags == 0 && h->id == 0;
    if (h->kind == 0 || h->kind >= WIRE_KINDS || h->source >= world_size) return false;
    unsigned used = uses[h->kind];
    if (!(used & GROUP) && h->group != 0) return false;
    if (!(used & TAG) && h->tag != 0) return false;
    if (!(used & BYTES) && h->bytes != 0) return false;
    if (!(used & PRINT) && h->fingerprint != 0) return false;
    if (!(used & FLAGS) ? h->flags != 0 : h->flags > WIRE_TAKEN_BACK) return false;
    if (used & ID ? h->id == 0 : h->id != 0) return false;
    if (used & REF ? h->ref == 0 : !(used & REF_OR_0) && h->ref != 0) return false;
    if (h->bytes > INT64_MAX) return false;
    if (!(used & PAYLOAD)) return payload == 0;
    uint64_t most = h->kind == WIRE_NOTE_DATA ? WIRE_NOTE : WIRE_EAGER;
    return h->bytes <= most && payload == h->bytes;
}

bool wire_parse(const void *message, size_t n, uint32_t world_size, struct wire_header *header)
{
    const uint8_t *p = message;
    if (n < WIRE_HEADER || get16(p) != MAGIC || p[2] >> 4 != WIRE_VERSION) return false;
    header->kind = p[2] & 15;
    header->flags = p[3];
    header->source = get32(p + 4);
    header->group = get64(p + 8);
    header->tag = get64(p + 16);
    header->bytes = get64(p + 24);
    header->fingerprint = get64(p + 32);
    header->id = get64(p + 40);
    header->ref = get64(p + 48);
    header->credit = get64(p + 56);
    return wire_is_valid(header, n - WIRE_HEADER, world_size);
}

/* ---- greetings and addresses ------------------------------------------------------------------------------- */

void wire_greeting_encode(uint8_t out[WIRE_GREETING], const struct wire_greeting *greeting)
{
    memcpy(out, GREETING_MAGIC, 8);
    put32(out + 8, PROTOCOL);
    put32(out + 12, greeting->kind);
    put32(out + 16, greeting->from);
    put32(out + 20, greeting->to);
    put32(out + 24, greeting->world_size);
    put32(out + 28, 0);
    put64(out + 32, greeting->family);
    memcpy(out + 40, greeting->client_nonce, WIRE_NONCE);
    memcpy(out + 56, greeting->server_nonce, WIRE_NONCE);
    memcpy(out + 72, greeting->mac, WIRE_MAC);
}

bool wire_greeting_parse(const void *data, size_t n, struct wire_greeting *greeting)
{
    const uint8_t *p = data;
    if (n != WIRE_GREETING || memcmp(p, GREETING_MAGIC, 8) != 0) return false;
    if (get32(p + 8) != PROTOCOL || get32(p + 28) != 0) return false;
    greeting->kind = get32(p + 12);
    greeting->from = get32(p + 16);
    greeting->to = get32(p + 20);
    greeting->world_size = get32(p + 24);
    greeting->family = get64(p + 32);
    memcpy(greeting->client_nonce, p + 40, WIRE_NONCE);
    memcpy(greeting->server_nonce, p + 56, WIRE_NONCE);
    memcpy(greeting->mac, p + 72, WIRE_MAC);
    if (greeting->kind < WIRE_CONNECT || greeting->kind > WIRE_BUSY) return false;
    return greeting->from < greeting->world_size && greeting->to < greeting->world_size &&
           greeting->from != greeting->to;
}

void wire_address_encode(uint8_t out[WIRE_ADDRESS], const struct wire_address *address)
{
    memset(out, 0, WIRE_ADDRESS);
    memcpy(out, ADDRESS_MAGIC, 8);
    put32(out + 8, WIRE_VERSION);
    put32(out + 12, address->family);
    put32(out + 16, address->port);
    memcpy(out + 24, address->ip, sizeof address->ip);
    memcpy(out + 40, address->nonce, WIRE_NONCE);
}

bool wire_address_parse(const void *data, size_t n, struct wire_address *address)
{
    static const uint8_t none[12];
    const uint8_t *p = data;
    if (n != WIRE_ADDRESS || memcmp(p, ADDRESS_MAGIC, 8) != 0 || get32(p + 8) != WIRE_VERSION) return false;
    address->family = get32(p + 12);
    uint32_t port = get32(p + 16);
    if (port == 0 || port > 65535 || get32(p + 20) != 0) return false;
    address->port = (uint16_t)port;
    memcpy(address->ip, p + 24, sizeof address->ip);
    memcpy(address->nonce, p + 40, WIRE_NONCE);
    if (address->family == 4) return memcmp(address->ip + 4, none, sizeof none) == 0;
    return address->family == 6;
}

/* ---- datagrams --------------------------------------------------------------------------------------------- */

size_t wire_name_encode(uint8_t out[WIRE_ENTRY_MOST], const struct wire_name *name)
{
    memset(out, 0, NAME_AT);
    memcpy(out, NAME_MAGIC, 8);
    put32(out + 8, WIRE_VERSION);
    put32(out + 12, name->host.family);
    put32(out + 16, (uint32_t)name->bytes);
    put32(out + 20, name->host.port);
    memcpy(out + 24, name->host.ip, sizeof name->host.ip);
    memcpy(out + 40, name->host.nonce, WIRE_NONCE);
    memcpy(out + NAME_AT, name->name, name->bytes);
    return NAME_AT + name->bytes;
}

bool wire_name_parse(const void *data, size_t n, struct wire_name *name)
{
    const uint8_t *p = data;
    if (n <= NAME_AT || n > WIRE_ENTRY_MOST || memcmp(p, NAME_MAGIC, 8) != 0) return false;
    if (get32(p + 8) != WIRE_VERSION || get32(p + 16) != n - NAME_AT || get32(p + 20) > UINT16_MAX) return false;
    name->host.family = get32(p + 12);
    name->host.port = (uint16_t)get32(p + 20);
    memcpy(name->host.ip, p + 24, sizeof name->host.ip);
    memcpy(name->host.nonce, p + 40, WIRE_NONCE);
    name->bytes = n - NAME_AT;
    memcpy(name->name, p + NAME_AT, name->bytes);
    return name->host.family == 4 || name->host.family == 6;
}

void wire_envelope_encode(uint8_t out[WIRE_ENVELOPE], const struct wire_envelope *envelope)
{
    put16(out, ENVELOPE_MAGIC);
    out[2] = WIRE_VERSION;
    out[3] = envelope->kind;
    put32(out + 4, envelope->from);
    put64(out + 8, envelope->session);
    put64(out + 16, envelope->sequence);
    put64(out + 24, envelope->key);
    put64(out + 32, envelope->offset);
}

bool wire_envelope_parse(const void *data, size_t n, uint32_t world_size, struct wire_envelope *envelope)
{
    const uint8_t *p = data;
    if (n < WIRE_ENVELOPE || get16(p) != ENVELOPE_MAGIC || p[2] != WIRE_VERSION) return false;
    envelope->kind = p[3];
    envelope->from = get32(p + 4);
    envelope->session = get64(p + 8);
    envelope->sequence = get64(p + 16);
    envelope->key = get64(p + 24);
    envelope->offset = get64(p + 32);
    if (envelope->kind == 0 || envelope->kind >= WIRE_ENVELOPES || envelope->from >= world_size) return false;
    bool greets = envelope->kind == WIRE_HELLO || envelope->kind == WIRE_WELCOME;
    if (greets != (envelope->sequence == 0) || (greets && envelope->session != 0)) return false;
    if ((envelope->kind == WIRE_PIECE) != (envelope->key != 0)) return false;
    if (envelope->kind != WIRE_PIECE && envelope->offset != 0) return false;
    bool bare = envelope->kind == WIRE_BEAT || envelope->kind == WIRE_END;
    return !bare || n == WIRE_ENVELOPE;
}
