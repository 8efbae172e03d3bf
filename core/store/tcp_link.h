/* One authenticated connection from a client to the server: connecting, the handshake, sealed frames.  Every wait is
 * bounded by a deadline.  A link is used by one thread at a time. */
#ifndef STORE_TCP_LINK_H
#define STORE_TCP_LINK_H

#include "base/descriptors.h"
#include "store/address.h"
#include "store/handshake.h"
#include "store/wire.h"

struct link {
    int fd;
    struct witness witness; /* that fd is still this link's */
    struct seal out, in;
    struct link *next; /* in the client's pool */
};

/* Where the server is. */
struct link_target {
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    char text[ADDRESS_TEXT_MAX];
    uint8_t token[TOKEN_BYTES];
};

/* Whether another attempt may succeed after one that failed. */
enum link_retry {
    LINK_FINAL,  /* no */
    LINK_ABSENT, /* yes: nobody listens there yet */
    LINK_BUSY    /* yes: the server was there and dropped us, as it does when too many come at once */
};

/* One attempt.  The error text is set in any case. */
int link_open(const struct link_target *target, int64_t deadline_ns, struct link **link, enum link_retry *retry);

/* Sends the request and takes its reply.  After an error the link is of no more use. */
int link_call(struct link *link, const struct link_target *target, const struct store_request *request,
              int64_t deadline_ns, struct store_reply *reply);

/* From here on the target is the address at which the link found its server: another link need not try a name's others,
 * nor ask for them. */
void link_settle(const struct link *link, struct link_target *target);

/* True if an idle link is still good: neither the server nor the program has closed it. */
bool link_alive(const struct link *link);

/* In a forked child the descriptor is closed already. */
void link_close(struct link *link, bool forked);

#endif
