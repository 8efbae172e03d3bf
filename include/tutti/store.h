/* Tutti: the key-value store through which ranks find each other.
 *
 * A store maps keys (strings of 1 to 8,192 bytes) to values (0 to 8 MiB).  The kinds share one set of calls: tcp (one
 * server, many clients, authenticated), file (a shared path), redis (a server that others run), memory (one process),
 * custom (functions of the program) and prefix (a part of another store).
 *
 * - Threads: any thread may call; a call that waits does not delay the others.
 * - Ownership: keys, values and arrays are borrowed during the call.
 * - Timeouts: timeout_ms is 0 (try once), a number of milliseconds, TUTTI_INFINITE, or TUTTI_DEFAULT_TIMEOUT for the
 *   store's own.  Calls without a timeout_ms use the store's own.
 * - Fork: a forked child cannot use its parent's stores (STORE).  It may free them, and opens its own.
 * - Descriptors: if stdin, stdout or stderr is closed when a store is opened, /dev/null is opened in its place and
 *   stays open.
 * - Errors common to all calls: INVALID_ARGUMENT (NULL, a negative timeout, a key or value beyond its limit), STORE
 *   (the server cannot be reached, or refused the request: its limits, its memory cap), AUTH (a reply of a tcp server
 *   was altered), TIMEOUT, NO_MEMORY, SYSTEM.  tutti_last_error() has the error message. */
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

/* Options of a store.  A zero field means the default. */
typedef struct tutti_store_opts {
    int64_t timeout_ms;   /* default of this handle's calls; 0: 5 minutes */
    const uint8_t *token; /* TUTTI_TOKEN_BYTES bytes, copied; all zeros: no token; NULL: from TUTTI_TOKEN_FD,
                             TUTTI_TOKEN_FILE or TUTTI_TOKEN */
    bool server;          /* tcp: also run the server, on its own thread, until the handle is freed */
    bool insecure;        /* tcp server: serve an address other than loopback without a token */
    int32_t world_size;   /* tcp server: the number of clients to expect; 0: unknown */
} tutti_store_opts;

/* Do the work of the four functions below, with the size of the program's tutti_store_opts: see sized.h. */
TUTTI_API int tutti_store_tcp_sized(const char *host, uint16_t port, const tutti_store_opts *opts, size_t opts_bytes,
                                    tutti_store **store);
TUTTI_API int tutti_store_file_sized(const char *path, const tutti_store_opts *opts, size_t opts_bytes,
                                     tutti_store **store);
TUTTI_API int tutti_store_redis_sized(const char *url, const tutti_store_opts *opts, size_t opts_bytes,
                                      tutti_store **store);
TUTTI_API int tutti_store_memory_sized(const tutti_store_opts *opts, size_t opts_bytes, tutti_store **store);

/* Opens a tcp store.  host is a name, an IPv4 address or an IPv6 address (with or without brackets).
 *
 * A server binds only that address; port 0 selects any free port (see tutti_store_port).  It needs one descriptor per
 * client, so raise `ulimit -n` for a large job.  Connections whose handshake is not complete take a quarter of the free
 * descriptors, or as many as world_size asks for; further ones wait in the kernel's queue.
 *
 * A client retries until the server accepts it or the timeout has passed: at most 30 s if the name does not resolve, 10
 * s if it is its own server.  The handshake proves the job token in both directions without sending it.
 *
 * Errors: AUTH (the token differs or is missing on one side, or another program listens there), STORE (the address is
 * in use, is a wildcard such as 0.0.0.0, cannot be resolved or reached; a server on an address other than loopback has
 * no token, which opts->insecure or TUTTI_INSECURE=1 allows), and the common ones. */
static inline int tutti_store_tcp(const char *host, uint16_t port, const tutti_store_opts *opts, tutti_store **store)
{
    return tutti_store_tcp_sized(host, port, opts, sizeof *opts, store);
}

/* Opens a store in a file on a path that all processes share.  The file is created if absent and not removed at the
 * end.  A lock on the file serialises changes.  Errors: STORE (the file is not a Tutti store, or other users can write
 * to it), TIMEOUT (another process held the lock), and the common ones. */
static inline int tutti_store_file(const char *path, const tutti_store_opts *opts, tutti_store **store)
{
    return tutti_store_file_sized(path, opts, sizeof *opts, store);
}

/* Opens a store on a redis server: "redis://[user][:password@]host[:port]/JOB" (port 6379 if left out; % and two hex
 * digits stand for any byte of user and password).  Without JOB it is TUTTI_JOB_ID's value.  Stores with the same JOB
 * are one store, so a job needs a name that no other one on that server has.  Without a password it is
 * TUTTI_REDIS_PASSWORD's value.  Of opts, only timeout_ms is used.  TLS is not supported, and the job's token is not
 * used: anybody who can log in to the server can change the keys.
 *
 * Retries until the server accepts it or the timeout has passed.  Later calls do so too when the server restarts.  A
 * call with a timeout of less than 2 s waits for a server that is away for up to 30 s, but not if an earlier call
 * waited in vain.  Each write is done once, also if its reply is lost.  The keys expire 7 days after the last write.
 *
 * Errors: UNSUPPORTED (the library was built without hiredis), INVALID_ARGUMENT (url is malformed or has no JOB), AUTH
 * (the server refuses the password, or is no redis server), STORE (the server cannot be reached; or it has lost keys in
 * a restart, and then every later call fails), and the common ones.  No message contains a password. */
static inline int tutti_store_redis(const char *url, const tutti_store_opts *opts, tutti_store **store)
{
    return tutti_store_redis_sized(url, opts, sizeof *opts, store);
}

/* Makes a store in this process's memory, for ranks that are threads.  They share the handle, or prefix stores of it.
 * Errors: the common ones. */
static inline int tutti_store_memory(const tutti_store_opts *opts, tutti_store **store)
{
    return tutti_store_memory_sized(opts, sizeof *opts, store);
}

/* The functions of a store that the program brings along, for example one that a language runtime has already.
 *
 * Each is called with the store's `self`, from any thread, and by several threads at a time.  It returns a
 * tutti_status; tutti_set_error adds a message, which Tutti's own then quotes.  Keys are strings, and values are bytes.
 * The operations mean what the public functions below say of them.  The first seven must be set, the others may be
 * NULL. */
typedef struct tutti_store_calls {
    int (*set)(void *self, const char *key, const void *value, size_t bytes);
    /* Waits for the key and sets *value to a copy of its value, whose data is from malloc (NULL if bytes is 0): the
     * library frees it.  timeout_ms is 0 or more, or TUTTI_INFINITE; TIMEOUT if the key does not exist by then. */
    int (*get)(void *self, const char *key, tutti_bytes *value, int64_t timeout_ms);
    int (*wait)(void *self, const char *const *keys, int n, int64_t timeout_ms);
    int (*check)(void *self, const char *const *keys, int n, bool *present);
    int (*add)(void *self, const char *key, int64_t delta, int64_t *value);
    /* Sets *value as get does, to the value after the call; to {NULL, 0} if the key is absent. */
    int (*compare_set)(void *self, const char *key, tutti_bytes expected, tutti_bytes desired, tutti_bytes *value);
    int (*remove)(void *self, const char *key, bool *existed);
    /* NULL: done by compare_set.  Then one of two equal values is lost if both are appended at the same time, because
     * the result of compare_set is the same in both cases.  Tutti itself appends no equal values. */
    int (*append)(void *self, const char *key, const void *value, size_t bytes);
    int (*multi_get)(void *self, const char *const *keys, int n, tutti_bytes *values, int64_t timeout_ms);
    int (*multi_set)(void *self, const char *const *keys, const tutti_bytes *values, int n);
    int (*num_keys)(void *self, const char *prefix,
                    int64_t *count); /* keys that begin with prefix; NULL: UNSUPPORTED */
    void (*close)(void *self);       /* called once, when the last handle and prefix store have been freed */
} tutti_store_calls;

/* Makes a store of the program's functions, which are copied.  name is for messages ("torch's store"), at most 100
 * bytes.  self belongs to the program and must outlive the store.  Such a store serves wherever a store is taken: in
 * tutti_init_opts.store, tutti_create_group and tutti_store_prefix.
 *
 * Errors: INVALID_ARGUMENT (name, calls or store is NULL, or one of the first seven functions; it is named), NO_MEMORY.
 * A call returns the status of the function; STORE if that is no tutti_status, or its value does not fit. */
TUTTI_API int tutti_store_custom_sized(const char *name, const tutti_store_calls *calls, size_t calls_bytes, void *self,
                                       const tutti_store_opts *opts, size_t opts_bytes, tutti_store **store);
static inline int tutti_store_custom(const char *name, const tutti_store_calls *calls, void *self,
                                     const tutti_store_opts *opts, tutti_store **store)
{
    return tutti_store_custom_sized(name, calls, sizeof *calls, self, opts, sizeof *opts, store);
}

/* Makes a view of base that holds the keys beginning with prefix (1 to 255 bytes) and '/'.  The prefix counts towards
 * the limit of a key.  The view holds a reference to base, so the handle of base may be freed.  Errors: the common
 * ones. */
TUTTI_API int tutti_store_prefix(tutti_store *base, const char *prefix, tutti_store **store);

/* Frees the handle; a server ends with its last handle.  NULL is ignored.  No call on the handle may be running. */
TUTTI_API void tutti_store_free(tutti_store *store);

/* Sets the default timeout of this handle's calls, as tutti_store_opts does.  Prefix stores that were made from it keep
 * theirs.  Errors: INVALID_ARGUMENT. */
TUTTI_API int tutti_store_set_timeout(tutti_store *store, int64_t timeout_ms);

/* Returns the port of a tcp store, 0 for other kinds. */
TUTTI_API uint16_t tutti_store_port(const tutti_store *store);

/* Writes the address under which other hosts reach a tcp store of this host: the address that its host name resolves
 * to, else the address of the first interface that is up, never a loopback address.  Errors: NOT_FOUND (there is none,
 * or it does not fit into capacity bytes), INVALID_ARGUMENT (host is NULL). */
TUTTI_API int tutti_store_own_address(char *host, size_t capacity);

/* Waits until all other clients of the server that this handle runs have disconnected.  Freeing the server earlier may
 * fail calls that are still running in other processes.  Does nothing on other handles.  Errors: TIMEOUT (clients are
 * still connected). */
TUTTI_API int tutti_store_linger(tutti_store *store, int64_t timeout_ms);

/* Sets key to value, replacing any old value.  Errors: the common ones. */
TUTTI_API int tutti_store_set(tutti_store *store, const char *key, const void *value, size_t bytes);

/* Waits until key exists, then copies its value to buffer and its size to *bytes.  Errors: INVALID_ARGUMENT (the value
 * is larger than capacity; *bytes is the size needed, and buffer is untouched), TIMEOUT (the key does not exist). */
TUTTI_API int tutti_store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                              int64_t timeout_ms);

/* Adds delta to the decimal integer under key (0 if absent; wraps around) and stores the new value in *value (may be
 * NULL).  Errors: STORE (the old value is not an integer). */
TUTTI_API int tutti_store_add(tutti_store *store, const char *key, int64_t delta, int64_t *value);

/* Waits until all n keys exist.  The message of TIMEOUT names the missing ones. */
TUTTI_API int tutti_store_wait(tutti_store *store, const char *const *keys, int n, int64_t timeout_ms);

/* Sets *present to true if all n keys exist now. */
TUTTI_API int tutti_store_check(tutti_store *store, const char *const *keys, int n, bool *present);

/* Sets key to desired if its value equals expected.  An absent key equals an empty expected value.  buffer and *bytes
 * receive the value after the call.  buffer may be NULL with capacity 0, and bytes may be NULL.  A value larger than
 * capacity leaves buffer untouched, and is not an error. */
TUTTI_API int tutti_store_compare_set(tutti_store *store, const char *key, const void *expected, size_t expected_bytes,
                                      const void *desired, size_t desired_bytes, void *buffer, size_t capacity,
                                      size_t *bytes);

/* Removes key and sets *existed (may be NULL) to true if it existed. */
TUTTI_API int tutti_store_delete(tutti_store *store, const char *key, bool *existed);

/* Appends to the value under key, which is created if absent.  Errors: INVALID_ARGUMENT (the value would exceed 8
 * MiB). */
TUTTI_API int tutti_store_append(tutti_store *store, const char *key, const void *value, size_t bytes);

/* Waits until all n keys exist, then returns their values, in one round trip for up to 4,096 keys and 12 MiB.  The
 * library allocates values[i].data; the caller frees them with tutti_bytes_free(values, n).  After an error nothing is
 * allocated. */
TUTTI_API int tutti_store_multi_get(tutti_store *store, const char *const *keys, int n, tutti_bytes *values,
                                    int64_t timeout_ms);

/* Sets n keys, in one round trip for up to 4,096 keys and 12 MiB.  They are set in order, so after an error the first
 * ones may have been set. */
TUTTI_API int tutti_store_multi_set(tutti_store *store, const char *const *keys, const tutti_bytes *values, int n);

/* Stores the number of keys (for a prefix store: of those with its prefix) in *count. */
TUTTI_API int tutti_store_num_keys(tutti_store *store, int64_t *count);

/* Stores the number of requests that all clients have made, including this one, in *count; for a file or redis store
 * only those of this handle.  A call with more keys than fit into one request makes several. */
TUTTI_API int tutti_store_num_requests(tutti_store *store, int64_t *count);

/* Returns once world_size callers have entered the barrier of this name.  Its state is two keys, "name/world_size/..".
 * A name may be used again, but not after a TIMEOUT, because callers that gave up stay counted.  The message of TIMEOUT
 * has the number of arrivals. */
TUTTI_API int tutti_store_barrier(tutti_store *store, const char *name, int world_size, int64_t timeout_ms);

/* Frees the data that the library allocated in n entries and zeroes them. */
TUTTI_API void tutti_bytes_free(tutti_bytes *values, int n);

#ifdef __cplusplus
}
#endif
#endif
