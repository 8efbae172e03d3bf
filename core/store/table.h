/* The map itself: keys, values, and what each operation does to them.  No threads, no clock, no I/O: memory stores, tcp
 * servers and file stores all apply their requests here, so that they cannot differ. */
#ifndef STORE_TABLE_H
#define STORE_TABLE_H

#include "store/store_impl.h"

struct table {
    struct table_entry *entries;
    size_t bytes, max_bytes; /* of all keys and values, with what an entry costs */
    int64_t n_requests; /* taken by the store; its owner counts, because one request may be applied several times */
};

/* Applies the request.  True: done, and the reply says how.  False: the operation must wait for the key of index
 * *missing; nothing was changed. */
bool table_apply(struct table *table, const struct store_request *request, struct store_reply *reply, int *missing);

/* The reply to a request that waited in vain: TIMEOUT, naming the keys that are missing. */
void table_timeout(const struct table *table, const struct store_request *request, struct store_reply *reply);

void table_free(struct table *table);

#endif
