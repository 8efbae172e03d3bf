#include "tcp/base/peer_handshake.h"

#include <string.h>

#include "tcp/base/bytes.h"
#include "tcp/base/transport.h"

enum { PROTOCOL = TRANSPORT_VERSION << 24 | TRANSPORT_PAYLOAD_MAX / 64 };

static const char handshake_magic[8] = {'T', 'U', 'T', 'T', 'I', 't', 'c', 'p'};

void peer_handshake_encode(uint8_t out[HANDSHAKE_BYTES], const struct peer_handshake *handshake)
{
    memcpy(out, handshake_magic, 8);
    put_u32(out + 8, PROTOCOL);
    put_u32(out + 12, handshake->kind);
    put_u32(out + 16, handshake->from);
    put_u32(out + 20, handshake->to);
    put_u32(out + 24, handshake->world_size);
    put_u32(out + 28, 0);
    put_u64(out + 32, handshake->tree_id);
    memcpy(out + 40, handshake->client_nonce, HANDSHAKE_NONCE);
    memcpy(out + 56, handshake->server_nonce, HANDSHAKE_NONCE);
    memcpy(out + 72, handshake->mac, HANDSHAKE_MAC);
}

bool peer_handshake_parse(const void *data, size_t n, struct peer_handshake *handshake)
{
    const uint8_t *p = data;
    if (n != HANDSHAKE_BYTES || memcmp(p, handshake_magic, 8) != 0) return false;
    if (get_u32(p + 8) != PROTOCOL || get_u32(p + 28) != 0) return false;
    handshake->kind = get_u32(p + 12);
    handshake->from = get_u32(p + 16);
    handshake->to = get_u32(p + 20);
    handshake->world_size = get_u32(p + 24);
    handshake->tree_id = get_u64(p + 32);
    memcpy(handshake->client_nonce, p + 40, HANDSHAKE_NONCE);
    memcpy(handshake->server_nonce, p + 56, HANDSHAKE_NONCE);
    memcpy(handshake->mac, p + 72, HANDSHAKE_MAC);
    if (handshake->kind < HANDSHAKE_CONNECT || handshake->kind > HANDSHAKE_RAIL_LAST) return false;
    return handshake->from < handshake->world_size && handshake->to < handshake->world_size &&
           handshake->from != handshake->to;
}

void peer_handshake_sign(const tutti_host *host, struct peer_handshake *handshake, uint8_t out[HANDSHAKE_BYTES])
{
    peer_handshake_encode(out, handshake);
    host->token_mac(handshake->mac, out, HANDSHAKE_SIGNED);
    memcpy(out + HANDSHAKE_SIGNED, handshake->mac, HANDSHAKE_MAC);
}

bool peer_handshake_is_authentic(const tutti_host *host, const uint8_t in[HANDSHAKE_BYTES],
                                 const struct peer_handshake *handshake)
{
    uint8_t mac[HANDSHAKE_MAC];
    host->token_mac(mac, in, HANDSHAKE_SIGNED);
    return host->token_equal(mac, handshake->mac);
}
