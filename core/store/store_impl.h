/* Internals of tutti_store: the request, the reply, and the function table that a kind of store implements.
 *
 * The public functions (store.c) check their arguments, fill a request and pass it to `call`.  A new kind of store
 * implements that one function and has every operation.
 */
#ifndef STORE_IMPL_H
#define STORE_IMPL_H

#include <stdatomic.h>
#include <sys/types.h>
#include <tutti/store.h>

/* The values are part of the wire format and of the file format: append new ones. */
enum store_op {
    STORE_SET = 1,     /* n keys, n values */
    STORE_GET,         /* n keys; waits.  The reply may hold fewer values than keys: request the rest again */
    STORE_WAIT,        /* n keys; waits */
    STORE_CHECK,       /* n keys; reply.number: 1 if all exist */
    STORE_ADD,         /* 1 key; request.number: the delta; reply.number: the sum */
    STORE_COMPARE_SET, /* 1 key; values: expected, desired; the reply has 1 value, or none if the key is absent */
    STORE_DELETE,   /* 1 key; reply.number: keys deleted.  If request.number is 1, deletes every key with that prefix */
    STORE_APPEND,   /* 1 key, 1 value */
    STORE_NUM_KEYS, /* 1 key: a prefix, may be empty; reply.number: how many keys begin with it */
    STORE_NUM_REQUESTS, /* 1 key, ignored; reply.number: how many requests the store has served */
    STORE_OP_END
};

enum {
    STORE_TEXT_MAX = 400,              /* error message in a reply */
    STORE_BATCH_BYTES = 12 << 20,      /* limit of keys and values in one request or reply; set by the wire format */
    STORE_BATCH_KEYS = 4096,           /* limit of keys in one request */
    STORE_DEFAULT_TIMEOUT_MS = 300000, /* same default as torch */
    STORE_DEFAULT_MAX_BYTES = 256 << 20
};

struct store_slice {
    const void *data;
    size_t bytes;
};

struct store_request {
    int op;
    int n_keys, n_values;
    const struct store_slice *keys, *values; /* borrowed */
    int64_t number;
    int64_t deadline_ns; /* for waiting operations, and for a transport that waits for its server */
    bool prompt;         /* the transport also gives up at the deadline: a late reply is useless */
};

/* The table's reply.  `status` and `text` are the operation's own.  A call that gets no reply returns its own status
 * and sets the calling thread's error message. */
struct store_reply {
    int status;
    int64_t number;
    int n_values;
    tutti_bytes *values; /* the array and each value are malloc'ed; free with store_reply_free() */
    char text[STORE_TEXT_MAX];
};

struct store_class {
    /* Executes the request.  Called from any thread, concurrently; may block until the deadline. */
    int (*call)(tutti_store *store, const struct store_request *request, struct store_reply *reply);
    /* Frees the store; called once, for the last reference.  In a forked child it must not touch what the parent
     * uses. */
    void (*close)(tutti_store *store);
    /* Returns the port of the store's server.  May be NULL. */
    uint16_t (*port)(const tutti_store *store);
    int (*linger)(tutti_store *store, int64_t deadline_ns);
};

/* First member of the struct of every kind of store. */
struct tutti_store {
    const struct store_class *class;
    atomic_int references;
    _Atomic int64_t timeout_ms;
    pid_t pid;      /* process that opened the store; a forked child must not use it */
    char name[288]; /* for error messages: "tcp store 127.0.0.1:29500" */
};

/* Initializes the base with one reference and the timeout of opts.  Returns INVALID_ARGUMENT for a bad timeout. */
int store_base_init(tutti_store *store, const struct store_class *class, const tutti_store_opts *opts);

/* Executes a request and turns an error reply into this thread's error message.  The caller frees the reply of a
 * successful get or compare_set; other replies hold no values. */
int store_call(tutti_store *store, const struct store_request *request, struct store_reply *reply);

void store_reply_free(struct store_reply *reply);

/* Sets the reply's status and error message; returns status. */
int store_reply_error(struct store_reply *reply, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* True if this process is a fork of the one that opened the store. */
bool store_is_forked(const tutti_store *store);

tutti_store *store_retain(tutti_store *store);

/* Deletes all keys that begin with prefix. */
int store_clear(tutti_store *store, const char *prefix);

/* Deletes all keys; of a prefix store, those with its prefix. */
int store_clear_all(tutti_store *store);

/* Sets key to value if it is absent and copies out the resulting value, like tutti_store_compare_set.  Gives up after
 * timeout_ms even if the server does not answer. */
int store_offer(tutti_store *store, const char *key, const void *value, size_t value_bytes, void *buffer,
                size_t capacity, size_t *bytes, int64_t timeout_ms);

/* True if the operation changes the store. */
bool store_op_writes(int op);

/* Reads TUTTI_STORE_MAX_BYTES, the limit on all keys and values of one store. */
int store_max_bytes(size_t *bytes);
#endif
