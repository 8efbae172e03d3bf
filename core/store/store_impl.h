/* What is behind a tutti_store: one request, one reply, and a table with the three things a kind of store must do.
 *
 * The public functions (store.c) check their arguments, fill a request and hand it down.  A new kind of store writes
 * one function, `call`, and has every operation.
 */
#ifndef STORE_IMPL_H
#define STORE_IMPL_H

#include <stdatomic.h>
#include <sys/types.h>
#include <tutti/store.h>

/* Values are part of the wire format and of the file format: new ones are appended. */
enum store_op {
    STORE_SET = 1,     /* n keys, n values */
    STORE_GET,         /* n keys; waits.  The reply may hold fewer values than keys: ask again for the rest */
    STORE_WAIT,        /* n keys; waits */
    STORE_CHECK,       /* n keys; number: 1 when all are there */
    STORE_ADD,         /* 1 key; number: the delta, then the sum */
    STORE_COMPARE_SET, /* 1 key; values: expected, desired; the reply has 1 value, or none for an absent key */
    STORE_DELETE,   /* 1 key; number: 1 when it was there.  Asked for with number 1: all that begin with it; how many */
    STORE_APPEND,   /* 1 key, 1 value */
    STORE_NUM_KEYS, /* 1 key: what the counted ones begin with, may be empty; number: how many */
    STORE_NUM_REQUESTS, /* 1 key, not looked at; number: how many requests the store has taken */
    STORE_OP_END
};

enum {
    STORE_TEXT_MAX = 400,              /* the sentence in a reply */
    STORE_BATCH_BYTES = 12 << 20,      /* one request or reply holds no more of keys and values: a limit of the wire */
    STORE_BATCH_KEYS = 4096,           /* nor more keys than that */
    STORE_DEFAULT_TIMEOUT_MS = 300000, /* as torch's */
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
    int64_t deadline_ns; /* of a waiting operation, and of a transport that must wait for its server */
    bool prompt;         /* a late answer is of no use: the transport gives up at the deadline, too */
};

/* What the table answered.  status and text are the operation's own; a call that never got an answer returns its status
 * instead, with the sentence set in the calling thread. */
struct store_reply {
    int status;
    int64_t number;
    int n_values;
    tutti_bytes *values; /* malloc'ed, and each of them; store_reply_free() */
    char text[STORE_TEXT_MAX];
};

struct store_class {
    /* Does the request.  Any thread, many at once; may block until the deadline. */
    int (*call)(tutti_store *store, const struct store_request *request, struct store_reply *reply);
    /* Frees the store, called once, for the last reference.  In a forked child it must leave the parent's things be. */
    void (*close)(tutti_store *store, bool forked);
    /* Optional. */
    uint16_t (*port)(const tutti_store *store);
    int (*linger)(tutti_store *store, int64_t deadline_ns);
};

/* The first member of every kind's own struct. */
struct tutti_store {
    const struct store_class *class;
    atomic_int references;
    _Atomic int64_t timeout_ms;
    pid_t pid;      /* of the process that opened it: a forked child must not use it */
    char name[288]; /* for sentences: "tcp store 127.0.0.1:29500" */
};

/* Fills the base: one reference, opts' timeout.  INVALID_ARGUMENT for a bad timeout. */
int store_base_init(tutti_store *store, const struct store_class *class, const tutti_store_opts *opts);

/* Sends a request down and turns a reply that is an error into this thread's sentence.  The caller frees the reply
 * of get and compare_set; the others' have no values, nor has an error's. */
int store_call(tutti_store *store, const struct store_request *request, struct store_reply *reply);

void store_reply_free(struct store_reply *reply);

/* Writes a reply's status and sentence; returns status. */
int store_reply_error(struct store_reply *reply, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

tutti_store *store_retain(tutti_store *store);

/* Deletes all keys that begin with prefix. */
int store_clear(tutti_store *store, const char *prefix);

/* Sets key to value if it is absent, and gives what is there then, as tutti_store_compare_set.  Gives up after
 * timeout_ms also where the server does not answer. */
int store_offer(tutti_store *store, const char *key, const void *value, size_t value_bytes, void *buffer,
                size_t capacity, size_t *bytes, int64_t timeout_ms);

/* Whether the operation changes the store. */
bool store_op_writes(int op);

/* The cap on all keys and values of one store: TUTTI_STORE_MAX_BYTES. */
int store_max_bytes(size_t *bytes);
#endif
