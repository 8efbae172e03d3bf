/* One authenticated connection from a client to the server: connecting, handshake, sealed frames.  Every wait is
 * bounded by a deadline.  One thread at a time uses a link. */
#ifndef STORE_TCP_LINK_H
#define STORE_TCP_LINK_H

#include "base/descriptors.h"
#include "store/address.h"
#include "store/handshake.h"
#include "store/wire.h"

struct link {
    int fd;
    struct descriptor_identity identity; /* identifies fd, which the program may have closed and reused */
    struct seal out, in;
    struct link *next; /* in the client's pool of idle links */
};

/* The server's address and the job token. */
struct link_target {
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    char text[ADDRESS_TEXT_MAX];
    uint8_t token[TOKEN_BYTES];
};

/* Says whether another attempt may succeed after a failed one. */
enum link_retry {
    LINK_FINAL,  /* no */
    LINK_ABSENT, /* yes: no server listens there yet */
    LINK_BUSY    /* yes: the server dropped the connection, as it does when too many arrive at once */
};

/* Makes one attempt to open a link.  On failure the error message is set, and *retry says whether to try again. */
int link_open(const struct link_target *target, int64_t deadline_ns, struct link **link, enum link_retry *retry);

/* Sends the request and receives its reply.  After an error the link must be closed. */
int link_call(struct link *link, const struct link_target *target, const struct store_request *request,
              int64_t deadline_ns, struct store_reply *reply);

/* Sets the target to the address at which the link reached its server.  Further links then skip the name's lookup and
 * its other addresses. */
void link_settle(const struct link *link, struct link_target *target);

/* True if an idle link is still usable: neither the server nor the program has closed it. */
bool link_is_usable(const struct link *link);

/* Closes and frees the link.  In a forked child its descriptor is closed already. */
void link_close(struct link *link, bool forked);

#endif
