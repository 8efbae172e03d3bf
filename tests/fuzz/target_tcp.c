/* Messages, handshakes and addresses of the tcp backend. */
#include "../../backends/tcp/net/wire.h"
#include "../../backends/tcp/p2p/kinds.h"
#include "fuzz.h"
#include "targets.h"

/* Parses a message as if it came from the network. */
static bool parse_message(const uint8_t *in, size_t bytes, uint32_t world_size, struct transport_header *header)
{
    return wire_parse(in, bytes, header) && kind_is_valid(header, bytes - WIRE_HEADER, world_size);
}

void fuzz_tcp_message(const uint8_t *in, size_t bytes)
{
    struct transport_header header, again;
    uint8_t out[WIRE_HEADER + TRANSPORT_PAYLOAD_MAX];
    if (parse_message(in, bytes, UINT32_MAX, &header)) {
        FUZZ_CHECK(parse_message(in, bytes, header.source + 1, &again));
        FUZZ_CHECK(!parse_message(in, bytes, header.source, &again));
        FUZZ_CHECK(bytes <= sizeof out);
        wire_encode(out, &header);
        FUZZ_CHECK(memcmp(in, out, WIRE_HEADER) == 0);
    }
}

/* Any header is either refused or read as it was written. */
void fuzz_tcp_header(const uint8_t *in, size_t bytes)
{
    static uint8_t out[WIRE_HEADER + TRANSPORT_PAYLOAD_MAX];
    struct fuzz_bytes from = {in, in + bytes};
    struct transport_header header = {.kind = (uint8_t)(fuzz_take(&from, 1) & 15)};
    header.flags = (uint8_t)fuzz_take(&from, 1);
    size_t payload = fuzz_take(&from, 2);
    header.source = (uint32_t)fuzz_take(&from, 4);
    uint64_t *const fields[] = {&header.group, &header.tag, &header.bytes, &header.fingerprint,
                                &header.id,    &header.ref, &header.credit};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) *fields[i] = fuzz_take(&from, 8);
    wire_encode(out, &header);
    struct transport_header again = {0};
    payload = payload <= TRANSPORT_PAYLOAD_MAX ? payload : TRANSPORT_PAYLOAD_MAX;
    if (!parse_message(out, WIRE_HEADER + payload, UINT32_MAX, &again)) return;
    FUZZ_CHECK(again.kind == header.kind && again.flags == header.flags && again.source == header.source);
    FUZZ_CHECK(again.group == header.group && again.tag == header.tag && again.bytes == header.bytes);
    FUZZ_CHECK(again.fingerprint == header.fingerprint && again.credit == header.credit);
    FUZZ_CHECK(again.id == header.id && again.ref == header.ref);
    FUZZ_CHECK(payload == 0 || payload == header.bytes);
}

void fuzz_tcp_handshake(const uint8_t *in, size_t bytes)
{
    struct peer_handshake handshake = {0};
    uint8_t out[HANDSHAKE_BYTES];
    if (!peer_handshake_parse(in, bytes, &handshake)) return;
    FUZZ_CHECK(handshake.from < handshake.world_size && handshake.to < handshake.world_size);
    peer_handshake_encode(out, &handshake);
    FUZZ_CHECK(bytes == sizeof out && memcmp(in, out, bytes) == 0);
}

void fuzz_tcp_name(const uint8_t *in, size_t bytes)
{
    struct wire_name name = {0};
    uint8_t out[WIRE_ENTRY_MAX];
    if (!wire_name_parse(in, bytes, &name)) return;
    FUZZ_CHECK(name.bytes > 0 && name.bytes <= sizeof name.name);
    FUZZ_CHECK(wire_name_encode(out, &name) == bytes && memcmp(in, out, bytes) == 0);
}

void fuzz_tcp_envelope(const uint8_t *in, size_t bytes)
{
    struct wire_envelope envelope = {0};
    uint8_t out[WIRE_ENVELOPE];
    if (!wire_envelope_parse(in, bytes, UINT32_MAX, &envelope)) return;
    FUZZ_CHECK(!wire_envelope_parse(in, bytes, envelope.from, &envelope));
    wire_envelope_encode(out, &envelope);
    FUZZ_CHECK(bytes >= sizeof out && memcmp(in, out, sizeof out) == 0);
    struct wire_offer offer = {0};
    uint8_t body[WIRE_OFFER_BODY];
    if (envelope.kind != WIRE_OFFER || !wire_offer_parse(in + sizeof out, bytes - sizeof out, &offer)) return;
    FUZZ_CHECK(offer.bytes > 0 && offer.address + offer.bytes > offer.address);
    wire_offer_encode(body, &offer);
    FUZZ_CHECK(memcmp(in + sizeof out, body, sizeof body) == 0);
}

void fuzz_tcp_address(const uint8_t *in, size_t bytes)
{
    struct wire_address address = {0};
    struct wire_rails rails = {0};
    uint8_t out[WIRE_ENTRY_MAX];
    if (!wire_address_parse(in, bytes, &address, &rails)) return;
    FUZZ_CHECK(address.port != 0 && rails.n <= WIRE_RAILS);
    for (uint32_t i = 0; i < rails.n; i++) FUZZ_CHECK(rails.at[i].port != 0);
    FUZZ_CHECK(wire_address_encode(out, &address, &rails) == bytes && memcmp(in, out, bytes) == 0);
}
