/* Calls of scripts on a redis server: a pool of connections, and retries while the server is away. */
#ifndef STORE_REDIS_CALLS_H
#define STORE_REDIS_CALLS_H

#include <pthread.h>

#include "base/error.h"
#include "store/redis_link.h"
#include "store/store_impl.h"

enum redis_use { REDIS_CALLS, REDIS_MESSAGES, REDIS_USES };

struct redis {
    tutti_store base;
    struct redis_target target;
    pthread_mutex_t lock;
    struct redis_link *idle[REDIS_USES]; /* for calls, and for subscriptions */
    int n_open;                          /* of idle[], connected */
    _Atomic int64_t n_requests;
    atomic_bool down; /* a call has waited for the server in vain: short ones do not wait any longer */
    atomic_bool lost; /* the server has lost data: see lost_text */
    char lost_text[ERROR_TEXT_MAX];
};

/* Returns an idle link or a new one, or NULL and sets the error message.  Its connection may be closed. */
struct redis_link *redis_borrow_link(struct redis *redis, enum redis_use use);

/* Keeps the link, whose identity the server knows.  Closes the connection if enough others are open. */
void redis_return_link(struct redis *redis, enum redis_use use, struct redis_link *link);

/* Until when a call connects again if the server is away, and until when it waits for a reply. */
struct redis_limits {
    int64_t retry_ns, reply_ns;
};

/* Returns the limits of a call of this request.  They follow from its deadline, but are later for one of a loop of
 * short waits: the loop has a longer timeout, and its server may come back. */
struct redis_limits redis_limits(struct redis *redis, const struct store_request *request);

/* Calls until the server has replied, or the limits.  Opens the link where needed. */
int redis_call_link(struct redis *redis, struct redis_link *link, const struct redis_command *command,
                    struct redis_limits limits, redisReply **reply);

/* Runs a script that writes, exactly once, with n arguments.  *raw is its reply, to be freed.  It is NULL after an
 * error, and if the server has refused the operation, which the reply then says. */
int redis_write(struct redis *redis, const struct store_request *request, const char *text,
                const struct store_slice *arguments, int n, redisReply **raw, struct store_reply *reply);

/* Runs a script that reads, with the request's keys.  *raw is its reply, to be freed, and NULL after an error. */
int redis_read(struct redis *redis, const struct store_request *request, const char *text, redisReply **raw);

/* Waits until all keys of a get or wait exist, and takes the values of a get. */
int redis_wait(struct redis *redis, const struct store_request *request, struct store_reply *reply);

/* Appends a copy of the value.  reply->values has space for it. */
int redis_add_value(const struct redis *redis, const void *data, size_t bytes, struct store_reply *reply);

/* Returns the number in a reply, 0 if there is none. */
int64_t redis_number(const redisReply *raw);

/* Set the error message and return the status: of a reply that does not fit, and of an allocation. */
int redis_report_odd(const struct redis *redis, const redisReply *raw);
int redis_no_memory(const struct redis *redis, size_t bytes);

#endif
