/* Who is who: the address book in the store, and greetings, which prove both sides to each other.
 *
 * A rank publishes its address together with a nonce.  Who calls sends a nonce of its own and an authentication
 * code over both, the ranks and the family under the job's token; the callee answers with a code over the same of
 * another kind.  So both prove that they hold the token, for this callee and this call alone. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp/base/bytes.h"
#include "tcp/net/fabric_impl.h"

/* The address book: one value, to which each rank appends a record, rank and size (little-endian) before its entry. */
enum { BOOK_HEADER = 8 };
static const char book_key[] = "tcp/addresses";

/* Appends this rank's record to the address book.  All ranks' are there once all have opened. */
int fabric_publish(struct fabric *fabric)
{
    const tutti_host *host = fabric->config.host;
    uint8_t record[BOOK_HEADER + WIRE_ENTRY_MAX];
    if (!TUTTI_HAS(host, store_append))
        return host->error(TUTTI_ERR_BACKEND, "this tcp plug-in needs a newer libtutti: it cannot append to the store");
    put_u32(record, (uint32_t)fabric->config.rank);
    put_u32(record + 4, (uint32_t)fabric->entry_bytes);
    memcpy(record + BOOK_HEADER, fabric->entry, fabric->entry_bytes);
    return host->store_append(fabric->config.store, book_key, record, BOOK_HEADER + fabric->entry_bytes);
}

static bool is_known(const struct fabric *fabric, int32_t rank)
{
    return fabric->addresses[rank].family != 0;
}

/* Takes the address book's records.  False: they are not what ranks of this version write. */
static bool take_book(struct fabric *fabric, const uint8_t *book, size_t bytes)
{
    while (bytes >= BOOK_HEADER) {
        uint32_t rank = get_u32(book), n = get_u32(book + 4);
        book += BOOK_HEADER;
        bytes -= BOOK_HEADER;
        if (rank >= (uint32_t)fabric->config.world_size || n > bytes || n > WIRE_ENTRY_MAX) return false;
        if (!is_known(fabric, (int32_t)rank) && !fabric->kind->take_entry(fabric, (int32_t)rank, book, n)) return false;
        book += n;
        bytes -= n;
    }
    return bytes == 0;
}

/* Reads all ranks' addresses in one request. */
static int read_book(struct fabric *fabric, int64_t limit_ms)
{
    const tutti_host *host = fabric->config.host;
    size_t bytes = 0, capacity = (size_t)fabric->config.world_size * (BOOK_HEADER + WIRE_ENTRY_MAX);
    uint8_t *book = malloc(capacity);
    if (book == NULL)
        return host->error(TUTTI_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", fabric->config.world_size);
    int status = host->store_get(fabric->config.store, book_key, book, capacity, &bytes, limit_ms);
    if (status == TUTTI_OK && !take_book(fabric, book, bytes))
        status = host->error(TUTTI_ERR_STORE,
                             "the store's entry %s holds an address that this rank does not understand: do all ranks "
                             "run the same version of Tutti, with the same TUTTI_FABRIC_PROVIDER?",
                             book_key);
    free(book);
    return status;
}

int fabric_look_up(struct fabric *fabric, int32_t rank)
{
    enum { LIMIT_MS = 10000, NAP_US = 5000 }; /* a store that does not answer must not hold us for long */
    const tutti_host *host = fabric->config.host;
    int64_t limit_ms = fabric->config.timeout_ms < LIMIT_MS ? fabric->config.timeout_ms : LIMIT_MS;
    int64_t end_ns = host->now_ns() + limit_ms * 1000000;
    while (!is_known(fabric, rank)) { /* once at most, but for a caller that does not wait until all have opened */
        int status = read_book(fabric, limit_ms);
        if (status != TUTTI_OK) return status;
        if (is_known(fabric, rank)) break;
        if (host->now_ns() > end_ns) return host->error(TUTTI_ERR_STORE, "rank %d has no address in the store", rank);
        usleep(NAP_US);
    }
    return TUTTI_OK;
}

/* A new call to a peer that was looked up. */
void fabric_greet(struct fabric_link *link)
{
    const struct fabric *fabric = link->fabric;
    link->greeting = (struct peer_handshake){.kind = HANDSHAKE_CONNECT,
                                             .from = (uint32_t)fabric->config.rank,
                                             .to = (uint32_t)link->rank,
                                             .world_size = (uint32_t)fabric->config.world_size,
                                             .family = fabric->config.family};
    fabric->config.host->random(link->greeting.client_nonce, HANDSHAKE_NONCE);
    memcpy(link->greeting.server_nonce, fabric->addresses[link->rank].nonce, HANDSHAKE_NONCE);
}

/* Is this a greeting of this kind, between two of this family, by someone who knows the token? */
bool fabric_verify(const struct fabric *fabric, const void *data, size_t n, enum peer_handshake_kind kind,
                   struct peer_handshake *greeting)
{
    if (!peer_handshake_parse(data, n, greeting) || greeting->kind != kind) return false;
    if (greeting->world_size != (uint32_t)fabric->config.world_size || greeting->family != fabric->config.family)
        return false;
    return peer_handshake_is_authentic(fabric->config.host, data, greeting);
}

/* The answer to what we asked on this link. */
bool fabric_is_answer(const struct fabric_link *link, const struct peer_handshake *greeting)
{
    const struct peer_handshake *asked = &link->greeting;
    return greeting->from == asked->from && greeting->to == asked->to &&
           memcmp(greeting->client_nonce, asked->client_nonce, HANDSHAKE_NONCE) == 0 &&
           memcmp(greeting->server_nonce, asked->server_nonce, HANDSHAKE_NONCE) == 0;
}

bool fabric_is_for_us(const struct fabric *fabric, const struct peer_handshake *greeting)
{
    return greeting->to == (uint32_t)fabric->config.rank &&
           memcmp(greeting->server_nonce, fabric->address.nonce, HANDSHAKE_NONCE) == 0;
}
