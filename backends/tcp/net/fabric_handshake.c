/* Handshakes of links.  The server's nonce is in its address book entry.  The client draws a new nonce for each
 * request, so a proof is valid for one server and one request only. */
#include <string.h>

#include "tcp/net/fabric_impl.h"

void fabric_start_handshake(struct fabric_link *link)
{
    const struct fabric *fabric = link->fabric;
    link->handshake = (struct peer_handshake){.kind = HANDSHAKE_CONNECT,
                                              .from = (uint32_t)fabric->config.rank,
                                              .to = (uint32_t)link->rank,
                                              .world_size = (uint32_t)fabric->config.world_size,
                                              .tree_id = fabric->config.tree_id};
    fabric->config.host->random(link->handshake.client_nonce, HANDSHAKE_NONCE);
    memcpy(link->handshake.server_nonce, fabric->addresses[link->rank].nonce, HANDSHAKE_NONCE);
}

bool fabric_verify_handshake(const struct fabric *fabric, const void *data, size_t n, enum peer_handshake_kind kind,
                             struct peer_handshake *handshake)
{
    if (!peer_handshake_parse(data, n, handshake) || handshake->kind != kind) return false;
    if (handshake->world_size != (uint32_t)fabric->config.world_size || handshake->tree_id != fabric->config.tree_id)
        return false;
    return peer_handshake_is_authentic(fabric->config.host, data, handshake);
}

bool fabric_is_answer(const struct peer_handshake *asked, const struct peer_handshake *handshake)
{
    return handshake->from == asked->from && handshake->to == asked->to &&
           memcmp(handshake->client_nonce, asked->client_nonce, HANDSHAKE_NONCE) == 0 &&
           memcmp(handshake->server_nonce, asked->server_nonce, HANDSHAKE_NONCE) == 0;
}

bool fabric_is_for_this_rank(const struct fabric *fabric, const struct peer_handshake *handshake)
{
    return handshake->to == (uint32_t)fabric->config.rank &&
           memcmp(handshake->server_nonce, fabric->address.nonce, HANDSHAKE_NONCE) == 0;
}
