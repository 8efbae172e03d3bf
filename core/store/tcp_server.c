#include "store/tcp_server.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "store/address.h"
#include "store/tcp_admission.h"
#include "store/tcp_conn.h"

static void server_on_connection(uv_stream_t *listener, int status)
{
    struct tcp_server *server = listener->data;
    if (server->stopping) return;
    if (status == 0) {
        conn_accept(server);
    } else if (!server->warned) { /* libuv has dropped what it could not accept, so this does not spin */
        server->warned = true;
        log_write(LOG_WARN, "tcp store: a connection cannot be accepted: %s%s", uv_strerror(status),
                  status == UV_EMFILE ? "; raise `ulimit -n` (it must exceed the number of ranks)" : "");
    }
}

static void server_on_stop(uv_async_t *async)
{
    struct tcp_server *server = async->data;
    struct conn *conn, *next;
    server->stopping = true;
    DL_FOREACH_SAFE(server->strangers, conn, next) conn_close(conn);
    DL_FOREACH_SAFE(server->clients, conn, next) conn_close(conn);
    conn_close_socket(&server->listener, NULL);
    uv_close((uv_handle_t *)&server->stop, NULL);
}

static void *server_run(void *argument)
{
    struct tcp_server *server = argument;
    uv_run(&server->loop, UV_RUN_DEFAULT); /* until every handle is closed */
    return NULL;
}

/* ---- starting ----------------------------------------------------------------------------------------------- */

static int server_check_address(const struct sockaddr *address, const char *text, const uint8_t token[32],
                                bool insecure)
{
    if (address_is_any(address))
        return error_set(TUTTI_ERR_STORE,
                         "tcp store: %s stands for every address of this machine, and a server binds exactly one: give "
                         "127.0.0.1, or the address that the other hosts reach",
                         text);
    if (!token_is_none(token) || address_is_loopback(address) || insecure || env_bool("TUTTI_INSECURE", false))
        return TUTTI_OK;
    return error_set(
        TUTTI_ERR_STORE,
        "tcp store: %s is not a loopback address and there is no job token, so anybody who reaches it could "
        "join: set TUTTI_TOKEN_FILE or TUTTI_TOKEN, the same on all hosts, or TUTTI_INSECURE=1 on a network "
        "that you trust",
        text);
}

static int server_bind(struct tcp_server *server, const struct sockaddr *address)
{
    int status = uv_tcp_init(&server->loop, &server->listener); /* libuv's sockets are close-on-exec */
    if (status != 0) return status;
    server->listener.data = server;
    status = uv_tcp_bind(&server->listener, address, address->sa_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0);
    /* As many as the system allows (somaxconn): a SYN that finds no place comes again only after a second. */
    if (status == 0) status = uv_listen((uv_stream_t *)&server->listener, INT_MAX, server_on_connection);
    if (status == 0) conn_forked_gives_up(&server->listener);
    if (status == 0) return 0;
    conn_close_socket(&server->listener, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    return status;
}

static int server_bind_error(int status, const char *text)
{
    switch (status) {
    case UV_EADDRINUSE:
        return error_set(
            TUTTI_ERR_STORE,
            "tcp store: %s is in use: another job, another rank 0 or another program listens there; choose "
            "another port, or 0 for any free one",
            text);
    case UV_EADDRNOTAVAIL:
        return error_set(TUTTI_ERR_STORE,
                         "tcp store: %s is no address of this machine, and the server must run where it is", text);
    case UV_EACCES:
        return error_set(TUTTI_ERR_STORE, "tcp store: %s: no permission to listen on this port; choose one above 1023",
                         text);
    default:
        return error_set(TUTTI_ERR_SYSTEM, "tcp store: cannot listen on %s: %s", text, uv_strerror(status));
    }
}

/* Debian gives a machine's own name to 127.0.1.1: a server that takes it there is found by nobody else. */
static void server_warn_of_loopback(const char *host, const struct sockaddr *address)
{
    char number[INET6_ADDRSTRLEN] = "";
    if (!address_is_loopback(address) || strncmp(host, "localhost", 9) == 0) return;
    uv_ip_name(address, number, sizeof number);
    if (strcmp(number, host) != 0 && strncmp(host, "127.", 4) != 0 && strchr(host, ':') == NULL)
        log_write(LOG_WARN,
                  "tcp store: %.200s is %s on this machine, so ranks on other hosts cannot reach it: give an address "
                  "that they can, or correct /etc/hosts",
                  host, number);
}

/* Binds the first of host's addresses that this machine has. */
static int server_listen(struct tcp_server *server, const char *host, uint16_t port, bool insecure)
{
    char text[ADDRESS_TEXT_MAX];
    struct addrinfo *list;
    address_text(host, port, text);
    int failure = address_resolve(host, port, &list);
    if (failure != 0)
        return error_set(TUTTI_ERR_STORE, "tcp store: \"%.200s\" cannot be resolved: %s", host, gai_strerror(failure));
    int bound = UV_EADDRNOTAVAIL, status = TUTTI_OK;
    for (struct addrinfo *at = list; at != NULL && bound == UV_EADDRNOTAVAIL && status == TUTTI_OK; at = at->ai_next) {
        status = server_check_address(at->ai_addr, text, server->token, insecure);
        if (status == TUTTI_OK) bound = server_bind(server, at->ai_addr);
        if (status == TUTTI_OK && bound == 0) server_warn_of_loopback(host, at->ai_addr);
    }
    freeaddrinfo(list);
    if (status == TUTTI_OK && bound != 0) status = server_bind_error(bound, text);
    return status;
}

static void server_read_port(struct tcp_server *server)
{
    struct sockaddr_storage address;
    int bytes = sizeof address;
    if (uv_tcp_getsockname(&server->listener, (struct sockaddr *)&address, &bytes) == 0)
        server->port = address_port((struct sockaddr *)&address);
}

static int server_start_thread(struct tcp_server *server)
{
    int failure = thread_start(&server->thread, server_run, server);
    if (failure == 0) return TUTTI_OK;
    errno = failure;
    return error_errno(TUTTI_ERR_SYSTEM, "tcp store: the server's thread cannot be started");
}

static int server_open(struct tcp_server *server, const char *host, uint16_t port, bool insecure)
{
    int status = server_listen(server, host, port, insecure);
    if (status != TUTTI_OK) return status;
    server_read_port(server);
    server->stop.data = server;
    int failure = uv_async_init(&server->loop, &server->stop, server_on_stop);
    if (failure == 0) {
        status = server_start_thread(server);
        if (status == TUTTI_OK) return TUTTI_OK;
        uv_close((uv_handle_t *)&server->stop, NULL);
    } else {
        status = error_set(TUTTI_ERR_SYSTEM, "tcp store: %s", uv_strerror(failure));
    }
    conn_close_socket(&server->listener, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    return status;
}

int server_start(const char *host, uint16_t port, const uint8_t token[32], bool insecure, int expected,
                 struct tcp_server **out)
{
    struct tcp_server *server = calloc(1, sizeof *server);
    if (server == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "tcp store: out of memory");
    memcpy(server->token, token, TOKEN_BYTES);
    server->expected = expected;
    int status = store_max_bytes(&server->table.max_bytes);
    int failure = status == TUTTI_OK ? uv_loop_init(&server->loop) : 0;
    if (failure != 0) status = error_set(TUTTI_ERR_SYSTEM, "tcp store: %s", uv_strerror(failure));
    if (status == TUTTI_OK) {
        status = server_open(server, host, port, insecure);
        if (status != TUTTI_OK) uv_loop_close(&server->loop);
    }
    if (status != TUTTI_OK) {
        free(server);
        return status;
    }
    log_write(LOG_INFO, "tcp store: serving %s port %u%s", host, server->port,
              token_is_none(token) ? ", without a job token" : "");
    admission_check_descriptors(server->expected);
    *out = server;
    return TUTTI_OK;
}

/* ---- the rest ----------------------------------------------------------------------------------------------- */

uint16_t server_port(const struct tcp_server *server)
{
    return server->port;
}

int server_clients(const struct tcp_server *server)
{
    return atomic_load_explicit(&server->n_clients, memory_order_relaxed);
}

void server_stop(struct tcp_server *server, bool forked)
{
    if (server == NULL || forked) return; /* in a child the loop may be in any state: its memory is left */
    uv_async_send(&server->stop);
    pthread_join(server->thread, NULL);
    uv_loop_close(&server->loop);
    table_free(&server->table);
    token_wipe(server->token, sizeof server->token);
    free(server);
}
