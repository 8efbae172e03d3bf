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

static void on_connection(uv_stream_t *listener, int status)
{
    struct tcp_server *server = listener->data;
    if (server->stopping) return;
    if (status == 0) {
        conn_accept(server);
    } else if (!server->warned) { /* libuv has dropped the connection, so this does not spin */
        server->warned = true;
        log_write(LOG_WARN, LOG_STORE, "tcp store: a connection cannot be accepted: %s%s", uv_strerror(status),
                  status == UV_EMFILE ? "; raise `ulimit -n` (it must exceed the number of ranks)" : "");
    }
}

static void on_stop(uv_async_t *async)
{
    struct tcp_server *server = async->data;
    struct conn *conn, *next;
    server->stopping = true;
    DL_FOREACH_SAFE(server->unauthenticated, conn, next) conn_close(conn);
    DL_FOREACH_SAFE(server->clients, conn, next) conn_close(conn);
    conn_close_socket(&server->listener, NULL);
    uv_close((uv_handle_t *)&server->stop, NULL);
}

static void *run_loop(void *argument)
{
    struct tcp_server *server = argument;
    uv_run(&server->loop, UV_RUN_DEFAULT); /* until every handle is closed */
    return NULL;
}

/* ---- starting ----------------------------------------------------------------------------------------------- */

static int check_address(const struct sockaddr *address, const char *text, const uint8_t token[32], bool insecure)
{
    if (address_is_any(address))
        return error_set(
            TUTTI_ERR_STORE,
            "tcp store: %s means every address of this host and a server binds exactly one; give 127.0.0.1, or the "
            "address by which other hosts reach this one",
            text);
    if (!token_is_none(token) || address_is_loopback(address) || insecure || env_bool("TUTTI_INSECURE", false))
        return TUTTI_OK;
    return error_set(
        TUTTI_ERR_STORE,
        "tcp store: %s is not a loopback address and there is no job token, so anyone who can reach it could join; set "
        "TUTTI_TOKEN_FILE or TUTTI_TOKEN to the same token on all hosts, or TUTTI_INSECURE=1 on a trusted network",
        text);
}

static int bind_address(struct tcp_server *server, const struct sockaddr *address)
{
    int status = uv_tcp_init(&server->loop, &server->listener); /* libuv opens sockets with close-on-exec */
    if (status != 0) return status;
    server->listener.data = server;
    status = uv_tcp_bind(&server->listener, address, address->sa_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0);
    /* The largest backlog that the system allows (somaxconn): a SYN that is dropped is sent again only after 1 s. */
    if (status == 0) status = uv_listen((uv_stream_t *)&server->listener, INT_MAX, on_connection);
    if (status == 0) conn_forked_gives_up(&server->listener);
    if (status == 0) return 0;
    conn_close_socket(&server->listener, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    return status;
}

static int report_bind_error(int status, const char *text)
{
    switch (status) {
    case UV_EADDRINUSE:
        return error_set(TUTTI_ERR_STORE,
                         "tcp store: %s is in use by another job, another rank 0 or another program; choose another "
                         "port, or 0 for any "
                         "free one",
                         text);
    case UV_EADDRNOTAVAIL:
        return error_set(TUTTI_ERR_STORE,
                         "tcp store: %s is not an address of this host; run the server on the host that owns it", text);
    case UV_EACCES:
        return error_set(TUTTI_ERR_STORE, "tcp store: no permission to listen on %s; choose a port above 1023", text);
    default:
        return error_set(TUTTI_ERR_SYSTEM, "tcp store: cannot listen on %s: %s", text, uv_strerror(status));
    }
}

/* Warns if the host resolves to a loopback address.  Debian maps a host's own name to 127.0.1.1, and a server that
 * listens there cannot be reached from other hosts. */
static void warn_if_loopback(const char *host, const struct sockaddr *address)
{
    char number[INET6_ADDRSTRLEN] = "";
    if (!address_is_loopback(address) || strncmp(host, "localhost", 9) == 0) return;
    if (address->sa_family == AF_INET6)
        uv_ip6_name((const struct sockaddr_in6 *)address, number, sizeof number);
    else
        uv_ip4_name((const struct sockaddr_in *)address, number, sizeof number);
    if (strcmp(number, host) != 0 && strncmp(host, "127.", 4) != 0 && strchr(host, ':') == NULL)
        log_write(LOG_WARN, LOG_STORE,
                  "tcp store: %.200s resolves to %s on this host, which other hosts cannot reach; give an address that "
                  "they can "
                  "reach, or correct /etc/hosts",
                  host, number);
}

/* Binds the first address of host that this machine has. */
static int listen_on_host(struct tcp_server *server, const char *host, uint16_t port, bool insecure)
{
    char text[ADDRESS_TEXT_MAX];
    struct addrinfo *list;
    address_text(host, port, text);
    int failure = address_resolve(host, port, &list);
    if (failure != 0)
        return error_set(TUTTI_ERR_STORE, "tcp store: cannot resolve \"%.200s\": %s", host, address_strerror(failure));
    int bound = UV_EADDRNOTAVAIL, status = TUTTI_OK;
    for (struct addrinfo *at = list; at != NULL && bound == UV_EADDRNOTAVAIL && status == TUTTI_OK; at = at->ai_next) {
        status = check_address(at->ai_addr, text, server->token, insecure);
        if (status == TUTTI_OK) bound = bind_address(server, at->ai_addr);
        if (status == TUTTI_OK && bound == 0) warn_if_loopback(host, at->ai_addr);
    }
    freeaddrinfo(list);
    if (status == TUTTI_OK && bound != 0) status = report_bind_error(bound, text);
    return status;
}

static void read_port(struct tcp_server *server)
{
    struct sockaddr_storage address;
    int bytes = sizeof address;
    if (uv_tcp_getsockname(&server->listener, (struct sockaddr *)&address, &bytes) == 0)
        server->port = address_port((struct sockaddr *)&address);
}

static int start_thread(struct tcp_server *server)
{
    int failure = thread_start(&server->thread, run_loop, server);
    if (failure == 0) return TUTTI_OK;
    errno = failure;
    return error_errno(TUTTI_ERR_SYSTEM, "tcp store: cannot start the server's thread");
}

static int open_server(struct tcp_server *server, const char *host, uint16_t port, bool insecure)
{
    int status = listen_on_host(server, host, port, insecure);
    if (status != TUTTI_OK) return status;
    read_port(server);
    server->stop.data = server;
    int failure = uv_async_init(&server->loop, &server->stop, on_stop);
    if (failure == 0) {
        status = start_thread(server);
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
    if (server == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "tcp store: out of memory for the server's %zu bytes", sizeof *server);
    memcpy(server->token, token, TOKEN_BYTES);
    server->expected = expected;
    int status = store_max_bytes(&server->table.max_bytes);
    int failure = status == TUTTI_OK ? uv_loop_init(&server->loop) : 0;
    if (failure != 0) status = error_set(TUTTI_ERR_SYSTEM, "tcp store: %s", uv_strerror(failure));
    if (status == TUTTI_OK) {
        status = open_server(server, host, port, insecure);
        if (status != TUTTI_OK) uv_loop_close(&server->loop);
    }
    if (status != TUTTI_OK) {
        token_wipe(server->token, sizeof server->token);
        free(server);
        return status;
    }
    log_write(LOG_INFO, LOG_STORE, "tcp store: serving %s port %u%s", host, server->port,
              token_is_none(token) ? ", without a job token" : "");
    admission_check_descriptors(server->expected);
    *out = server;
    return TUTTI_OK;
}

/* ---- state and stopping ------------------------------------------------------------------------------------- */

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
    if (server == NULL || forked)
        return; /* a forked child's copy of the loop may be inconsistent, so its memory is
                   left alone */
    uv_async_send(&server->stop);
    pthread_join(server->thread, NULL);
    uv_loop_close(&server->loop);
    table_free(&server->table);
    token_wipe(server->token, sizeof server->token);
    free(server);
}
