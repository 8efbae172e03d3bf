/* Client of the tcp store: a small pool of connections.  Each call borrows one, so a call that waits at the server
 * does not delay others. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sized.h"
#include "store/store_impl.h"
#include "store/tcp_link.h"
#include "store/tcp_server.h"

enum {
    CLIENT_POOL_MAX = 4,          /* idle connections kept; further concurrent calls open their own */
    CLIENT_OWN_MS = 10000,        /* to connect to this process's own server, which already listens */
    CLIENT_GRACE_MS = 2000,       /* for the server's TIMEOUT reply to arrive after the deadline */
    CLIENT_UNRESOLVED_MS = 30000, /* for a host name to become resolvable */
    CLIENT_RETRY_MS = 10,         /* pause between attempts; doubles up to CLIENT_RETRY_MAX_MS */
    CLIENT_RETRY_MAX_MS = 250,
    CLIENT_BUSY_MAX_MS = 2000, /* maximum pause after the server dropped the connection: each attempt costs it work */
    CLIENT_WARN_MS = 5000
};

struct client {
    tutti_store base;
    struct link_target target;
    struct tcp_server *server; /* NULL if this process does not run the server */
    pthread_mutex_t lock;
    struct link *idle;
    int n_idle;
};

/* ---- the pool ----------------------------------------------------------------------------------------------- */

static int64_t add_grace(int64_t deadline_ns)
{
    int64_t least = clock_deadline_ns(CLIENT_GRACE_MS);
    if (deadline_ns == CLOCK_NEVER) return CLOCK_NEVER;
    int64_t later = deadline_ns + (int64_t)CLIENT_GRACE_MS * 1000000;
    return later > least ? later : least;
}

static struct link *pop_idle(struct client *client)
{
    pthread_mutex_lock(&client->lock);
    struct link *link = client->idle;
    if (link != NULL) {
        client->idle = link->next;
        client->n_idle--;
    }
    pthread_mutex_unlock(&client->lock);
    return link;
}

static void return_link(struct client *client, struct link *link)
{
    pthread_mutex_lock(&client->lock);
    bool keep = client->n_idle < CLIENT_POOL_MAX;
    if (keep) {
        link->next = client->idle;
        client->idle = link;
        client->n_idle++;
    }
    pthread_mutex_unlock(&client->lock);
    if (!keep) link_close(link, false);
}

/* Sleeps before the next attempt.  The random part spreads the retries of a thousand clients refused at once. */
static void back_off(int *pause_ms, int most_ms, int64_t deadline_ns)
{
    uint8_t random;
    token_random(&random, 1);
    int sleep_ms = *pause_ms / 2 + *pause_ms * random / 510;
    int left = clock_left_ms(deadline_ns);
    if (left >= 0 && sleep_ms > left) sleep_ms = left;
    struct timespec pause = clock_timespec((int64_t)sleep_ms * 1000000);
    nanosleep(&pause, NULL);
    *pause_ms = 2 * *pause_ms > most_ms ? most_ms : 2 * *pause_ms;
}

/* Returns an idle connection that is still usable, or opens one.  The server was reachable before, so failing to reach
 * it is final; a connection that the server drops is retried. */
static int borrow_link(struct client *client, int64_t deadline_ns, struct link **link)
{
    while ((*link = pop_idle(client)) != NULL) {
        if (link_is_usable(*link)) return TUTTI_OK;
        link_close(*link, false);
    }
    enum link_retry retry;
    for (int pause_ms = CLIENT_RETRY_MS;; back_off(&pause_ms, CLIENT_BUSY_MAX_MS, deadline_ns)) {
        int status = link_open(&client->target, deadline_ns, link, &retry);
        if (status == TUTTI_OK || retry != LINK_BUSY || clock_now_ns() >= deadline_ns) return status;
    }
}

static int call_server(tutti_store *store, const struct store_request *request, struct store_reply *reply)
{
    struct client *client = (struct client *)store;
    int64_t deadline_ns = request->prompt ? request->deadline_ns : add_grace(request->deadline_ns);
    struct link *link = NULL;
    int status = borrow_link(client, deadline_ns, &link);
    if (status != TUTTI_OK) return status;
    status = link_call(link, &client->target, request, deadline_ns, reply);
    if (status == TUTTI_OK)
        return_link(client, link);
    else
        link_close(link, false);
    return status;
}

/* ---- opening and closing ------------------------------------------------------------------------------------ */

static bool is_unresolvable(const struct link_target *target)
{
    struct addrinfo *list;
    if (address_resolve(target->host, target->port, &list) != 0) return true;
    freeaddrinfo(list);
    return false;
}

/* Opens the first connection.  Retries until the deadline, because the server may start after its clients. */
static int connect_first(struct client *client, int64_t deadline_ns)
{
    int64_t own_ns = clock_deadline_ns(CLIENT_OWN_MS);
    if (client->server != NULL && deadline_ns > own_ns) deadline_ns = own_ns;
    int64_t begun = clock_now_ns(), warn_at = begun + (int64_t)CLIENT_WARN_MS * 1000000;
    int64_t unresolved_at = begun + (int64_t)CLIENT_UNRESOLVED_MS * 1000000;
    struct link *link = NULL;
    for (int pause_ms = CLIENT_RETRY_MS, most_ms;; back_off(&pause_ms, most_ms, deadline_ns)) {
        enum link_retry retry;
        int status = link_open(&client->target, deadline_ns, &link, &retry);
        most_ms = retry == LINK_BUSY ? CLIENT_BUSY_MAX_MS : CLIENT_RETRY_MAX_MS;
        if (status == TUTTI_OK) {
            link_settle(link, &client->target);
            return_link(client, link);
            return TUTTI_OK;
        }
        int64_t now = clock_now_ns();
        if (retry == LINK_FINAL || (now > unresolved_at && is_unresolvable(&client->target))) return status;
        if (now >= deadline_ns)
            return error_prefix(status == TUTTI_ERR_TIMEOUT ? TUTTI_ERR_STORE : status,
                                client->server == NULL
                                    ? "gave up after %lld ms"
                                    : "this process did not reach its own store within %lld ms; check that lo is up",
                                (long long)((now - begun) / 1000000));
        if (now > warn_at) {
            log_write(LOG_WARN, LOG_STORE, "still waiting for the store: %s", error_text());
            warn_at = INT64_MAX;
        }
    }
}

static void close_client(tutti_store *store)
{
    struct client *client = (struct client *)store;
    bool forked = store_is_forked(store);
    while (client->idle != NULL) {
        struct link *link = client->idle;
        client->idle = link->next;
        link_close(link, forked);
    }
    server_stop(client->server, forked);
    if (!forked) pthread_mutex_destroy(&client->lock);
    token_wipe(&client->target, sizeof client->target);
    free(client);
}

static uint16_t port_of_server(const tutti_store *store)
{
    return ((const struct client *)store)->target.port;
}

/* Counts the connections to this process's server except idle ones of this client. */
static int count_other_connections(struct client *client)
{
    pthread_mutex_lock(&client->lock); /* other threads may be returning connections */
    int idle = client->n_idle;
    pthread_mutex_unlock(&client->lock);
    return server_clients(client->server) - idle;
}

static int linger(tutti_store *store, int64_t deadline_ns)
{
    struct client *client = (struct client *)store;
    int others;
    while (client->server != NULL && (others = count_other_connections(client)) > 0) {
        if (clock_now_ns() >= deadline_ns)
            return error_set(TUTTI_ERR_TIMEOUT, "%s: %d clients are still connected after the timeout", store->name,
                             others);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return TUTTI_OK;
}

static const struct store_class client_class = {
    .call = call_server, .close = close_client, .port = port_of_server, .linger = linger};

static int get_token(struct client *client, const tutti_store_opts *opts)
{
    bool present;
    if (opts->token == NULL) return token_get(client->target.token, &present);
    memcpy(client->target.token, opts->token, TOKEN_BYTES);
    return token_init();
}

static int open_client(struct client *client, const tutti_store_opts *opts)
{
    struct link_target *target = &client->target;
    int status = get_token(client, opts);
    if (status == TUTTI_OK && opts->server)
        status =
            server_start(target->host, target->port, target->token, opts->insecure, opts->world_size, &client->server);
    if (status != TUTTI_OK) return status;
    if (client->server != NULL) target->port = server_port(client->server);
    address_text(target->host, target->port, target->text);
    snprintf(client->base.name, sizeof client->base.name, "tcp store %s", target->text);
    return connect_first(client, clock_deadline_ns(client->base.timeout_ms));
}

int tutti_store_tcp_sized(const char *host, uint16_t port, const tutti_store_opts *opts, size_t opts_bytes,
                          tutti_store **store)
{
    tutti_store_opts known;
    static const tutti_store_opts defaults;
    if (store == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tutti_store_tcp: store is NULL; pass an address for the handle");
    *store = NULL;
    int status = SIZED_READ(tutti_store_opts, opts, opts_bytes, &known);
    if (status != TUTTI_OK) return status;
    if (opts == NULL) opts = &defaults;
    if (opts->world_size < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "tutti_store_tcp: world_size is %d; it must be positive, or 0 if unknown", opts->world_size);
    if (port == 0 && !opts->server)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "tutti_store_tcp: port is 0; only a server can choose any free port");
    struct client *client = calloc(1, sizeof *client);
    if (client == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "tutti_store_tcp: out of memory for %zu bytes", sizeof *client);
    client->target.port = port;
    pthread_mutex_init(&client->lock, NULL);
    status = store_base_init(&client->base, &client_class, opts);
    if (status == TUTTI_OK) status = address_host(host, client->target.host);
    if (status == TUTTI_OK) status = open_client(client, opts);
    if (status != TUTTI_OK) {
        close_client(&client->base);
        return status;
    }
    *store = &client->base;
    return TUTTI_OK;
}
