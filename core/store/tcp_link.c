#include "store/tcp_link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/forked.h"
#include "store/socket.h"

enum { LINK_HANDSHAKE_MS = 10000 };

/* ---- sockets ------------------------------------------------------------------------------------------------ */

static int fail_timeout(const struct link_target *target, const char *what)
{
    return error_set(TUTTI_ERR_TIMEOUT, "tcp store %s: %s before the timeout", target->text, what);
}

static int fail_lost(const struct link_target *target, const char *what)
{
    if (errno == 0)
        return error_set(TUTTI_ERR_STORE, "tcp store %s: the server has ended (while %s)", target->text, what);
    return error_errno(TUTTI_ERR_STORE, "tcp store %s: the server is lost (while %s)", target->text, what);
}

static int send_all(int fd, const struct link_target *target, const uint8_t *data, size_t bytes, int64_t deadline_ns)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent > 0) {
            data += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN) {
            int ready = socket_poll(fd, POLLOUT, deadline_ns);
            if (ready == 0) return fail_timeout(target, "the server did not accept a request");
            if (ready < 0) return fail_lost(target, "waiting to send");
        } else if (errno != EINTR) {
            return fail_lost(target, "sending");
        }
    }
    return TUTTI_OK;
}

/* Receives between least and most bytes and stores their number in *got. */
static int receive_at_least(int fd, const struct link_target *target, uint8_t *data, size_t least, size_t most,
                            int64_t deadline_ns, size_t *got)
{
    for (*got = 0; *got < least;) {
        ssize_t bytes = recv(fd, data + *got, most - *got, 0);
        if (bytes > 0) {
            *got += (size_t)bytes;
        } else if (bytes == 0) {
            errno = 0;
            return fail_lost(target, "waiting for a reply");
        } else if (errno == EAGAIN) {
            int ready = socket_poll(fd, POLLIN, deadline_ns);
            if (ready == 0) return fail_timeout(target, "the server did not reply");
            if (ready < 0) return fail_lost(target, "waiting for a reply");
        } else if (errno != EINTR) {
            return fail_lost(target, "waiting for a reply");
        }
    }
    return TUTTI_OK;
}

/* ---- connecting --------------------------------------------------------------------------------------------- */

static int64_t earlier_deadline(int64_t deadline_ns, int64_t ms)
{
    int64_t limit = clock_deadline_ns(ms);
    return limit < deadline_ns ? limit : deadline_ns;
}

static int connect_target(const struct link_target *target, int64_t deadline_ns, int *fd, enum link_retry *retry)
{
    struct addrinfo *list;
    int failure = address_resolve(target->host, target->port, &list);
    if (failure != 0) {
        *retry = LINK_ABSENT; /* the name may be registered when its host starts */
        return error_set(TUTTI_ERR_STORE, "tcp store %s: cannot resolve the host: %s", target->text,
                         address_strerror(failure));
    }
    *fd = socket_connect(list, deadline_ns);
    int error = errno;
    freeaddrinfo(list);
    if (*fd >= 0) return TUTTI_OK;
    errno = error;
    *retry = socket_is_transient(error) ? LINK_ABSENT : LINK_FINAL;
    return error_errno(*retry != LINK_FINAL ? TUTTI_ERR_STORE : TUTTI_ERR_SYSTEM, "tcp store %s: cannot connect",
                       target->text);
}

/* ---- the handshake ------------------------------------------------------------------------------------------ */

static int exchange_hello(int fd, const struct link_target *target, struct handshake *shake, int64_t deadline_ns)
{
    uint8_t hello[HANDSHAKE_HELLO_BYTES];
    size_t got;
    handshake_start(shake, HANDSHAKE_CLIENT, hello);
    int status = send_all(fd, target, hello, sizeof hello, deadline_ns);
    if (status == TUTTI_OK) status = receive_at_least(fd, target, hello, 7, sizeof hello, deadline_ns, &got);
    if (status != TUTTI_OK) return status;
    if (!handshake_begins_well(hello, 7))
        return error_set(TUTTI_ERR_AUTH,
                         "tcp store %s: a program that is not a Tutti store listens there; choose another port",
                         target->text);
    if (got < sizeof hello) {
        size_t more;
        status = receive_at_least(fd, target, hello + got, sizeof hello - got, sizeof hello - got, deadline_ns, &more);
        if (status != TUTTI_OK) return status;
    }
    if (handshake_take_hello(shake, HANDSHAKE_CLIENT, hello) == HANDSHAKE_OK) return TUTTI_OK;
    return error_set(
        TUTTI_ERR_AUTH,
        "tcp store %s: the server has protocol version %d and this rank version %d; run the same release on all ranks",
        target->text, hello[7], HANDSHAKE_VERSION);
}

static int exchange_proof(int fd, const struct link_target *target, const struct handshake *shake, int64_t deadline_ns)
{
    uint8_t proof[HANDSHAKE_PROOF_BYTES], verdict[HANDSHAKE_VERDICT_BYTES];
    size_t got;
    handshake_prove(shake, HANDSHAKE_CLIENT, proof);
    int status = send_all(fd, target, proof, sizeof proof, deadline_ns);
    if (status == TUTTI_OK)
        status = receive_at_least(fd, target, verdict, sizeof verdict, sizeof verdict, deadline_ns, &got);
    if (status != TUTTI_OK) return status;
    if (verdict[0] != 1)
        return error_set(TUTTI_ERR_AUTH,
                         "tcp store %s: the server refused this rank, which has %s job token; set TUTTI_TOKEN_FD, "
                         "TUTTI_TOKEN_FILE or "
                         "TUTTI_TOKEN to the same token on all ranks",
                         target->text, token_is_none(target->token) ? "no" : "another");
    if (!handshake_verify(shake, HANDSHAKE_SERVER, verdict + 8))
        return error_set(
            TUTTI_ERR_AUTH,
            "tcp store %s: the server does not have this rank's job token; set the same token on all ranks",
            target->text);
    return TUTTI_OK;
}

int link_open(const struct link_target *target, int64_t deadline_ns, struct link **out, enum link_retry *retry)
{
    int fd = -1;
    *retry = LINK_FINAL;
    int64_t limit = earlier_deadline(deadline_ns, LINK_HANDSHAKE_MS); /* one attempt must not use up a long deadline */
    int status = connect_target(target, limit, &fd, retry);
    if (status != TUTTI_OK) return status;
    struct handshake shake = {0};
    memcpy(shake.token, target->token, TOKEN_BYTES);
    status = exchange_hello(fd, target, &shake, limit);
    if (status == TUTTI_OK) status = exchange_proof(fd, target, &shake, limit);
    if (status == TUTTI_ERR_STORE || status == TUTTI_ERR_TIMEOUT)
        *retry = LINK_BUSY; /* the server may be dropping
                               connections, or ending */
    struct link *link = status == TUTTI_OK ? calloc(1, sizeof *link) : NULL;
    if (link != NULL) {
        link->fd = fd;
        descriptors_identify(&link->identity, fd);
        handshake_keys(&shake, &link->out, &link->in);
        *out = link;
    } else {
        if (status == TUTTI_OK) status = error_set(TUTTI_ERR_NO_MEMORY, "tcp store %s: out of memory", target->text);
        socket_close(fd);
    }
    token_wipe(&shake, sizeof shake);
    return status;
}

void link_settle(const struct link *link, struct link_target *target)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    char host[ADDRESS_HOST_MAX] = "";
    if (getpeername(link->fd, (struct sockaddr *)&address, &bytes) == 0 &&
        getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0)
        memcpy(target->host, host, sizeof host);
}

bool link_is_usable(const struct link *link)
{
    char byte;
    return descriptors_is_same(&link->identity) && recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           errno == EAGAIN;
}

void link_close(struct link *link, bool forked)
{
    if (!forked) forked_forgets(link->fd);
    if (!forked && descriptors_is_same(&link->identity)) close(link->fd);
    token_wipe(link, sizeof *link);
    free(link);
}

/* ---- frames ------------------------------------------------------------------------------------------------- */

static int send_request(struct link *link, const struct link_target *target, const struct store_request *request,
                        int64_t deadline_ns)
{
    size_t bytes = wire_request_bytes(request), total = 4 + bytes + SEAL_TAG_BYTES;
    if (bytes > WIRE_PAYLOAD_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "tcp store %s: the request has %zu bytes and the limit is %d; use smaller values",
                         target->text, bytes, WIRE_PAYLOAD_MAX);
    uint8_t small[1024], *frame = total <= sizeof small ? small : malloc(total);
    if (frame == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "tcp store %s: out of memory for a request", target->text);
    wire_put_u32(frame, (uint32_t)(bytes + SEAL_TAG_BYTES));
    wire_put_request(frame + 4, request, wire_timeout_ms(request->deadline_ns));
    seal_close(&link->out, frame + 4, bytes, frame, 4);
    int status = send_all(link->fd, target, frame, total, deadline_ns);
    if (frame != small) free(frame);
    return status;
}

static int open_frame(struct link *link, const struct link_target *target, uint8_t *frame, size_t bytes,
                      struct store_reply *reply)
{
    if (!seal_open(&link->in, frame + 4, bytes, frame, 4))
        return error_set(TUTTI_ERR_AUTH, "tcp store %s: a reply was altered in transit", target->text);
    int status = wire_parse_reply(frame + 4, bytes - SEAL_TAG_BYTES, reply);
    if (status == TUTTI_ERR_NO_MEMORY)
        return error_set(status, "tcp store %s: out of memory for a reply", target->text);
    if (status != TUTTI_OK) return error_set(TUTTI_ERR_STORE, "tcp store %s: a reply is malformed", target->text);
    return TUTTI_OK;
}

static int receive_reply(struct link *link, const struct link_target *target, int64_t deadline_ns,
                         struct store_reply *reply)
{
    uint8_t small[1024], *frame = small;
    size_t got, more = 0;
    int status = receive_at_least(link->fd, target, small, 4, sizeof small, deadline_ns, &got);
    if (status != TUTTI_OK) return status;
    size_t bytes = wire_get_u32(small), total = 4 + bytes;
    if (bytes <= SEAL_TAG_BYTES || bytes > WIRE_PAYLOAD_MAX + SEAL_TAG_BYTES || got > total)
        return error_set(TUTTI_ERR_AUTH, "tcp store %s: a reply was altered in transit", target->text);
    if (total > sizeof small) {
        frame = malloc(total);
        if (frame == NULL)
            return error_set(TUTTI_ERR_NO_MEMORY, "tcp store %s: out of memory for a reply", target->text);
        memcpy(frame, small, got);
    }
    if (got < total)
        status = receive_at_least(link->fd, target, frame + got, total - got, total - got, deadline_ns, &more);
    if (status == TUTTI_OK) status = open_frame(link, target, frame, bytes, reply);
    if (frame != small) free(frame);
    return status;
}

int link_call(struct link *link, const struct link_target *target, const struct store_request *request,
              int64_t deadline_ns, struct store_reply *reply)
{
    int status = send_request(link, target, request, deadline_ns);
    return status == TUTTI_OK ? receive_reply(link, target, deadline_ns, reply) : status;
}
