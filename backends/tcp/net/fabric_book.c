/* The address book: one value in the store.  Each rank appends a record that holds its rank, the size of its entry, and
 * the entry. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp/base/bytes.h"
#include "tcp/net/fabric_impl.h"

enum { BOOK_HEADER = 8 };
static const char book_key[] = "tcp/addresses";

/* The book is complete once all ranks have opened their fabric. */
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

/* Stores the entries of all records.  Returns false if ranks of this version do not write such records. */
static bool read_records(struct fabric *fabric, const uint8_t *book, size_t bytes)
{
    while (bytes >= BOOK_HEADER) {
        uint32_t rank = get_u32(book), n = get_u32(book + 4);
        book += BOOK_HEADER;
        bytes -= BOOK_HEADER;
        if (rank >= (uint32_t)fabric->config.world_size || n > bytes || n > WIRE_ENTRY_MAX) return false;
        if (!is_known(fabric, (int32_t)rank) && !fabric->kind->read_entry(fabric, (int32_t)rank, book, n)) return false;
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
    if (status == TUTTI_OK && !read_records(fabric, book, bytes))
        status = host->error(TUTTI_ERR_STORE,
                             "the store's entry %s holds an address that this rank cannot read; check that all ranks "
                             "run the same version of Tutti with the same TUTTI_FABRIC_PROVIDER",
                             book_key);
    free(book);
    return status;
}

int fabric_look_up(struct fabric *fabric, int32_t rank)
{
    /* LIMIT_MS is short, so that a store that does not answer cannot block this rank for long. */
    enum { LIMIT_MS = 10000, NAP_US = 5000 };
    const tutti_host *host = fabric->config.host;
    int64_t limit_ms = fabric->config.timeout_ms < LIMIT_MS ? fabric->config.timeout_ms : LIMIT_MS;
    int64_t end_ns = host->now_ns() + limit_ms * 1000000;
    while (!is_known(fabric, rank)) { /* a second read is needed only if some ranks had not opened at the first */
        int status = read_book(fabric, limit_ms);
        if (status != TUTTI_OK) return status;
        if (is_known(fabric, rank)) break;
        if (host->now_ns() > end_ns) return host->error(TUTTI_ERR_STORE, "rank %d has no address in the store", rank);
        usleep(NAP_US);
    }
    return TUTTI_OK;
}
