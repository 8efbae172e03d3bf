/* The host services by which backends read the store, with an eye on the processes of the ranks that write it. */
#ifndef HOST_STORE_H
#define HOST_STORE_H

#include <tutti/store.h>

struct tutti_group;

/* This thread opens a backend of group; NULL: no more.  While it waits in the store for another rank's entry, its wait
 * ends with PEER_LOST if a rank's process has ended (liveness.h). */
void host_store_set_opening(struct tutti_group *group);

/* See tutti_host. */
int host_store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                   int64_t timeout_ms);
int host_store_gather(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                      int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms);

#endif
