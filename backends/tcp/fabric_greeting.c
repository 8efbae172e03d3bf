/* Who is who: the address book in the store, and greetings, which prove both sides to each other.
 *
 * A rank publishes its address together with a nonce.  Who calls sends a nonce of its own and an authentication
 * code over both, the ranks and the family under the job's token; the callee answers with a code over the same of
 * another kind.  So both prove that they hold the token, for this callee and this call alone. */
#include <stdio.h>
#include <string.h>

#include "fabric_impl.h"

static void name_entry(char key[32], int32_t rank)
{
    snprintf(key, 32, "tcp/%d", rank);
}

/* Other ranks read the entry when they first need us. */
int fabric_publish(struct fabric *fabric)
{
    char key[32];
    name_entry(key, fabric->config.rank);
    return fabric->config.host->store_set(fabric->config.store, key, fabric->entry, fabric->entry_bytes);
}

int fabric_look_up(struct fabric_link *link)
{
    const struct fabric *fabric = link->fabric;
    const tutti_host *host = fabric->config.host;
    char key[32];
    uint8_t entry[WIRE_ENTRY_MOST];
    size_t bytes = 0;
    /* The key is there since the peer opened its group; a store that does not answer must not hold us for long. */
    int64_t limit = fabric->config.timeout_ms < 10000 ? fabric->config.timeout_ms : 10000;
    name_entry(key, link->rank);
    int status = host->store_get(fabric->config.store, key, entry, sizeof entry, &bytes, limit);
    if (status != TUTTI_OK || fabric->kind->take_entry(link, entry, bytes)) return status;
    return host->error(TUTTI_ERR_STORE,
                       "the store's entry %s is no address that this rank understands: do all ranks run the same "
                       "version of Tutti, with the same TUTTI_FABRIC_PROVIDER?",
                       key);
}

/* A new call to a peer that was looked up. */
void fabric_greet(struct fabric_link *link)
{
    const struct fabric *fabric = link->fabric;
    link->greeting = (struct wire_greeting){.kind = WIRE_CONNECT,
                                            .from = (uint32_t)fabric->config.rank,
                                            .to = (uint32_t)link->rank,
                                            .world_size = (uint32_t)fabric->config.world_size,
                                            .family = fabric->config.family};
    fabric->config.host->random(link->greeting.client_nonce, WIRE_NONCE);
    memcpy(link->greeting.server_nonce, link->address.nonce, WIRE_NONCE);
}

void fabric_sign(const struct fabric *fabric, struct wire_greeting *greeting, uint8_t out[WIRE_GREETING])
{
    wire_greeting_encode(out, greeting);
    fabric->config.host->token_mac(greeting->mac, out, WIRE_GREETING_SIGNED);
    wire_greeting_encode(out, greeting);
}

/* Is this a greeting of this kind, between two of this family, by someone who knows the token? */
bool fabric_verify(const struct fabric *fabric, const void *data, size_t n, enum wire_greeting_kind kind,
                   struct wire_greeting *greeting)
{
    uint8_t mac[WIRE_MAC];
    if (!wire_greeting_parse(data, n, greeting) || greeting->kind != kind) return false;
    if (greeting->world_size != (uint32_t)fabric->config.world_size || greeting->family != fabric->config.family)
        return false;
    fabric->config.host->token_mac(mac, data, WIRE_GREETING_SIGNED);
    return fabric->config.host->token_equal(mac, greeting->mac);
}

/* The answer to what we asked on this link. */
bool fabric_is_answer(const struct fabric_link *link, const struct wire_greeting *greeting)
{
    const struct wire_greeting *asked = &link->greeting;
    return greeting->from == asked->from && greeting->to == asked->to &&
           memcmp(greeting->client_nonce, asked->client_nonce, WIRE_NONCE) == 0 &&
           memcmp(greeting->server_nonce, asked->server_nonce, WIRE_NONCE) == 0;
}

bool fabric_is_for_us(const struct fabric *fabric, const struct wire_greeting *greeting)
{
    return greeting->to == (uint32_t)fabric->config.rank &&
           memcmp(greeting->server_nonce, fabric->address.nonce, WIRE_NONCE) == 0;
}
