/* Tutti: the key-value store through which ranks find each other.
 *
 * A store maps keys (strings, 1 to 8,192 bytes) to values (0 to 8 MiB).  Four kinds share one set of calls: tcp (one
 * server, many clients, authenticated), file (a shared path), memory (one process) and prefix (a part of another).
 *
 * Threads: any thread may call; a call that waits does not hold up the others.
 * Timeouts: timeout_ms is 0 (try once), a time, TUTTI_INFINITE, or TUTTI_DEFAULT_TIMEOUT for the store's own.
 * Processes: a forked child cannot use its parent's stores (STORE); it opens its own, and may free those it has.
 * Descriptors: where stdin, stdout or stderr is closed when a store is opened, /dev/null takes its place and stays.
 * Errors common to all calls: INVALID_ARGUMENT (NULL, a key or value over its limit), STORE (the server cannot be
 * reached, or refused: its limits, its memory cap), TIMEOUT, NO_MEMORY, SYSTEM.  tutti_last_error() has the sentence.
 */
#ifndef TUTTI_STORE_H
#define TUTTI_STORE_H

#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TUTTI_API
#define TUTTI_API __attribute__((visibility("default")))
#endif

#define TUTTI_STORE_KEY_MAX 8192
#define TUTTI_STORE_VALUE_MAX (8 << 20)
#define TUTTI_TOKEN_BYTES 32

typedef struct tutti_store tutti_store;

typedef struct tutti_store_opts {
    int64_t timeout_ms;   /* default of this handle's calls; 0: 5 minutes */
    const uint8_t *token; /* TUTTI_TOKEN_BYTES bytes, zeros alone: none; NULL: from TUTTI_TOKEN_FD, TUTTI_TOKEN_FILE or
                             TUTTI_TOKEN */
    bool server;          /* tcp: also run the server, on a thread of its own, until the handle is freed */
    bool insecure;        /* tcp server: serve an address other than loopback without any token */
    int32_t world_size;   /* tcp server: how many clients are expected; 0: unknown */
} tutti_store_opts;

/* The three functions below, with the size of tutti_store_opts in the program: see sized.h. */
TUTTI_API int tutti_store_tcp_sized(const char *host, uint16_t port, const tutti_store_opts *opts, size_t opts_bytes,
                                    tutti_store **store);
TUTTI_API int tutti_store_file_sized(const char *path, const tutti_store_opts *opts, size_t opts_bytes,
                                     tutti_store **store);
TUTTI_API int tutti_store_memory_sized(const tutti_store_opts *opts, size_t opts_bytes, tutti_store **store);

/* A tcp store.  host is a name, an IPv4 address or an IPv6 address (with or without brackets).  A server binds that
 * one address only; port 0 takes any free port (see tutti_store_port).  A client retries until the server is there or
 * the timeout has passed (at most 30 s where the name does not resolve, 10 s where it is its own server).  The
 * handshake proves the job token in both directions without sending it.  A server needs a descriptor per client: the
 * caller raises `ulimit -n` for a large job.  Connections that have not proved the token yet take a quarter of the free
 * descriptors, or as many as world_size asks for; more wait in the kernel's queue.  Errors: AUTH (the token differs or
 * is missing on one side, or something else answers there), STORE (the address is in use, a wildcard such as 0.0.0.0,
 * cannot be resolved or reached; a server on a non-loopback address without a token, unless opts or TUTTI_INSECURE=1
 * allow it), and the common ones. */
static inline int tutti_store_tcp(const char *host, uint16_t port, const tutti_store_opts *opts, tutti_store **store)
{
    return tutti_store_tcp_sized(host, port, opts, sizeof *opts, store);
}

/* A store in a file on a path that all processes share; it is made when absent, and the last handle of the job does
 * not remove it.  Changes are serialised by a lock on the file. */
static inline int tutti_store_file(const char *path, const tutti_store_opts *opts, tutti_store **store)
{
    return tutti_store_file_sized(path, opts, sizeof *opts, store);
}

/* A store in this process' memory, for ranks that are threads.  Share the handle, or make prefixes of it. */
static inline int tutti_store_memory(const tutti_store_opts *opts, tutti_store **store)
{
    return tutti_store_memory_sized(opts, sizeof *opts, store);
}

/* The part of base whose keys begin with prefix (1 to 255 bytes) followed by '/'; a key's limit includes it.  Holds a
 * reference to base, which may be freed. */
TUTTI_API int tutti_store_prefix(tutti_store *base, const char *prefix, tutti_store **store);

/* Gives the handle back; a server ends with its last handle.  NULL is ignored.  No call on it may be in flight. */
TUTTI_API void tutti_store_free(tutti_store *store);

/* The default of this handle's calls from now on, as tutti_store_opts has it; prefixes that were made of it keep
 * theirs. INVALID_ARGUMENT: timeout_ms is negative. */
TUTTI_API int tutti_store_set_timeout(tutti_store *store, int64_t timeout_ms);

/* The port of a tcp store, 0 for the others. */
TUTTI_API uint16_t tutti_store_port(const tutti_store *store);

/* The address under which other hosts reach a tcp store of this host: what its own name stands for, else that of the
 * first interface that is up; never loopback's.  NOT_FOUND: it has none, or not in capacity bytes. */
TUTTI_API int tutti_store_own_address(char *host, size_t capacity);

/* On the handle that runs a tcp server: waits, at most timeout_ms, until all clients but this handle have left. Whoever
 * frees the server before that may take it from under others that are still in the midst of a call.  TIMEOUT: some are
 * left.  Nothing on other handles. */
TUTTI_API int tutti_store_linger(tutti_store *store, int64_t timeout_ms);

/* Sets key to value, replacing what was there. */
TUTTI_API int tutti_store_set(tutti_store *store, const char *key, const void *value, size_t bytes);

/* Waits until key is there, then copies its value to buffer and its size to *bytes.  If capacity is too small the
 * answer is INVALID_ARGUMENT, *bytes is the size needed, and buffer is untouched. */
TUTTI_API int tutti_store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                              int64_t timeout_ms);

/* Adds delta to the decimal integer under key (0 if absent; wraps) and gives the new value.  A value that is no
 * integer: STORE. */
TUTTI_API int tutti_store_add(tutti_store *store, const char *key, int64_t delta, int64_t *value);

/* Waits until all n keys are there.  TIMEOUT's text names the missing ones. */
TUTTI_API int tutti_store_wait(tutti_store *store, const char *const *keys, int n, int64_t timeout_ms);

/* *present = whether all n keys are there now. */
TUTTI_API int tutti_store_check(tutti_store *store, const char *const *keys, int n, bool *present);

/* If the value under key equals expected, sets it to desired.  An absent key counts as equal to an empty expected
 * value.  buffer and *bytes receive the value that is there afterwards (buffer may be NULL with capacity 0;
 * a value larger than capacity leaves buffer untouched and is no error). */
TUTTI_API int tutti_store_compare_set(tutti_store *store, const char *key, const void *expected, size_t expected_bytes,
                                      const void *desired, size_t desired_bytes, void *buffer, size_t capacity,
                                      size_t *bytes);

/* Removes key; *existed (may be NULL) tells whether it was there. */
TUTTI_API int tutti_store_delete(tutti_store *store, const char *key, bool *existed);

/* Appends to the value under key, which is made when absent. */
TUTTI_API int tutti_store_append(tutti_store *store, const char *key, const void *value, size_t bytes);

/* Waits until all n keys are there, then gives their values, in one round trip up to 4,096 keys and 12 MiB.
 * values[i].data is allocated by the library: free them with tutti_bytes_free(values, n).  On an error nothing is
 * allocated. */
TUTTI_API int tutti_store_multi_get(tutti_store *store, const char *const *keys, int n, tutti_bytes *values,
                                    int64_t timeout_ms);

/* Sets n keys, in one round trip up to as many.  They are set in order: after an error the first of them may be. */
TUTTI_API int tutti_store_multi_set(tutti_store *store, const char *const *keys, const tutti_bytes *values, int n);

/* The number of keys (of the prefix, for a prefix store). */
TUTTI_API int tutti_store_num_keys(tutti_store *store, int64_t *count);

/* The number of requests that the store has taken from all of its clients, this one included; of a file store, from
 * this handle.  A call about more keys than fit into one request makes several. */
TUTTI_API int tutti_store_num_requests(tutti_store *store, int64_t *count);

/* Returns once world_size callers have entered the barrier of this name.  A name may be used again, but not after a
 * TIMEOUT, whose text says how many came: those that gave up stay counted.  Keeps two keys, "name/world_size/..". */
TUTTI_API int tutti_store_barrier(tutti_store *store, const char *name, int world_size, int64_t timeout_ms);

/* Frees what the library allocated into n entries and zeroes them. */
TUTTI_API void tutti_bytes_free(tutti_bytes *values, int n);

#ifdef __cplusplus
}
#endif
#endif
