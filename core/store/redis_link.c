/* hiredis formats commands and parses replies.  Its own sockets are not used: they block without regard to a deadline,
 * and a server that closes the connection would end the process by SIGPIPE. */
#include "store/redis_link.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/token.h"
#include "store/redis_scripts.h"
#include "store/socket.h"
#include "store/store_impl.h"

enum {
    CONNECT_MS = 5000,
    REPLY_MAX = 2 * STORE_BATCH_BYTES /* limit of a reply's bytes: the scripts return half of that */
};

static int report_lost(const struct redis_target *target, const char *what, enum redis_retry *retry)
{
    *retry = REDIS_AWAY;
    if (errno == 0)
        return error_set(TUTTI_ERR_STORE, "redis store %s: the server has closed the connection (while %s)",
                         target->text, what);
    return error_errno(TUTTI_ERR_STORE, "redis store %s: the server is lost (while %s)", target->text, what);
}

/* ---- bytes --------------------------------------------------------------------------------------------------- */

static int send_all(struct redis_link *link, const struct redis_target *target, const char *data, size_t bytes,
                    int64_t deadline_ns, enum redis_retry *retry)
{
    while (bytes > 0) {
        ssize_t sent = send(link->fd, data, bytes, MSG_NOSIGNAL);
        int ready = 1;
        if (sent > 0) {
            data += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN) {
            ready = socket_poll(link->fd, POLLOUT, deadline_ns);
        } else if (errno != EINTR) {
            return report_lost(target, "sending", retry);
        }
        if (ready < 0) return report_lost(target, "waiting to send", retry);
        if (ready == 0) {
            *retry = REDIS_AWAY;
            return error_set(TUTTI_ERR_STORE, "redis store %s: the server did not accept a request before the timeout",
                             target->text);
        }
    }
    return TUTTI_OK;
}

/* Passes received bytes to the parser.  Returns 1 if there were some, 0 at the deadline, or an error. */
static int receive_some(struct redis_link *link, const struct redis_target *target, int64_t deadline_ns,
                        enum redis_retry *retry)
{
    for (;;) {
        char buffer[4096];
        ssize_t bytes = recv(link->fd, buffer, sizeof buffer, 0);
        if (bytes > 0) {
            link->received += (size_t)bytes;
            if (link->received > REPLY_MAX)
                return error_set(TUTTI_ERR_STORE, "redis store %s: a reply has more than %d bytes; check the address",
                                 target->text, REPLY_MAX);
            if (redisReaderFeed(link->reader, buffer, (size_t)bytes) == REDIS_OK) return 1;
            return error_set(TUTTI_ERR_NO_MEMORY, "redis store %s: out of memory for a reply", target->text);
        }
        if (bytes == 0) errno = 0;
        if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) return report_lost(target, "waiting for a reply", retry);
        int ready = errno == EINTR ? 1 : socket_poll(link->fd, POLLIN, deadline_ns);
        if (ready < 0) return report_lost(target, "waiting for a reply", retry);
        if (ready == 0) return 0;
    }
}

int redis_link_receive(struct redis_link *link, const struct redis_target *target, int64_t deadline_ns,
                       redisReply **reply, enum redis_retry *retry)
{
    int status = 1;
    *reply = NULL;
    *retry = REDIS_FINAL;
    while (status == 1) {
        void *parsed = NULL;
        if (redisReaderGetReply(link->reader, &parsed) != REDIS_OK)
            return error_set(TUTTI_ERR_AUTH,
                             "redis store %s: a program that is not a redis server listens there, or it speaks TLS, "
                             "which is not supported",
                             target->text);
        *reply = parsed;
        if (parsed != NULL) {
            link->received = 0;
            return TUTTI_OK;
        }
        status = receive_some(link, target, deadline_ns, retry);
    }
    return status;
}

int redis_link_call(struct redis_link *link, const struct redis_target *target, const struct redis_command *command,
                    int64_t deadline_ns, redisReply **reply, enum redis_retry *retry)
{
    char *text = NULL;
    *reply = NULL;
    *retry = REDIS_FINAL;
    int bytes = redisFormatCommandArgv(&text, command->n, command->parts, command->bytes);
    if (bytes < 0) return error_set(TUTTI_ERR_NO_MEMORY, "redis store %s: out of memory for a request", target->text);
    int status = send_all(link, target, text, (size_t)bytes, deadline_ns, retry);
    token_wipe(text, (size_t)bytes); /* it may hold the password */
    redisFreeCommand(text);
    if (status == TUTTI_OK) status = redis_link_receive(link, target, deadline_ns, reply, retry);
    if (status != TUTTI_OK || *reply != NULL) return status;
    *retry = REDIS_AWAY;
    return error_set(TUTTI_ERR_STORE, "redis store %s: the server did not reply before the timeout", target->text);
}

/* ---- error replies ------------------------------------------------------------------------------------------- */

static bool begins(const redisReply *reply, const char *word)
{
    size_t n = strlen(word);
    return reply->len >= n && memcmp(reply->str, word, n) == 0;
}

/* True of the error of a server that will take the request later. */
static bool says_later(const redisReply *reply)
{
    return begins(reply, "LOADING") || begins(reply, "BUSY") || begins(reply, "TRYAGAIN") ||
           begins(reply, "ERR max number of clients");
}

int redis_link_report(const struct redis_target *target, const redisReply *reply, enum redis_retry *retry)
{
    *retry = REDIS_FINAL;
    if (reply->type != REDIS_REPLY_ERROR)
        return error_set(TUTTI_ERR_STORE, "redis store %s: a reply of type %d does not fit the request", target->text,
                         reply->type);
    if (says_later(reply)) *retry = REDIS_AWAY;
    if (begins(reply, "NOAUTH") || begins(reply, "WRONGPASS"))
        return error_set(TUTTI_ERR_AUTH,
                         "redis store %s: the server wants %s password; write redis://:PASSWORD@host:port/JOB or set "
                         "TUTTI_REDIS_PASSWORD",
                         target->text, target->url.password[0] == '\0' ? "a" : "another user or");
    if (begins(reply, REDIS_FOREIGN_TEXT))
        return error_set(
            TUTTI_ERR_STORE,
            "redis store %s: the value has%.20s bytes, more than any of Tutti's (%d): another program uses "
            "the keys of job %.60s; give the job another name",
            target->text, reply->str + strlen(REDIS_FOREIGN_TEXT), TUTTI_STORE_VALUE_MAX, target->url.job);
    if (begins(reply, "OOM"))
        return error_set(TUTTI_ERR_STORE, "redis store %s: the server is full; raise its maxmemory", target->text);
    return error_set(TUTTI_ERR_STORE, "redis store %s: the server says: %.200s", target->text, reply->str);
}

/* ---- connecting ---------------------------------------------------------------------------------------------- */

static int connect_target(struct redis_link *link, const struct redis_target *target, int64_t deadline_ns,
                          enum redis_retry *retry)
{
    struct addrinfo *list;
    int failure = address_resolve(target->url.host, target->url.port, &list);
    *retry = REDIS_AWAY;
    if (failure != 0)
        return error_set(TUTTI_ERR_STORE, "redis store %s: cannot resolve the host: %s", target->text,
                         address_strerror(failure));
    link->fd = socket_connect(list, deadline_ns);
    int error = errno;
    freeaddrinfo(list);
    errno = error;
    if (link->fd >= 0) {
        link->reader = redisReaderCreate();
        descriptors_identify(&link->identity, link->fd);
        if (link->reader != NULL) return TUTTI_OK;
        return error_set(TUTTI_ERR_NO_MEMORY, "redis store %s: out of memory", target->text);
    }
    if (!socket_is_transient(error)) *retry = REDIS_FINAL;
    return error_errno(*retry == REDIS_AWAY ? TUTTI_ERR_STORE : TUTTI_ERR_SYSTEM, "redis store %s: cannot connect",
                       target->text);
}

/* Calls a command of strings. */
static int call_words(struct redis_link *link, const struct redis_target *target, const char *const *words, int n,
                      int64_t deadline_ns, redisReply **reply, enum redis_retry *retry)
{
    const char *parts[6];
    size_t bytes[6];
    for (int i = 0; i < n; i++) {
        parts[i] = words[i];
        bytes[i] = strlen(words[i]);
    }
    struct redis_command command = {n, parts, bytes};
    return redis_link_call(link, target, &command, deadline_ns, reply, retry);
}

static int authenticate(struct redis_link *link, const struct redis_target *target, int64_t deadline_ns,
                        enum redis_retry *retry)
{
    const struct redis_url *url = &target->url;
    redisReply *reply = NULL;
    if (url->password[0] == '\0') return TUTTI_OK;
    int status = url->user[0] == '\0'
                     ? call_words(link, target, (const char *[]){"AUTH", url->password}, 2, deadline_ns, &reply, retry)
                     : call_words(link, target, (const char *[]){"AUTH", url->user, url->password}, 3, deadline_ns,
                                  &reply, retry);
    if (status != TUTTI_OK) return status;
    if (reply->type == REDIS_REPLY_ERROR && says_later(reply))
        status = redis_link_report(target, reply, retry);
    else if (reply->type == REDIS_REPLY_ERROR) /* the server's text may quote the password */
        status = error_set(TUTTI_ERR_AUTH,
                           "redis store %s: the server refused the user or password; correct the URL or "
                           "TUTTI_REDIS_PASSWORD",
                           target->text);
    freeReplyObject(reply);
    return status;
}

static int report_data_loss(const struct redis_target *target, uint64_t lost, enum redis_retry *retry)
{
    *retry = REDIS_LOST;
    if (lost == 0)
        return error_set(TUTTI_ERR_STORE,
                         "redis store %s: the server has lost all keys of job %s: it has restarted without "
                         "persistence, or they were deleted; start the job again, with \"appendonly yes\" at the "
                         "server",
                         target->text, target->url.job);
    return error_set(TUTTI_ERR_STORE,
                     "redis store %s: the server has lost the last %" PRIu64 " writes of this rank: it has restarted "
                     "from an older state; start the job again, with \"appendfsync always\" at the server",
                     target->text, lost);
}

/* Checks what the server knows of this link: "7 reply" means that it has the writes up to 7. */
static int check_registration(const struct redis_link *link, const struct redis_target *target, const redisReply *reply,
                              enum redis_retry *retry)
{
    if (reply->type == REDIS_REPLY_NIL) return report_data_loss(target, 0, retry);
    if (reply->type != REDIS_REPLY_STRING) return redis_link_report(target, reply, retry);
    uint64_t known = strtoull(reply->str, NULL, 10);
    return known >= link->acknowledged ? TUTTI_OK : report_data_loss(target, link->acknowledged - known, retry);
}

static int register_link(struct redis_link *link, const struct redis_target *target, int64_t deadline_ns,
                         enum redis_retry *retry)
{
    redisReply *reply = NULL;
    const char *known[] = {"HGET", target->calls_key, link->id};
    const char *fresh[] = {"EVAL", redis_script_register, "1", target->calls_key, link->id, REDIS_EXPIRE_S};
    int status = call_words(link, target, link->registered ? known : fresh, link->registered ? 3 : 6, deadline_ns,
                            &reply, retry);
    if (status != TUTTI_OK) return status;
    if (link->registered)
        status = check_registration(link, target, reply, retry);
    else if (reply->type != REDIS_REPLY_INTEGER)
        status = redis_link_report(target, reply, retry);
    link->registered |= status == TUTTI_OK;
    freeReplyObject(reply);
    return status;
}

int redis_link_open(struct redis_link *link, const struct redis_target *target, int64_t deadline_ns,
                    enum redis_retry *retry)
{
    int64_t limit = clock_deadline_ns(CONNECT_MS); /* one attempt must not use up a long deadline */
    if (limit > deadline_ns) limit = deadline_ns;
    int status = connect_target(link, target, limit, retry);
    if (status == TUTTI_OK) status = authenticate(link, target, limit, retry);
    if (status == TUTTI_OK) status = register_link(link, target, limit, retry);
    if (status != TUTTI_OK) redis_link_disconnect(link, false);
    return status;
}

/* ---- links --------------------------------------------------------------------------------------------------- */

struct redis_link *redis_link_new(void)
{
    uint8_t random[(REDIS_ID_BYTES - 1) / 2];
    struct redis_link *link = calloc(1, sizeof *link);
    if (link == NULL) return NULL;
    link->fd = -1;
    token_random(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++) snprintf(link->id + 2 * i, 3, "%02x", random[i]);
    return link;
}

/* True if the connection is idle and open: a closed one is readable. */
bool redis_link_is_usable(const struct redis_link *link)
{
    char byte;
    return link->fd >= 0 && descriptors_is_same(&link->identity) &&
           recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void redis_link_disconnect(struct redis_link *link, bool forked)
{
    if (link->fd >= 0 && !forked) {
        if (descriptors_is_same(&link->identity))
            socket_close(link->fd);
        else
            forked_forgets(link->fd); /* the program has closed it */
    }
    if (link->reader != NULL) redisReaderFree(link->reader);
    link->reader = NULL;
    link->received = 0;
    link->fd = -1;
}

void redis_link_free(struct redis_link *link, bool forked)
{
    redis_link_disconnect(link, forked);
    free(link);
}
