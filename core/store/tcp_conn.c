/* A client's connection at the server: handshake, then one request at a time.
 *
 * A client sends a request only after it has received the whole reply to the previous one.  So a connection holds at
 * most one frame in and one reply out, and the server closes a connection that breaks this rule.  A request that must
 * wait is kept by tcp_queue.c and is run again by the request that creates its key.
 */
#include "store/tcp_conn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/forked.h"
#include "base/log.h"
#include "store/tcp_admission.h"
#include "store/tcp_queue.h"

/* Bytes on their way to the client. */
struct output {
    uv_write_t write;
    struct conn *conn;
    size_t counted; /* part of server->buffered */
    bool last;      /* close the connection once it is written */
    uint8_t data[];
};

static void run_request(struct conn *conn);
static void accept_pending(struct tcp_server *server);

/* ---- closing ------------------------------------------------------------------------------------------------ */

void conn_forked_gives_up(const uv_tcp_t *tcp)
{
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)tcp, &fd) == 0) forked_gives_up(fd);
}

void conn_close_socket(uv_tcp_t *tcp, uv_close_cb closed)
{
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)tcp, &fd) == 0) forked_forgets(fd);
    uv_close((uv_handle_t *)tcp, closed);
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    if (--conn->handles > 0) return;
    struct tcp_server *server = conn->server;
    if (conn->buffer != conn->handshake_buffer) free(conn->buffer);
    free(conn->slices);
    token_wipe(conn, sizeof *conn);
    free(conn);
    if (!server->stopping) queue_resume_parked(server, run_request); /* its partial frame no longer takes memory */
}

static void set_capacity(struct conn *conn, size_t capacity)
{
    conn->server->buffered -= queue_counted_bytes(conn);
    conn->capacity = capacity;
    conn->server->buffered += queue_counted_bytes(conn);
}

void conn_close(struct conn *conn)
{
    struct tcp_server *server = conn->server;
    if (conn->state == CONN_CLOSING) return;
    if (conn->state == CONN_READY) {
        DL_DELETE(server->clients, conn);
        atomic_fetch_sub_explicit(&server->n_clients, 1, memory_order_relaxed); /* relaxed: no other data depends on
                                                                                   it */
    } else {
        DL_DELETE(server->unauthenticated, conn);
        server->n_unauthenticated--;
    }
    conn->state = CONN_CLOSING;
    queue_leave(conn);
    queue_unpark(conn);
    set_capacity(conn, 0);
    conn_close_socket(&conn->tcp, on_closed);
    uv_close((uv_handle_t *)&conn->timer, on_closed);
    accept_pending(server);
}

/* ---- timers ------------------------------------------------------------------------------------------------- */

static void send_reply(struct conn *conn, struct store_reply *reply);

/* True if the socket has bytes that this loop has not read yet: libuv runs timers before sockets. */
static bool has_unread_bytes(const struct conn *conn)
{
    uv_os_fd_t fd;
    int bytes = 0;
    return uv_fileno((const uv_handle_t *)&conn->tcp, &fd) == 0 && ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct conn *conn = timer->data;
    if (conn->state != CONN_READY && has_unread_bytes(conn)) { /* the server is late, not the client */
        /* Runs again after the sockets, and CONN_AUTH_BYTES bounds the repeats.  Not 0 ms: libuv 1.44 runs a timer that
         * is due within its loop over the timers, so the loop would not end. */
        uv_timer_start(timer, on_timer, 1, 0);
        return;
    }
    if (conn->queue == NULL) { /* unauthenticated, or a client that does not read its reply */
        conn_close(conn);
        return;
    }
    struct store_reply reply;
    queue_leave(conn);
    table_timeout(&conn->server->table, &conn->request, &reply);
    send_reply(conn, &reply);
}

/* Logs the 1st, 2nd, 4th, 8th .. refusal only, so that repeated attempts cannot fill the log. */
static void log_refusal(struct tcp_server *server, const char *what)
{
    unsigned times = ++server->refused;
    if ((times & (times - 1)) == 0) log_write(LOG_WARN, LOG_STORE, "tcp store: %s (refused so far: %u)", what, times);
}

/* ---- replies ------------------------------------------------------------------------------------------------ */

static void on_written(uv_write_t *write, int status)
{
    struct output *out = (struct output *)write;
    struct conn *conn = out->conn;
    struct tcp_server *server = conn->server;
    server->buffered -= out->counted;
    bool last = out->last;
    free(out);
    if (status != 0 || last)
        conn_close(conn);
    else if (conn->state == CONN_READY && !conn->busy)
        uv_timer_stop(&conn->timer);
    if (!server->stopping) queue_resume_parked(server, run_request); /* also if conn is closing: memory became free */
}

static struct output *new_output(struct conn *conn, size_t bytes)
{
    struct output *out = malloc(sizeof *out + bytes);
    if (out == NULL) return NULL;
    *out = (struct output){.conn = conn, .counted = bytes > CONN_BUFFER_BYTES ? bytes : 0};
    conn->server->buffered += out->counted;
    return out;
}

static void write_output(struct conn *conn, struct output *out, size_t bytes)
{
    uv_buf_t buffer = uv_buf_init((char *)out->data, (unsigned)bytes);
    if (uv_write(&out->write, (uv_stream_t *)&conn->tcp, &buffer, 1, on_written) != 0) {
        conn->server->buffered -= out->counted;
        free(out);
        conn_close(conn);
    }
}

/* Releases the memory of the finished request, before its reply is sent. */
static void end_request(struct conn *conn)
{
    free(conn->slices);
    conn->slices = NULL;
    conn->busy = false;
    conn->fill = 0;
    uv_timer_stop(&conn->timer);
    if (conn->capacity <= CONN_BUFFER_BYTES) return;
    uint8_t *smaller = realloc(conn->buffer, CONN_BUFFER_BYTES);
    if (smaller == NULL) return;
    conn->buffer = smaller;
    set_capacity(conn, CONN_BUFFER_BYTES);
}

/* Sends the reply and frees it. */
static void send_reply(struct conn *conn, struct store_reply *reply)
{
    end_request(conn);
    size_t bytes = wire_reply_bytes(reply), total = 4 + bytes + SEAL_TAG_BYTES;
    struct output *out = new_output(conn, total);
    if (out != NULL) {
        wire_put_u32(out->data, (uint32_t)(bytes + SEAL_TAG_BYTES));
        wire_put_reply(out->data + 4, reply);
        seal_close(&conn->out, out->data + 4, bytes, out->data, 4);
        write_output(conn, out, total);
        if (conn->state == CONN_READY && uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp) > 0)
            uv_timer_start(&conn->timer, on_timer, CONN_STALL_MS, 0);
    } else {
        conn_close(conn);
    }
    store_reply_free(reply);
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

static void start_deadline(struct conn *conn)
{
    int64_t left = wire_timeout_ms(conn->request.deadline_ns);
    if (left == TUTTI_INFINITE) return;
    uv_update_time(&conn->server->loop); /* libuv does not update its clock during a callback */
    uv_timer_start(&conn->timer, on_timer, (uint64_t)left, 0);
}

/* Executes the connection's request, or leaves it waiting for a key or for memory. */
static void run_request(struct conn *conn)
{
    struct tcp_server *server = conn->server;
    struct store_reply reply;
    int missing;
    bool may_be_large = conn->request.op == STORE_GET || conn->request.op == STORE_COMPARE_SET; /* the reply */
    if (may_be_large && queue_is_crowded(server, queue_counted_bytes(conn))) {
        uv_timer_stop(&conn->timer);
        queue_park(conn);
        return;
    }
    if (!table_apply(&server->table, &conn->request, &reply, &missing)) {
        if (queue_join(conn, &conn->request.keys[missing])) {
            start_deadline(conn);
            return;
        }
        store_reply_error(&reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
    }
    if (store_op_writes(conn->request.op))
        for (int i = 0; i < conn->request.n_keys; i++) queue_wake(server, &conn->request.keys[i], run_request);
    send_reply(conn, &reply);
}

static void start_request(struct conn *conn, uint8_t *frame, size_t bytes)
{
    int64_t timeout_ms;
    if (uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp) >
        0) { /* the client cannot have received the whole last reply */
        log_refusal(conn->server, "closed a connection whose client sent a request before it received its reply");
        conn_close(conn);
        return;
    }
    if (!seal_open(&conn->in, frame + 4, bytes, frame, 4) ||
        wire_parse_request(frame + 4, bytes - SEAL_TAG_BYTES, &conn->request, &conn->slices, &timeout_ms) != TUTTI_OK) {
        log_refusal(conn->server, "closed a connection whose client sent an altered or malformed frame");
        conn_close(conn);
        return;
    }
    conn->request.deadline_ns = clock_deadline_ns(timeout_ms);
    conn->busy = true;
    conn->server->table.n_requests++;
    run_request(conn);
}

/* Receives a frame: a size of 4 bytes and that many sealed bytes. */
static void receive_frame(struct conn *conn)
{
    if (conn->fill < 4) return;
    size_t bytes = wire_get_u32(conn->buffer), total = 4 + bytes;
    if (bytes <= SEAL_TAG_BYTES || bytes > WIRE_PAYLOAD_MAX + SEAL_TAG_BYTES || conn->fill > total) {
        conn_close(conn);
    } else if (conn->fill == total) {
        start_request(conn, conn->buffer, bytes);
    } else if (total > conn->capacity) {
        uint8_t *larger =
            conn->server->buffered > 2 * conn->server->table.max_bytes ? NULL : realloc(conn->buffer, total);
        if (larger == NULL) {
            log_write(LOG_WARN, LOG_STORE, "tcp store: out of memory for a request of %zu bytes; closed its connection",
                      total);
            conn_close(conn);
            return;
        }
        conn->buffer = larger;
        set_capacity(conn, total);
    }
}

/* ---- handshake ---------------------------------------------------------------------------------------------- */

static void receive_hello(struct conn *conn)
{
    struct output *out = NULL;
    if (!handshake_begins_well(conn->buffer, conn->fill) || conn->fill > HANDSHAKE_HELLO_BYTES) {
        conn_close(conn);
        return;
    }
    if (conn->fill < HANDSHAKE_HELLO_BYTES) return;
    enum handshake_answer answer = handshake_take_hello(&conn->shake, HANDSHAKE_SERVER, conn->buffer);
    if (answer != HANDSHAKE_NOT_OURS) out = new_output(conn, HANDSHAKE_HELLO_BYTES);
    if (out == NULL) {
        conn_close(conn);
        return;
    }
    handshake_start(&conn->shake, HANDSHAKE_SERVER, out->data);
    out->last = answer != HANDSHAKE_OK; /* the hello has this server's version, for the error message of the client */
    conn->state = CONN_PROOF;
    conn->fill = 0;
    write_output(conn, out, HANDSHAKE_HELLO_BYTES);
}

/* Makes the connection that of an authenticated client.  Returns false if out of memory. */
static bool admit_client(struct conn *conn)
{
    uint8_t *buffer = malloc(CONN_BUFFER_BYTES);
    if (buffer == NULL) return false;
    conn->buffer = buffer;
    conn->capacity = CONN_BUFFER_BYTES;
    handshake_keys(&conn->shake, &conn->in, &conn->out);
    token_wipe(&conn->shake, sizeof conn->shake);
    uv_timer_stop(&conn->timer);
    DL_DELETE(conn->server->unauthenticated, conn);
    conn->server->n_unauthenticated--;
    DL_APPEND(conn->server->clients, conn);
    atomic_fetch_add_explicit(&conn->server->n_clients, 1, memory_order_relaxed); /* relaxed: as in conn_close */
    conn->state = CONN_READY;
    accept_pending(conn->server);
    return true;
}

static void receive_proof(struct conn *conn)
{
    if (conn->fill < HANDSHAKE_PROOF_BYTES) return;
    bool proved = conn->fill == HANDSHAKE_PROOF_BYTES && handshake_verify(&conn->shake, HANDSHAKE_CLIENT, conn->buffer);
    struct output *out = new_output(conn, HANDSHAKE_VERDICT_BYTES);
    if (out == NULL) {
        conn_close(conn);
        return;
    }
    memset(out->data, 0, HANDSHAKE_VERDICT_BYTES);
    out->last = !proved;
    out->data[0] = proved;
    conn->fill = 0;
    if (proved) handshake_prove(&conn->shake, HANDSHAKE_SERVER, out->data + 8);
    if (proved && !admit_client(conn)) {
        free(out);
        conn_close(conn);
        return;
    }
    if (!proved) log_refusal(conn->server, "refused a client whose job token is another one or missing");
    write_output(conn, out, HANDSHAKE_VERDICT_BYTES);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    struct conn *conn = handle->data;
    static char discarded[1]; /* bytes that arrive during a request break the protocol and are ignored */
    if (conn->busy || conn->fill >= conn->capacity)
        *buffer = uv_buf_init(discarded, sizeof discarded);
    else
        *buffer = uv_buf_init((char *)conn->buffer + conn->fill, (unsigned)(conn->capacity - conn->fill));
}

static void on_read(uv_stream_t *stream, ssize_t bytes, const uv_buf_t *buffer)
{
    struct conn *conn = stream->data;
    if (bytes == 0 || conn->state == CONN_CLOSING) return;
    if (bytes < 0 || (uint8_t *)buffer->base != conn->buffer + conn->fill) {
        conn_close(conn);
        return;
    }
    conn->fill += (size_t)bytes;
    if (conn->state == CONN_HELLO)
        receive_hello(conn);
    else if (conn->state == CONN_PROOF)
        receive_proof(conn);
    else
        receive_frame(conn);
}

/* ---- accepting ---------------------------------------------------------------------------------------------- */

static int accept_into(struct conn *conn)
{
    struct tcp_server *server = conn->server;
    uv_timer_init(&server->loop, &conn->timer);
    uv_tcp_init(&server->loop, &conn->tcp);
    conn->timer.data = conn->tcp.data = conn;
    conn->handles = 2;
    conn->accepted_ms = uv_now(&server->loop);
    DL_APPEND(server->unauthenticated, conn);
    server->n_unauthenticated++;
    int status = uv_accept((uv_stream_t *)&server->listener, (uv_stream_t *)&conn->tcp);
    if (status != 0) return status;
    conn_forked_gives_up(&conn->tcp);
    uv_tcp_nodelay(&conn->tcp, 1);
    uv_tcp_keepalive(&conn->tcp, 1, 5);
    uv_timer_start(&conn->timer, on_timer, CONN_AUTH_MS, 0);
    return uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
}

/* Leaves the oldest unauthenticated peer no more than the grace period, because another connection needs its place. */
static void hurry_oldest(struct tcp_server *server)
{
    struct conn *oldest = server->unauthenticated;
    uint64_t age = uv_now(&server->loop) - oldest->accepted_ms, grace = admission_grace_ms(server->n_unauthenticated);
    uv_timer_start(&oldest->timer, on_timer, age < grace ? grace - age : 0, 0);
}

/* Accepts a connection if the limit admits it.  Returning without uv_accept makes libuv stop accepting, so further
 * connections queue in the kernel. */
void conn_accept(struct tcp_server *server)
{
    int clients = atomic_load_explicit(&server->n_clients, memory_order_relaxed); /* only this thread writes it */
    server->accept_pending = true;
    if (server->n_unauthenticated >= admission_limit(clients, server->expected)) {
        hurry_oldest(server);
        return;
    }
    struct conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL) return; /* accepted when another connection closes */
    conn->server = server;
    conn->buffer = conn->handshake_buffer;
    conn->capacity = sizeof conn->handshake_buffer;
    memcpy(conn->shake.token, server->token, TOKEN_BYTES);
    server->accept_pending = false;
    if (accept_into(conn) != 0) conn_close(conn);
}

/* Accepts the connection that waits at the listener, if any, because a place has become free. */
static void accept_pending(struct tcp_server *server)
{
    if (server->accept_pending && !server->stopping) conn_accept(server);
}
