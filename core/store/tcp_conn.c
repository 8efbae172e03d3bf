/* A connection at the server: handshake, then one request at a time.
 *
 * A client sends its next request only when it has the whole reply to the last one, so a connection holds at most one
 * frame in and one reply out; one that does otherwise is closed.  A waiting request sleeps in the queue of its first
 * missing key; whoever makes that key applies it again.
 */
#include "store/tcp_conn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/forked.h"
#include "base/log.h"
#include "store/tcp_admission.h"

struct conn_queue {
    UT_hash_handle hh;
    struct conn *waiting;
    size_t key_bytes;
    char key[];
};

struct conn_reply {
    uv_write_t write;
    struct conn *conn;
    size_t counted; /* in server->buffered */
    bool last;      /* close when it is written */
    uint8_t data[];
};

static void conn_run(struct conn *conn);
static void conn_resume_parked(struct tcp_server *server);
static void conn_resume_accept(struct tcp_server *server);

/* ---- waiting for a key -------------------------------------------------------------------------------------- */

static bool queue_join(struct conn *conn, const struct store_slice *key)
{
    struct conn_queue *queue;
    HASH_FIND(hh, conn->server->queues, key->data, key->bytes, queue);
    if (queue == NULL) {
        queue = calloc(1, sizeof *queue + key->bytes);
        if (queue == NULL) return false;
        queue->key_bytes = key->bytes;
        memcpy(queue->key, key->data, key->bytes);
        HASH_ADD_KEYPTR(hh, conn->server->queues, queue->key, queue->key_bytes, queue);
        if (queue->hh.tbl == NULL) {
            free(queue);
            return false;
        }
    }
    DL_APPEND2(queue->waiting, conn, queue_prev, queue_next);
    conn->queue = queue;
    return true;
}

static void queue_leave(struct conn *conn)
{
    struct conn_queue *queue = conn->queue;
    if (queue == NULL) return;
    conn->queue = NULL;
    DL_DELETE2(queue->waiting, conn, queue_prev, queue_next);
    if (queue->waiting != NULL) return;
    HASH_DELETE(hh, conn->server->queues, queue);
    free(queue);
}

/* The key is there: all that wait for it try again.  Each leaves the queue first, and the last one frees it, so the
 * queue is looked up anew every time; one that joins it again (somebody deleted the key) ends the round. */
static void queue_wake(struct tcp_server *server, const struct store_slice *key)
{
    struct conn_queue *queue;
    HASH_FIND(hh, server->queues, key->data, key->bytes, queue);
    if (queue == NULL) return;
    struct conn *last = queue->waiting->queue_prev; /* utlist: the head's prev is the tail */
    for (bool more = true; more;) {
        HASH_FIND(hh, server->queues, key->data, key->bytes, queue);
        if (queue == NULL) return;
        struct conn *conn = queue->waiting;
        more = conn != last;
        queue_leave(conn);
        conn_run(conn);
    }
}

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

static void conn_on_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    if (--conn->handles > 0) return;
    struct tcp_server *server = conn->server;
    if (conn->buffer != conn->early) free(conn->buffer);
    free(conn->slices);
    token_wipe(conn, sizeof *conn);
    free(conn);
    if (!server->stopping) conn_resume_parked(server); /* its half request may have been what was too much */
}

/* What its frame has of the server's `buffered`. */
static size_t conn_counted(const struct conn *conn)
{
    return conn->capacity > CONN_BUFFER_BYTES ? conn->capacity : 0;
}

static void conn_park(struct conn *conn)
{
    uv_timer_stop(&conn->timer);
    conn->parked = true;
    conn->server->parked_bytes += conn_counted(conn);
    DL_APPEND2(conn->server->parked, conn, queue_prev, queue_next);
}

static void conn_unpark(struct conn *conn)
{
    if (!conn->parked) return;
    conn->parked = false;
    conn->server->parked_bytes -= conn_counted(conn);
    DL_DELETE2(conn->server->parked, conn, queue_prev, queue_next);
}

static void conn_count_buffer(struct conn *conn, size_t capacity)
{
    conn->server->buffered -= conn_counted(conn);
    conn->capacity = capacity;
    conn->server->buffered += conn_counted(conn);
}

void conn_close(struct conn *conn)
{
    struct tcp_server *server = conn->server;
    if (conn->state == CONN_CLOSING) return;
    if (conn->state == CONN_READY) {
        DL_DELETE(server->clients, conn);
        atomic_fetch_sub_explicit(&server->n_clients, 1, memory_order_relaxed);
    } else {
        DL_DELETE(server->strangers, conn);
        server->n_strangers--;
    }
    conn->state = CONN_CLOSING;
    queue_leave(conn);
    conn_unpark(conn);
    conn_count_buffer(conn, 0);
    conn_close_socket(&conn->tcp, conn_on_closed);
    uv_close((uv_handle_t *)&conn->timer, conn_on_closed);
    conn_resume_accept(server);
}

/* ---- timers ------------------------------------------------------------------------------------------------- */

static void conn_reply(struct conn *conn, struct store_reply *reply);

/* Whether bytes of the other side lie here that this loop has not come to read: timers run before sockets. */
static bool conn_has_unread(const struct conn *conn)
{
    uv_os_fd_t fd;
    int bytes = 0;
    return uv_fileno((const uv_handle_t *)&conn->tcp, &fd) == 0 && ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

static void conn_on_timer(uv_timer_t *timer)
{
    struct conn *conn = timer->data;
    if (conn->state != CONN_READY && conn_has_unread(conn)) { /* the server is late, not the client */
        uv_timer_start(timer, conn_on_timer, 0, 0); /* once more after the sockets; CONN_AUTH_BYTES bound it */
        return;
    }
    if (conn->queue == NULL) { /* a stranger, or a client that does not take its reply */
        conn_close(conn);
        return;
    }
    struct store_reply reply;
    queue_leave(conn);
    table_timeout(&conn->server->table, &conn->request, &reply);
    conn_reply(conn, &reply);
}

/* Whoever knocks often must not fill the log: the 1st, 2nd, 4th, 8th .. time is told. */
static void conn_log_refusal(struct tcp_server *server, const char *what)
{
    unsigned times = ++server->refused;
    if ((times & (times - 1)) == 0) log_write(LOG_WARN, "tcp store: %s (refused so far: %u)", what, times);
}

/* ---- replies ------------------------------------------------------------------------------------------------ */

/* Whether too much is in memory besides own bytes.  What is put off does not count, as it would wait for itself. */
static bool server_is_crowded(const struct tcp_server *server, size_t own)
{
    return server->buffered - server->parked_bytes - own >= server->table.max_bytes;
}

/* Requests that were put off for want of memory go on as replies leave. */
static void conn_resume_parked(struct tcp_server *server)
{
    while (server->parked != NULL && !server_is_crowded(server, 0)) {
        struct conn *conn = server->parked;
        conn_unpark(conn);
        conn_run(conn);
    }
}

static void conn_on_written(uv_write_t *write, int status)
{
    struct conn_reply *out = (struct conn_reply *)write;
    struct conn *conn = out->conn;
    struct tcp_server *server = conn->server;
    server->buffered -= out->counted;
    bool last = out->last;
    free(out);
    if (status != 0 || last)
        conn_close(conn);
    else if (conn->state == CONN_READY && !conn->busy)
        uv_timer_stop(&conn->timer);
    if (!server->stopping) conn_resume_parked(server); /* also when conn is closing: its memory is free now */
}

static struct conn_reply *conn_new_out(struct conn *conn, size_t bytes)
{
    struct conn_reply *out = malloc(sizeof *out + bytes);
    if (out == NULL) return NULL;
    *out = (struct conn_reply){.conn = conn, .counted = bytes > CONN_BUFFER_BYTES ? bytes : 0};
    conn->server->buffered += out->counted;
    return out;
}

static void conn_write(struct conn *conn, struct conn_reply *out, size_t bytes)
{
    uv_buf_t buffer = uv_buf_init((char *)out->data, (unsigned)bytes);
    if (uv_write(&out->write, (uv_stream_t *)&conn->tcp, &buffer, 1, conn_on_written) != 0) {
        conn->server->buffered -= out->counted;
        free(out);
        conn_close(conn);
    }
}

/* The request is done: its memory goes back before the reply is sent. */
static void conn_finish_request(struct conn *conn)
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
    conn_count_buffer(conn, CONN_BUFFER_BYTES);
}

/* Sends the reply and frees it. */
static void conn_reply(struct conn *conn, struct store_reply *reply)
{
    conn_finish_request(conn);
    size_t bytes = wire_reply_bytes(reply), total = 4 + bytes + SEAL_TAG_BYTES;
    struct conn_reply *out = conn_new_out(conn, total);
    if (out != NULL) {
        wire_put_u32(out->data, (uint32_t)(bytes + SEAL_TAG_BYTES));
        wire_put_reply(out->data + 4, reply);
        seal_close(&conn->out, out->data + 4, bytes, out->data, 4);
        conn_write(conn, out, total);
        if (conn->state == CONN_READY && uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp) > 0)
            uv_timer_start(&conn->timer, conn_on_timer, CONN_STALL_MS, 0);
    } else {
        conn_close(conn);
    }
    store_reply_free(reply);
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

static void conn_start_wait(struct conn *conn)
{
    int64_t left = wire_timeout_ms(conn->request.deadline_ns);
    if (left == TUTTI_INFINITE) return;
    uv_update_time(&conn->server->loop); /* its clock stood still while it worked */
    uv_timer_start(&conn->timer, conn_on_timer, (uint64_t)left, 0);
}

/* Applies the connection's request, or leaves it waiting for a key or for memory. */
static void conn_run(struct conn *conn)
{
    struct tcp_server *server = conn->server;
    struct store_reply reply;
    int missing;
    bool large = conn->request.op == STORE_GET || conn->request.op == STORE_COMPARE_SET; /* may its reply be */
    if (large && server_is_crowded(server, conn_counted(conn))) {
        conn_park(conn);
        return;
    }
    if (!table_apply(&server->table, &conn->request, &reply, &missing)) {
        if (queue_join(conn, &conn->request.keys[missing])) {
            conn_start_wait(conn);
            return;
        }
        store_reply_error(&reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
    }
    if (store_op_writes(conn->request.op))
        for (int i = 0; i < conn->request.n_keys; i++) queue_wake(server, &conn->request.keys[i]);
    conn_reply(conn, &reply);
}

static void conn_begin(struct conn *conn, uint8_t *frame, size_t bytes)
{
    int64_t timeout_ms;
    if (uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp) > 0) { /* it cannot have the whole last reply */
        conn_log_refusal(conn->server, "a client asks again before it has taken its reply; its connection is closed");
        conn_close(conn);
        return;
    }
    if (!seal_open(&conn->in, frame + 4, bytes, frame, 4) ||
        wire_parse_request(frame + 4, bytes - SEAL_TAG_BYTES, &conn->request, &conn->slices, &timeout_ms) != TUTTI_OK) {
        conn_log_refusal(conn->server, "a client sent a frame that is altered or malformed; its connection is closed");
        conn_close(conn);
        return;
    }
    conn->request.deadline_ns = clock_deadline_ns(timeout_ms);
    conn->busy = true;
    conn->server->table.n_requests++;
    conn_run(conn);
}

/* A frame is 4 bytes of size and that many sealed ones. */
static void conn_read_frame(struct conn *conn)
{
    if (conn->fill < 4) return;
    size_t bytes = wire_get_u32(conn->buffer), total = 4 + bytes;
    if (bytes <= SEAL_TAG_BYTES || bytes > WIRE_PAYLOAD_MAX + SEAL_TAG_BYTES || conn->fill > total) {
        conn_close(conn);
    } else if (conn->fill == total) {
        conn_begin(conn, conn->buffer, bytes);
    } else if (total > conn->capacity) {
        uint8_t *larger =
            conn->server->buffered > 2 * conn->server->table.max_bytes ? NULL : realloc(conn->buffer, total);
        if (larger == NULL) {
            log_write(LOG_WARN, "tcp store: no memory for a request of %zu bytes; its connection is closed", total);
            conn_close(conn);
            return;
        }
        conn->buffer = larger;
        conn_count_buffer(conn, total);
    }
}

/* ---- the handshake ------------------------------------------------------------------------------------------ */

static void conn_take_hello(struct conn *conn)
{
    struct conn_reply *out = NULL;
    if (!handshake_begins_well(conn->buffer, conn->fill) || conn->fill > HANDSHAKE_HELLO_BYTES) {
        conn_close(conn);
        return;
    }
    if (conn->fill < HANDSHAKE_HELLO_BYTES) return;
    enum handshake_answer answer = handshake_take_hello(&conn->shake, HANDSHAKE_SERVER, conn->buffer);
    if (answer != HANDSHAKE_NOT_OURS) out = conn_new_out(conn, HANDSHAKE_HELLO_BYTES);
    if (out == NULL) {
        conn_close(conn);
        return;
    }
    handshake_start(&conn->shake, HANDSHAKE_SERVER, out->data);
    out->last = answer != HANDSHAKE_OK; /* another version: ours in the hello is the answer */
    conn->state = CONN_PROOF;
    conn->fill = 0;
    conn_write(conn, out, HANDSHAKE_HELLO_BYTES);
}

static bool conn_make_ready(struct conn *conn)
{
    uint8_t *buffer = malloc(CONN_BUFFER_BYTES);
    if (buffer == NULL) return false;
    conn->buffer = buffer;
    conn->capacity = CONN_BUFFER_BYTES;
    handshake_keys(&conn->shake, &conn->in, &conn->out);
    token_wipe(&conn->shake, sizeof conn->shake);
    uv_timer_stop(&conn->timer);
    DL_DELETE(conn->server->strangers, conn);
    conn->server->n_strangers--;
    DL_APPEND(conn->server->clients, conn);
    atomic_fetch_add_explicit(&conn->server->n_clients, 1, memory_order_relaxed);
    conn->state = CONN_READY;
    conn_resume_accept(conn->server);
    return true;
}

static void conn_take_proof(struct conn *conn)
{
    if (conn->fill < HANDSHAKE_PROOF_BYTES) return;
    bool proved = conn->fill == HANDSHAKE_PROOF_BYTES && handshake_verify(&conn->shake, HANDSHAKE_CLIENT, conn->buffer);
    struct conn_reply *out = conn_new_out(conn, HANDSHAKE_VERDICT_BYTES);
    if (out == NULL) {
        conn_close(conn);
        return;
    }
    memset(out->data, 0, HANDSHAKE_VERDICT_BYTES);
    out->last = !proved;
    out->data[0] = proved;
    conn->fill = 0;
    if (proved) handshake_prove(&conn->shake, HANDSHAKE_SERVER, out->data + 8);
    if (proved && !conn_make_ready(conn)) {
        free(out);
        conn_close(conn);
        return;
    }
    if (!proved) conn_log_refusal(conn->server, "a client with another job token, or none, was refused");
    conn_write(conn, out, HANDSHAKE_VERDICT_BYTES);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static void conn_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    struct conn *conn = handle->data;
    static char nothing[1]; /* what comes while a request is at work is a violation: it is never looked at */
    if (conn->busy || conn->fill >= conn->capacity)
        *buffer = uv_buf_init(nothing, sizeof nothing);
    else
        *buffer = uv_buf_init((char *)conn->buffer + conn->fill, (unsigned)(conn->capacity - conn->fill));
}

static void conn_on_read(uv_stream_t *stream, ssize_t bytes, const uv_buf_t *buffer)
{
    struct conn *conn = stream->data;
    if (bytes == 0 || conn->state == CONN_CLOSING) return;
    if (bytes < 0 || (uint8_t *)buffer->base != conn->buffer + conn->fill) {
        conn_close(conn);
        return;
    }
    conn->fill += (size_t)bytes;
    if (conn->state == CONN_HELLO)
        conn_take_hello(conn);
    else if (conn->state == CONN_PROOF)
        conn_take_proof(conn);
    else
        conn_read_frame(conn);
}

/* ---- accepting ---------------------------------------------------------------------------------------------- */

static int conn_open(struct conn *conn)
{
    struct tcp_server *server = conn->server;
    uv_timer_init(&server->loop, &conn->timer);
    uv_tcp_init(&server->loop, &conn->tcp);
    conn->timer.data = conn->tcp.data = conn;
    conn->handles = 2;
    conn->accepted_ms = uv_now(&server->loop);
    DL_APPEND(server->strangers, conn);
    server->n_strangers++;
    int status = uv_accept((uv_stream_t *)&server->listener, (uv_stream_t *)&conn->tcp);
    if (status != 0) return status;
    conn_forked_gives_up(&conn->tcp);
    uv_tcp_nodelay(&conn->tcp, 1);
    uv_tcp_keepalive(&conn->tcp, 1, 5);
    uv_timer_start(&conn->timer, conn_on_timer, CONN_AUTH_MS, 0);
    return uv_read_start((uv_stream_t *)&conn->tcp, conn_on_alloc, conn_on_read);
}

/* Gives the oldest stranger no more than its grace, as another connection needs its place. */
static void conn_hurry_oldest(struct tcp_server *server)
{
    struct conn *oldest = server->strangers;
    uint64_t age = uv_now(&server->loop) - oldest->accepted_ms, grace = admission_grace_ms(server->n_strangers);
    uv_timer_start(&oldest->timer, conn_on_timer, age < grace ? grace - age : 0, 0);
}

/* Without uv_accept libuv does not accept any more: further connections wait in the kernel. */
void conn_accept(struct tcp_server *server)
{
    int clients = atomic_load_explicit(&server->n_clients, memory_order_relaxed); /* only this thread writes it */
    server->accept_pending = true;
    if (server->n_strangers >= admission_limit(clients, server->expected)) {
        conn_hurry_oldest(server);
        return;
    }
    struct conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL) return; /* until one that is connected leaves */
    conn->server = server;
    conn->buffer = conn->early;
    conn->capacity = sizeof conn->early;
    memcpy(conn->shake.token, server->token, TOKEN_BYTES);
    server->accept_pending = false;
    if (conn_open(conn) != 0) conn_close(conn);
}

/* A place is free. */
static void conn_resume_accept(struct tcp_server *server)
{
    if (server->accept_pending && !server->stopping) conn_accept(server);
}
