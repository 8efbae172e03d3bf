/* The host services by which backends read the store while the processes of the other ranks are watched. */
#ifndef HOST_STORE_H
#define HOST_STORE_H

#include <tutti/store.h>

struct tutti_group;

/* Sets the group whose backend this thread opens, or NULL after that.  While the thread waits in the store for another
 * rank's entry, the wait ends with PEER_LOST if a rank's process has ended (liveness.h). */
void host_store_set_opening(struct tutti_group *group);

/* See tutti_host. */
int host_store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                   int64_t timeout_ms);
int host_store_gather(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                      int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms);

#endif
