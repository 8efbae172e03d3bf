/* Stands in for the redis store in a build without hiredis. */
#include "base/error.h"
#include "store/store_impl.h"

int tutti_store_redis_sized(const char *url, const tutti_store_opts *opts, size_t opts_bytes, tutti_store **store)
{
    (void)url;
    (void)opts;
    (void)opts_bytes;
    if (store != NULL) *store = NULL;
    return error_set(TUTTI_ERR_UNSUPPORTED,
                     "redis store: this libtutti was built without hiredis; install it (Debian: libhiredis-dev), "
                     "configure and build again, or use tcp:// or file://");
}
