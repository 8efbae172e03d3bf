/* Pending MPI requests: an array for MPI_Testsome, and a parallel array with the owner of each. */
#include <stdlib.h>

#include "mpib.h"

/* Maximum bytes of one MPI message; a longer message is sent in consecutive pieces. */
enum { PIECE = 1 << 30 };

enum { FEW = 4 }; /* up to this many requests are tested one by one: MPI_Testsome visits each more than once */

int mpib_pending_reserve(struct mpib_family *family, int n)
{
    if (family->n_pending + n <= family->capacity) return TUTTI_OK;
    size_t capacity = family->capacity > 0 ? 2 * (size_t)family->capacity : 32;
    void *requests = realloc(family->requests, capacity * sizeof *family->requests);
    if (requests != NULL) family->requests = requests;
    void *pending = realloc(family->pending, capacity * sizeof *family->pending);
    if (pending != NULL) family->pending = pending;
    void *done = realloc(family->done, capacity * sizeof *family->done);
    if (done != NULL) family->done = done;
    void *status = realloc(family->status, capacity * sizeof *family->status);
    if (status != NULL) family->status = status;
    if (requests == NULL || pending == NULL || done == NULL || status == NULL)
        return family->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a request");
    family->capacity = (int)capacity;
    return TUTTI_OK;
}

void mpib_pending_add(struct mpib_family *family, MPI_Request request, const struct mpib_pending *pending)
{
    family->requests[family->n_pending] = request;
    family->pending[family->n_pending++] = *pending;
    family->n_copies += pending->outgoing != NULL;
}

static int start_piece(struct mpib_family *family, int i)
{
    struct mpib_pending *pending = &family->pending[i];
    MPI_Request *request = &family->requests[i];
    size_t now = pending->left < PIECE ? pending->left : PIECE;
    char *data = pending->data;
    pending->data += now;
    pending->left -= now;
    return pending->sends ? MPI_Isend(data, (int)now, MPI_BYTE, pending->peer, pending->tag, family->comm, request)
                          : MPI_Irecv(data, (int)now, MPI_BYTE, pending->peer, pending->tag, family->comm, request);
}

int mpib_pending_begin(struct mpib_family *family, const struct mpib_pending *pending)
{
    int status = mpib_pending_reserve(family, 1);
    if (status != TUTTI_OK) return status;
    family->pending[family->n_pending] = *pending;
    int error = start_piece(family, family->n_pending);
    if (error != MPI_SUCCESS) return mpib_error(family->host, pending->sends ? "MPI_Isend" : "MPI_Irecv", error);
    family->n_pending++;
    return TUTTI_OK;
}

static void remove_at(struct mpib_family *family, int i)
{
    family->n_pending--;
    family->requests[i] = family->requests[family->n_pending];
    family->pending[i] = family->pending[family->n_pending];
}

/* MPI reports a peer's operation of another size as a truncation. */
static int translate_error(const struct mpib_family *family, int error)
{
    if (error == MPI_SUCCESS) return TUTTI_OK;
    int class = MPI_ERR_OTHER;
    MPI_Error_class(error, &class);
    mpib_error(family->host, "MPI", error);
    return class == MPI_ERR_TRUNCATE ? TUTTI_ERR_MISMATCH : TUTTI_ERR_BACKEND;
}

/* Handles the completion of request i: starts its next piece, or removes it and returns true, its owner in *request and
 * its status in *status. */
static bool finish_piece(struct mpib_family *family, int i, int error, tutti_request **request, int *status)
{
    struct mpib_pending *pending = &family->pending[i];
    if (error == MPI_SUCCESS && pending->left > 0) {
        error = start_piece(family, i);
        if (error == MPI_SUCCESS) return false;
    }
    *request = pending->request;
    *status = translate_error(family, error);
    free(pending->memory);
    if (pending->outgoing != NULL) {
        family->n_copies--;
        mpib_outgoing_release(family, pending->outgoing);
    }
    remove_at(family, i);
    return true;
}

static void complete_at(struct mpib_family *family, int i, int error)
{
    tutti_request *request;
    int status;
    if (finish_piece(family, i, error, &request, &status) && request != NULL) family->host->complete(request, status);
}

int mpib_pending_poll(struct mpib_family *family, tutti_request *request)
{
    int i = family->n_pending - 1, done = 0, status;
    while (family->pending[i].request != request) i--;
    int error = MPI_Test(&family->requests[i], &done, MPI_STATUS_IGNORE);
    if ((!done && error == MPI_SUCCESS) || !finish_piece(family, i, error, &request, &status))
        return TUTTI_REQUEST_PENDING;
    return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
}

/* Iterates from the end, because remove_at fills the gap with the last entry. */
static int test_each(struct mpib_family *family, int n)
{
    int ended = 0;
    for (int i = n - 1; i >= 0; i--) {
        int done = 0, error = MPI_Test(&family->requests[i], &done, MPI_STATUS_IGNORE);
        if (!done && error == MPI_SUCCESS) continue;
        complete_at(family, i, error);
        ended++;
    }
    return ended;
}

int mpib_pending_test(struct mpib_family *family)
{
    int n = family->n_pending, done = 0;
    if (n == 0) return 0;
    if (n <= FEW) return test_each(family, n);
    int error = MPI_Testsome(n, family->requests, &done, family->done, family->status);
    if (done == MPI_UNDEFINED || done <= 0) {
        if (error != MPI_SUCCESS)
            family->host->failed(family->core, TUTTI_ERR_BACKEND, "MPI_Testsome failed without naming a request");
        return 0;
    }
    for (int k = 0; k < done; k++) {
        struct mpib_pending *pending = &family->pending[family->done[k]];
        pending->ended = true;
        pending->error = error == MPI_SUCCESS ? MPI_SUCCESS : family->status[k].MPI_ERROR;
    }
    for (int i = n - 1; i >= 0; i--) { /* from the end, as in test_each */
        struct mpib_pending *pending = &family->pending[i];
        if (!pending->ended) continue;
        pending->ended = false;
        complete_at(family, i, pending->error);
    }
    return done;
}

void mpib_pending_drop(struct mpib_family *family, const struct mpib_group *group)
{
    for (int i = 0; i < family->n_pending; i++)
        if (family->pending[i].group == group) {
            family->pending[i].request = NULL;
            family->pending[i].left = 0; /* the tensor may be freed already */
        }
}

int mpib_pending_cancel(struct mpib_family *family, const tutti_request *request)
{
    for (int i = 0; i < family->n_pending; i++) {
        struct mpib_pending *pending = &family->pending[i];
        if (pending->request != request) continue;
        int done = 0, cancelled = 0;
        MPI_Status status;
        if (pending->outgoing != NULL) { /* MPI reads a copy, so the tensor is free */
            pending->request = NULL;
            return TUTTI_OK;
        }
        if (!pending->is_message || pending->sends)
            return family->host->error(TUTTI_ERR_UNSUPPORTED, "MPI cannot cancel %s that has started",
                                       pending->sends ? "a send" : "an operation");
        MPI_Cancel(&family->requests[i]);
        MPI_Test(&family->requests[i], &done, &status);
        if (done) MPI_Test_cancelled(&status, &cancelled);
        if (done && !cancelled) {
            complete_at(family, i, MPI_SUCCESS); /* it arrived before the cancellation */
            return TUTTI_ERR_NOT_FOUND;
        }
        if (!done)
            return family->host->error(TUTTI_ERR_UNSUPPORTED,
                                       "the message is being received and can no longer be cancelled");
        remove_at(family, i);
        return TUTTI_OK;
    }
    return family->host->error(TUTTI_ERR_NOT_FOUND, "the request is not pending");
}
