#include "tcp/net/wire.h"

#include <string.h>

#include "tcp/base/bytes.h"

enum {
    MAGIC = 0x7554,          /* "Tu" */
    ENVELOPE_MAGIC = 0x6554, /* "Te" */
    NAME_AT = WIRE_ADDRESS   /* offset in an address book entry */
};

static const char name_magic[8] = {'T', 'U', 'T', 'T', 'I', 'r', 'd', 'm'};
static const char address_magic[8] = {'T', 'U', 'T', 'T', 'I', 'a', 'd', 'r'};

/* ---- messages ------------------------------------------------------------------------------------------------ */

void wire_encode(uint8_t out[WIRE_HEADER], const struct transport_header *header)
{
    put_u16(out, MAGIC);
    out[2] = (uint8_t)(TRANSPORT_VERSION << 4 | header->kind);
    out[3] = header->flags;
    put_u32(out + 4, header->source);
    put_u64(out + 8, header->group);
    put_u64(out + 16, header->tag);
    put_u64(out + 24, header->bytes);
    put_u64(out + 32, header->fingerprint);
    put_u64(out + 40, header->id);
    put_u64(out + 48, header->ref);
    put_u64(out + 56, header->credit);
}

bool wire_parse(const void *message, size_t n, struct transport_header *header)
{
    const uint8_t *p = message;
    if (n < WIRE_HEADER || get_u16(p) != MAGIC || p[2] >> 4 != TRANSPORT_VERSION) return false;
    header->kind = p[2] & (TRANSPORT_KINDS - 1);
    header->flags = p[3];
    header->source = get_u32(p + 4);
    header->group = get_u64(p + 8);
    header->tag = get_u64(p + 16);
    header->bytes = get_u64(p + 24);
    header->fingerprint = get_u64(p + 32);
    header->id = get_u64(p + 40);
    header->ref = get_u64(p + 48);
    header->credit = get_u64(p + 56);
    return true;
}

/* ---- addresses ----------------------------------------------------------------------------------------------- */

size_t wire_address_encode(uint8_t out[WIRE_ENTRY_MAX], const struct wire_address *address,
                           const struct wire_rails *rails)
{
    memset(out, 0, WIRE_ENTRY_MAX);
    memcpy(out, address_magic, 8);
    put_u32(out + 8, TRANSPORT_VERSION);
    put_u32(out + 12, address->family);
    put_u32(out + 16, address->port);
    put_u32(out + 20, rails->n);
    memcpy(out + 24, address->ip, sizeof address->ip);
    memcpy(out + 40, address->nonce, HANDSHAKE_NONCE);
    put_u64(out + 56, address->host);
    for (uint32_t i = 0; i < rails->n; i++) {
        uint8_t *at = out + WIRE_ADDRESS + i * WIRE_RAIL;
        memcpy(at, rails->at[i].ip, sizeof rails->at[i].ip);
        put_u32(at + 16, rails->at[i].port);
    }
    return WIRE_ADDRESS + rails->n * WIRE_RAIL;
}

/* True if address and port can be those of a listener. */
static bool is_endpoint(uint32_t family, const uint8_t ip[16], uint32_t port)
{
    static const uint8_t none[12];
    if (port == 0 || port > UINT16_MAX) return false;
    return family == 4 ? memcmp(ip + 4, none, sizeof none) == 0 : family == 6;
}

bool wire_address_parse(const void *data, size_t n, struct wire_address *address, struct wire_rails *rails)
{
    const uint8_t *p = data;
    if (n < WIRE_ADDRESS || memcmp(p, address_magic, 8) != 0 || get_u32(p + 8) != TRANSPORT_VERSION) return false;
    address->family = get_u32(p + 12);
    uint32_t port = get_u32(p + 16);
    rails->n = get_u32(p + 20);
    address->port = (uint16_t)port;
    memcpy(address->ip, p + 24, sizeof address->ip);
    memcpy(address->nonce, p + 40, HANDSHAKE_NONCE);
    address->host = get_u64(p + 56);
    if (rails->n > WIRE_RAILS || n != WIRE_ADDRESS + rails->n * WIRE_RAIL) return false;
    if (!is_endpoint(address->family, address->ip, port)) return false;
    for (uint32_t i = 0; i < rails->n; i++) {
        const uint8_t *at = p + WIRE_ADDRESS + i * WIRE_RAIL;
        port = get_u32(at + 16);
        memcpy(rails->at[i].ip, at, sizeof rails->at[i].ip);
        rails->at[i].port = (uint16_t)port;
        if (!is_endpoint(address->family, rails->at[i].ip, port)) return false;
    }
    return true;
}

/* ---- datagrams ----------------------------------------------------------------------------------------------- */

size_t wire_name_encode(uint8_t out[WIRE_ENTRY_MAX], const struct wire_name *name)
{
    memset(out, 0, NAME_AT);
    memcpy(out, name_magic, 8);
    put_u32(out + 8, TRANSPORT_VERSION);
    put_u32(out + 12, name->host.family);
    put_u32(out + 16, (uint32_t)name->bytes);
    put_u32(out + 20, name->host.port);
    memcpy(out + 24, name->host.ip, sizeof name->host.ip);
    memcpy(out + 40, name->host.nonce, HANDSHAKE_NONCE);
    put_u64(out + 56, name->host.host);
    memcpy(out + NAME_AT, name->name, name->bytes);
    return NAME_AT + name->bytes;
}

bool wire_name_parse(const void *data, size_t n, struct wire_name *name)
{
    const uint8_t *p = data;
    if (n <= NAME_AT || n > WIRE_ENTRY_MAX || memcmp(p, name_magic, 8) != 0) return false;
    if (get_u32(p + 8) != TRANSPORT_VERSION || get_u32(p + 16) != n - NAME_AT || get_u32(p + 20) > UINT16_MAX)
        return false;
    name->host.family = get_u32(p + 12);
    name->host.port = (uint16_t)get_u32(p + 20);
    memcpy(name->host.ip, p + 24, sizeof name->host.ip);
    memcpy(name->host.nonce, p + 40, HANDSHAKE_NONCE);
    name->host.host = get_u64(p + 56);
    name->bytes = n - NAME_AT;
    memcpy(name->name, p + NAME_AT, name->bytes);
    return name->host.family == 4 || name->host.family == 6;
}

void wire_envelope_encode(uint8_t out[WIRE_ENVELOPE], const struct wire_envelope *envelope)
{
    put_u16(out, ENVELOPE_MAGIC);
    out[2] = TRANSPORT_VERSION;
    out[3] = envelope->kind;
    put_u32(out + 4, envelope->from);
    put_u64(out + 8, envelope->session);
    put_u64(out + 16, envelope->sequence);
    put_u64(out + 24, envelope->key);
    put_u64(out + 32, envelope->offset);
}

static bool has_key(uint8_t kind)
{
    return kind == WIRE_PIECE || (kind >= WIRE_OFFER && kind <= WIRE_REFUSED);
}

/* True if nothing follows an envelope of this kind. */
static bool is_empty(uint8_t kind)
{
    return kind == WIRE_HEARTBEAT || kind == WIRE_END || (kind >= WIRE_READ && kind <= WIRE_REFUSED);
}

bool wire_envelope_parse(const void *data, size_t n, uint32_t world_size, struct wire_envelope *envelope)
{
    const uint8_t *p = data;
    if (n < WIRE_ENVELOPE || get_u16(p) != ENVELOPE_MAGIC || p[2] != TRANSPORT_VERSION) return false;
    envelope->kind = p[3];
    envelope->from = get_u32(p + 4);
    envelope->session = get_u64(p + 8);
    envelope->sequence = get_u64(p + 16);
    envelope->key = get_u64(p + 24);
    envelope->offset = get_u64(p + 32);
    if (envelope->kind == 0 || envelope->kind >= WIRE_ENVELOPES || envelope->from >= world_size) return false;
    bool is_handshake = envelope->kind == WIRE_HELLO || envelope->kind == WIRE_WELCOME;
    if (is_handshake != (envelope->sequence == 0) || (is_handshake && envelope->session != 0)) return false;
    if (has_key(envelope->kind) != (envelope->key != 0)) return false;
    if (envelope->kind != WIRE_PIECE && envelope->offset != 0) return false;
    if (envelope->kind == WIRE_OFFER) return n == WIRE_ENVELOPE + WIRE_OFFER_BODY;
    return !is_empty(envelope->kind) || n == WIRE_ENVELOPE;
}

void wire_offer_encode(uint8_t out[WIRE_OFFER_BODY], const struct wire_offer *offer)
{
    put_u64(out, offer->bytes);
    put_u64(out + 8, offer->address);
    put_u64(out + 16, offer->key);
}

bool wire_offer_parse(const void *data, size_t n, struct wire_offer *offer)
{
    const uint8_t *p = data;
    if (n != WIRE_OFFER_BODY) return false;
    offer->bytes = get_u64(p);
    offer->address = get_u64(p + 8);
    offer->key = get_u64(p + 16);
    return offer->bytes > 0 && offer->bytes <= INT64_MAX && offer->address <= UINT64_MAX - offer->bytes;
}
