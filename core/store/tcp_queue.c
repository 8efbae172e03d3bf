#include "store/tcp_queue.h"

#include <stdlib.h>
#include <string.h>
#define HASH_NONFATAL_OOM 1 /* by default uthash exits the process */
#include <uthash.h>
#include <utlist.h>

struct conn_queue {
    UT_hash_handle hh;
    struct conn *waiting;
    size_t key_bytes;
    char key[];
};

/* ---- waiting for a key -------------------------------------------------------------------------------------- */

static struct conn_queue *find_queue(const struct tcp_server *server, const struct store_slice *key)
{
    struct conn_queue *queue;
    HASH_FIND(hh, server->queues, key->data, key->bytes, queue);
    return queue;
}

static struct conn_queue *add_queue(struct tcp_server *server, const struct store_slice *key)
{
    struct conn_queue *queue = calloc(1, sizeof *queue + key->bytes);
    if (queue == NULL) return NULL;
    queue->key_bytes = key->bytes;
    memcpy(queue->key, key->data, key->bytes);
    HASH_ADD_KEYPTR(hh, server->queues, queue->key, queue->key_bytes, queue);
    if (queue->hh.tbl != NULL) return queue; /* uthash leaves it NULL if out of memory */
    free(queue);
    return NULL;
}

bool queue_join(struct conn *conn, const struct store_slice *key)
{
    struct conn_queue *queue = find_queue(conn->server, key);
    if (queue == NULL) queue = add_queue(conn->server, key);
    if (queue == NULL) return false;
    DL_APPEND2(queue->waiting, conn, queue_prev, queue_next);
    conn->queue = queue;
    return true;
}

void queue_leave(struct conn *conn)
{
    struct conn_queue *queue = conn->queue;
    if (queue == NULL) return;
    conn->queue = NULL;
    DL_DELETE2(queue->waiting, conn, queue_prev, queue_next);
    if (queue->waiting != NULL) return;
    HASH_DELETE(hh, conn->server->queues, queue);
    free(queue);
}

/* Wakes the connections of a queue up to `last`.  The last connection to leave the queue frees it, so the queue is
 * looked up in each round.  A connection that joins it again, because another request deleted the key, is behind `last`
 * and ends the loop. */
void queue_wake(struct tcp_server *server, const struct store_slice *key, void (*run)(struct conn *conn))
{
    struct conn_queue *queue = find_queue(server, key);
    if (queue == NULL) return;
    struct conn *last = queue->waiting->queue_prev; /* utlist: the head's prev is the tail */
    for (bool more = true; more;) {
        queue = find_queue(server, key);
        if (queue == NULL) return;
        struct conn *conn = queue->waiting;
        more = conn != last;
        queue_leave(conn);
        run(conn);
    }
}

/* ---- waiting for memory ------------------------------------------------------------------------------------- */

size_t queue_counted_bytes(const struct conn *conn)
{
    return conn->capacity > CONN_BUFFER_BYTES ? conn->capacity : 0;
}

bool queue_is_crowded(const struct tcp_server *server, size_t own)
{
    return server->buffered - server->parked_bytes - own >= server->table.max_bytes;
}

void queue_park(struct conn *conn)
{
    conn->parked = true;
    conn->server->parked_bytes += queue_counted_bytes(conn);
    DL_APPEND2(conn->server->parked, conn, queue_prev, queue_next);
}

void queue_unpark(struct conn *conn)
{
    if (!conn->parked) return;
    conn->parked = false;
    conn->server->parked_bytes -= queue_counted_bytes(conn);
    DL_DELETE2(conn->server->parked, conn, queue_prev, queue_next);
}

void queue_resume_parked(struct tcp_server *server, void (*run)(struct conn *conn))
{
    while (server->parked != NULL && !queue_is_crowded(server, 0)) {
        struct conn *conn = server->parked;
        queue_unpark(conn);
        run(conn);
    }
}
