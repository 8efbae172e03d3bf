/* A connection to a redis server.  It outlives the server: the link keeps its identity when it connects again, by which
 * it notices that the server has lost data. */
#ifndef STORE_REDIS_LINK_H
#define STORE_REDIS_LINK_H

#include <hiredis/hiredis.h>

#include "base/descriptors.h"
#include "store/redis_url.h"

enum { REDIS_KEY_MAX = REDIS_JOB_MAX + 32, REDIS_ID_BYTES = 33 };

struct redis_target {
    struct redis_url url;
    char text[ADDRESS_TEXT_MAX];                            /* host:port */
    char data_key[REDIS_KEY_MAX], calls_key[REDIS_KEY_MAX]; /* see redis_scripts.h */
};

struct redis_link {
    struct redis_link *next;
    int fd; /* -1: not connected */
    struct descriptor_identity identity;
    redisReader *reader;
    size_t received;         /* bytes of the reply that is arriving */
    char id[REDIS_ID_BYTES]; /* random; a field of calls_key once `registered` */
    bool registered;
    uint64_t sequence; /* of the last write that was sent */
    uint64_t acknowledged;
};

struct redis_command {
    int n;
    const char **parts;
    const size_t *bytes;
};

/* What to do after a failed call. */
enum redis_retry {
    REDIS_FINAL,
    REDIS_AWAY, /* the server cannot be reached now: connect again */
    REDIS_LOST  /* the server has lost writes of this job */
};

/* Returns a link that is not connected, or NULL if out of memory. */
struct redis_link *redis_link_new(void);

/* Connects, proves the password, and registers the link, or checks that the server still has its writes. */
int redis_link_open(struct redis_link *link, const struct redis_target *target, int64_t deadline_ns,
                    enum redis_retry *retry);
bool redis_link_is_usable(const struct redis_link *link);

/* Sends a command and receives its reply, which the caller frees with freeReplyObject.  An error reply is OK here. */
int redis_link_call(struct redis_link *link, const struct redis_target *target, const struct redis_command *command,
                    int64_t deadline_ns, redisReply **reply, enum redis_retry *retry);

/* Receives the next reply or message.  *reply is NULL at the deadline. */
int redis_link_receive(struct redis_link *link, const struct redis_target *target, int64_t deadline_ns,
                       redisReply **reply, enum redis_retry *retry);

/* Closes the connection; the link can be opened again. */
void redis_link_disconnect(struct redis_link *link, bool forked);
void redis_link_free(struct redis_link *link, bool forked);

/* Sets the error of an error reply.  `away` if the server is starting. */
int redis_link_report(const struct redis_target *target, const redisReply *reply, enum redis_retry *retry);

#endif
