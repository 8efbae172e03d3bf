#include "tcp/p2p/kinds.h"

_Static_assert((int)KINDS <= (int)TRANSPORT_KINDS, "transports keep the other kinds to themselves");

/* Bits for the header fields that a kind uses. */
enum {
    GROUP = 1,
    TAG = 2,
    BYTES = 4,
    PRINT = 8,
    ID = 16,
    REF = 32,
    REF_OR_0 = 64,
    PAYLOAD = 128,
    FLAGS = 256,
    PARTS = 512
};

static const uint16_t used_fields[KINDS] = {
    [KIND_EAGER] = GROUP | TAG | BYTES | PRINT | REF_OR_0 | PAYLOAD,
    [KIND_RTS] = GROUP | TAG | BYTES | PRINT | ID,
    [KIND_CTS] = GROUP | TAG | BYTES | PRINT | ID | REF_OR_0 | PARTS,
    [KIND_NACK_SEND] = BYTES | PRINT | REF | FLAGS,
    [KIND_NACK_RECV] = BYTES | PRINT | REF | FLAGS,
    [KIND_CREDIT] = 0,
    [KIND_CONTROL] = GROUP | BYTES | PAYLOAD,
    [KIND_BYE] = 0,
    [KIND_REVOKE] = REF,
    [KIND_REVOKED] = REF,
    [KIND_CANCEL_RTS] = REF,
    [KIND_RTS_READ] = GROUP | TAG | BYTES | PRINT | ID | REF | FLAGS,
    [KIND_CANCEL_READ] = REF,
    [KIND_FIN] = REF | FLAGS,
};

/* A small message has one part, so every part has bytes. */
static unsigned max_flags(const struct transport_header *h, unsigned used)
{
    if (used & PARTS) return h->bytes > TRANSPORT_PAYLOAD_MAX ? TRANSPORT_PARTS_MAX - 1 : 0;
    return used & FLAGS ? KIND_WITHDRAWN : 0;
}

bool kind_is_valid(const struct transport_header *h, size_t payload, uint32_t world_size)
{
    if (h->kind == KIND_EAGER) /* a fast path of the checks below: nearly all messages are eager */
        return h->source < world_size && h->bytes == payload && payload <= TRANSPORT_PAYLOAD_MAX && h->flags == 0 &&
               h->id == 0;
    if (h->kind == 0 || h->kind >= KINDS || h->source >= world_size) return false;
    unsigned used = used_fields[h->kind];
    if (!(used & GROUP) && h->group != 0) return false;
    if (!(used & TAG) && h->tag != 0) return false;
    if (!(used & BYTES) && h->bytes != 0) return false;
    if (!(used & PRINT) && h->fingerprint != 0) return false;
    if (h->flags > max_flags(h, used)) return false;
    if (used & ID ? h->id == 0 : h->id != 0) return false;
    if (used & REF ? h->ref == 0 : !(used & REF_OR_0) && h->ref != 0) return false;
    if (h->bytes > INT64_MAX) return false;
    if (!(used & PAYLOAD)) return payload == 0;
    uint64_t max = h->kind == KIND_CONTROL ? KIND_CONTROL_MAX : TRANSPORT_PAYLOAD_MAX;
    return h->bytes <= max && payload == h->bytes;
}
