/* The key-value table: keys, values, and the effect of each operation.  It has no threads, clock or I/O.  Memory
 * stores, tcp servers and file stores all apply their requests here, so their semantics cannot differ. */
#ifndef STORE_TABLE_H
#define STORE_TABLE_H

#include "store/store_impl.h"

struct table {
    struct table_entry *entries;
    size_t bytes, max_bytes; /* all keys and values, including the overhead per entry */
    int64_t
        n_requests; /* served by the store; its owner counts them, because one request may be applied several times */
};

/* Applies the request.  Returns true if done, with the outcome in the reply.  Returns false if the operation must wait
 * for key *missing of the request; the table is unchanged. */
bool table_apply(struct table *table, const struct store_request *request, struct store_reply *reply, int *missing);

/* Builds the TIMEOUT reply of a request whose deadline passed; names the missing keys. */
void table_timeout(const struct table *table, const struct store_request *request, struct store_reply *reply);

void table_free(struct table *table);

#endif
