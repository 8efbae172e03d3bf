/* Sends and receives headers.  Each header starts a message, and carries its data if the message is short.
 *
 * A single persistent receive, restarted after each header, accepts those of all ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi_message.h"

enum {
    TAG_HEADER = 1,
    COPIES = 16, /* buffered short messages that MPI has not sent yet; beyond these a sender waits, so that messages to
                    busy ranks do not pile up */
    INBOX_TESTS = 8 /* tests of the inbox per round while a receive is posted; more would delay other work */
};

static struct mpib_outgoing *take_outgoing(struct mpib_tree *tree)
{
    struct mpib_outgoing *outgoing = tree->spare;
    if (outgoing == NULL) return malloc(sizeof *outgoing);
    tree->spare = outgoing->next;
    return outgoing;
}

void mpib_outgoing_release(struct mpib_tree *tree, struct mpib_outgoing *outgoing)
{
    outgoing->next = tree->spare;
    tree->spare = outgoing;
}

/* Starts the persistent receive for the next header; MPI then delivers it without help.  Called while a header of this
 * rank is being sent or before the next poll, never between the arrival of a message and its delivery. */
static int start_inbox(struct mpib_tree *tree)
{
    if (tree->inbox_started) return MPI_SUCCESS;
    int error = MPI_Start(&tree->inbox);
    tree->inbox_started = error == MPI_SUCCESS;
    return error;
}

int mpib_header_send(struct mpib_tree *tree, int32_t to, const struct mpib_header *header, const void *data,
                     const struct mpib_pending *message)
{
    bool is_long = header->long_tag != 0, waits = false;
    size_t bytes = is_long ? 0 : header->bytes;
    struct mpib_outgoing *outgoing = take_outgoing(tree);
    MPI_Request request;
    int done = 0, status = mpib_pending_reserve(tree, 2);
    if (outgoing == NULL)
        return tree->host->error(TUTTI_ERR_NO_MEMORY, "out of memory for a message of %zu bytes", bytes);
    if (status == TUTTI_OK) {
        outgoing->envelope.header = *header;
        if (bytes > 0) memcpy(outgoing->envelope.data, data, bytes);
        int error = MPI_Isend(&outgoing->envelope, (int)(sizeof *header + bytes), MPI_BYTE, to, TAG_HEADER, tree->comm,
                              &request);
        if (error != MPI_SUCCESS) status = mpib_error(tree->host, "MPI_Isend", error);
    }
    if (status != TUTTI_OK) {
        mpib_outgoing_release(tree, outgoing);
        return status;
    }
    if (is_long) status = mpib_pending_begin(tree, message);
    MPI_Test(&request, &done, MPI_STATUS_IGNORE); /* usually true at once: then there is nothing to track */
    start_inbox(tree);                            /* on failure the next poll reports the error */
    if (done) {
        mpib_outgoing_release(tree, outgoing);
    } else {
        struct mpib_pending pending = {.is_message = true, .sends = true};
        waits = message != NULL && !is_long && tree->n_copies >= COPIES;
        if (waits) pending = *message;
        pending.outgoing = outgoing;
        mpib_pending_add(tree, request, &pending);
    }
    if (status != TUTTI_OK) return status;
    return is_long || waits ? TUTTI_REQUEST_PENDING : TUTTI_REQUEST_DONE;
}

/* True if the header is consistent.  MPI delivers whole messages, so nothing else needs a check. */
static bool is_valid(const struct mpib_header *header)
{
    if (header->bytes <= MPIB_SHORT) return header->long_tag == 0;
    return header->control == 0 && header->long_tag >= MPIB_TAG_LONG && header->long_tag <= MPIB_TAG_LONG_END;
}

int mpib_messages_listen(struct mpib_tree *tree)
{
    int error = MPI_Recv_init(tree->buffer, sizeof(struct mpib_envelope), MPI_BYTE, MPI_ANY_SOURCE, TAG_HEADER,
                              tree->comm, &tree->inbox);
    if (error == MPI_SUCCESS) error = start_inbox(tree);
    return error == MPI_SUCCESS ? TUTTI_OK : mpib_error(tree->host, "MPI_Recv_init or MPI_Start", error);
}

void mpib_messages_unlisten(struct mpib_tree *tree)
{
    if (tree->inbox_started) {
        MPI_Cancel(&tree->inbox);
        MPI_Wait(&tree->inbox, MPI_STATUS_IGNORE);
        tree->inbox_started = false;
    }
    if (tree->inbox != MPI_REQUEST_NULL) MPI_Request_free(&tree->inbox);
}

enum mpib_arrival mpib_header_poll(struct mpib_tree *tree)
{
    struct mpib_envelope *envelope = tree->buffer;
    MPI_Status status;
    int arrived = 0, error = start_inbox(tree);
    if (error != MPI_SUCCESS) {
        tree->host->failed(tree->core, TUTTI_ERR_BACKEND, "MPI cannot start the receive for message headers");
        return MPIB_NOTHING;
    }
    bool wanted = tree->awaited.request != NULL || tree->matcher.n_receives > 0;
    bool polls_again = !tree->shares_cores && tree->n_pending == 0 && wanted;
    int rounds = polls_again ? INBOX_TESTS : 1;
    for (int i = 0; i < rounds && !arrived && error == MPI_SUCCESS; i++)
        error = MPI_Test(&tree->inbox, &arrived, &status);
    if (!arrived && error == MPI_SUCCESS) return MPIB_NOTHING;
    tree->inbox_started = false;
    if (error == MPI_SUCCESS && is_valid(&envelope->header))
        return mpib_match_arrive(tree, status.MPI_SOURCE, envelope) ? MPIB_WANTED : MPIB_KEPT;
    TUTTI_LOG_AS(tree->host, "mpi", 0, "dropped a message of %llu bytes from rank %d: its header is invalid",
                 (unsigned long long)envelope->header.bytes, status.MPI_SOURCE);
    return MPIB_KEPT;
}
