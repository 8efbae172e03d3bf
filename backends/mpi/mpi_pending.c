/* Pending MPI requests: an array for MPI_Testsome, and a parallel array with the owner of each. */
#include <stdlib.h>

#include "mpib.h"

/* Maximum bytes of one MPI message; a longer message is sent in consecutive pieces. */
enum { PIECE = 1 << 30 };

enum { FEW = 4 }; /* up to this many requests are tested one by one: MPI_Testsome visits each more than once */

int mpib_pending_reserve(struct mpib_tree *tree, int n)
{
    if (tree->n_pending + n <= tree->capacity) return TUTTI_OK;
    size_t capacity = tree->capacity > 0 ? 2 * (size_t)tree->capacity : 32;
    void *requests = realloc(tree->requests, capacity * sizeof *tree->requests);
    if (requests != NULL) tree->requests = requests;
    void *pending = realloc(tree->pending, capacity * sizeof *tree->pending);
    if (pending != NULL) tree->pending = pending;
    void *done = realloc(tree->done, capacity * sizeof *tree->done);
    if (done != NULL) tree->done = done;
    void *status = realloc(tree->status, capacity * sizeof *tree->status);
    if (status != NULL) tree->status = status;
    if (requests == NULL || pending == NULL || done == NULL || status == NULL)
        return tree->host->error(TUTTI_ERR_NO_MEMORY, "out of memory for %zu pending requests", capacity);
    tree->capacity = (int)capacity;
    return TUTTI_OK;
}

void mpib_pending_add(struct mpib_tree *tree, MPI_Request request, const struct mpib_pending *pending)
{
    tree->requests[tree->n_pending] = request;
    tree->pending[tree->n_pending++] = *pending;
    tree->n_copies += pending->outgoing != NULL;
}

static int start_piece(struct mpib_tree *tree, int i)
{
    struct mpib_pending *pending = &tree->pending[i];
    MPI_Request *request = &tree->requests[i];
    size_t now = pending->left < PIECE ? pending->left : PIECE;
    char *data = pending->data;
    pending->data += now;
    pending->left -= now;
    return pending->sends ? MPI_Isend(data, (int)now, MPI_BYTE, pending->peer, pending->tag, tree->comm, request)
                          : MPI_Irecv(data, (int)now, MPI_BYTE, pending->peer, pending->tag, tree->comm, request);
}

int mpib_pending_begin(struct mpib_tree *tree, const struct mpib_pending *pending)
{
    int status = mpib_pending_reserve(tree, 1);
    if (status != TUTTI_OK) return status;
    tree->pending[tree->n_pending] = *pending;
    int error = start_piece(tree, tree->n_pending);
    if (error != MPI_SUCCESS) return mpib_error(tree->host, pending->sends ? "MPI_Isend" : "MPI_Irecv", error);
    tree->n_pending++;
    return TUTTI_OK;
}

static void remove_at(struct mpib_tree *tree, int i)
{
    tree->n_pending--;
    tree->requests[i] = tree->requests[tree->n_pending];
    tree->pending[i] = tree->pending[tree->n_pending];
}

/* Translates an error of MPI.  MPI reports a peer's operation of another size as a truncation. */
static int translate_error(const struct mpib_tree *tree, int error)
{
    if (error == MPI_SUCCESS) return TUTTI_OK;
    int class = MPI_ERR_OTHER;
    MPI_Error_class(error, &class);
    mpib_error(tree->host, "MPI", error);
    return class == MPI_ERR_TRUNCATE ? TUTTI_ERR_MISMATCH : TUTTI_ERR_BACKEND;
}

/* Handles the completion of request i: starts its next piece, or removes it and returns true, its owner in *request and
 * its status in *status. */
static bool finish_piece(struct mpib_tree *tree, int i, int error, tutti_request **request, int *status)
{
    struct mpib_pending *pending = &tree->pending[i];
    if (error == MPI_SUCCESS && pending->left > 0) {
        error = start_piece(tree, i);
        if (error == MPI_SUCCESS) return false;
    }
    *request = pending->request;
    *status = translate_error(tree, error);
    free(pending->memory);
    if (pending->outgoing != NULL) {
        tree->n_copies--;
        mpib_outgoing_release(tree, pending->outgoing);
    }
    remove_at(tree, i);
    return true;
}

static void complete_at(struct mpib_tree *tree, int i, int error)
{
    tutti_request *request;
    int status;
    if (finish_piece(tree, i, error, &request, &status) && request != NULL) tree->host->complete(request, status);
}

int mpib_pending_poll(struct mpib_tree *tree, tutti_request *request)
{
    int i = tree->n_pending - 1, done = 0, status;
    while (tree->pending[i].request != request) i--;
    int error = MPI_Test(&tree->requests[i], &done, MPI_STATUS_IGNORE);
    if ((!done && error == MPI_SUCCESS) || !finish_piece(tree, i, error, &request, &status))
        return TUTTI_REQUEST_PENDING;
    return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
}

/* Iterates from the end, because remove_at fills the gap with the last entry. */
static int test_each(struct mpib_tree *tree, int n)
{
    int ended = 0;
    for (int i = n - 1; i >= 0; i--) {
        int done = 0, error = MPI_Test(&tree->requests[i], &done, MPI_STATUS_IGNORE);
        if (!done && error == MPI_SUCCESS) continue;
        complete_at(tree, i, error);
        ended++;
    }
    return ended;
}

int mpib_pending_test(struct mpib_tree *tree)
{
    int n = tree->n_pending, done = 0;
    if (n == 0) return 0;
    if (n <= FEW) return test_each(tree, n);
    int error = MPI_Testsome(n, tree->requests, &done, tree->done, tree->status);
    if (done == MPI_UNDEFINED || done <= 0) {
        if (error != MPI_SUCCESS)
            tree->host->failed(tree->core, TUTTI_ERR_BACKEND, "MPI_Testsome failed without naming a request");
        return 0;
    }
    for (int k = 0; k < done; k++) {
        struct mpib_pending *pending = &tree->pending[tree->done[k]];
        pending->ended = true;
        pending->error = error == MPI_SUCCESS ? MPI_SUCCESS : tree->status[k].MPI_ERROR;
    }
    for (int i = n - 1; i >= 0; i--) { /* from the end, as in test_each */
        struct mpib_pending *pending = &tree->pending[i];
        if (!pending->ended) continue;
        pending->ended = false;
        complete_at(tree, i, pending->error);
    }
    return done;
}

void mpib_pending_drop(struct mpib_tree *tree, const struct mpib_group *group)
{
    for (int i = 0; i < tree->n_pending; i++)
        if (tree->pending[i].group == group) {
            tree->pending[i].request = NULL;
            tree->pending[i].left = 0; /* the tensor may be freed already */
        }
}

int mpib_pending_cancel(struct mpib_tree *tree, const tutti_request *request)
{
    for (int i = 0; i < tree->n_pending; i++) {
        struct mpib_pending *pending = &tree->pending[i];
        if (pending->request != request) continue;
        int done = 0, cancelled = 0;
        MPI_Status status;
        if (pending->outgoing != NULL) { /* MPI reads a copy, so the tensor is free */
            pending->request = NULL;
            return TUTTI_OK;
        }
        if (!pending->is_message || pending->sends)
            return tree->host->error(TUTTI_ERR_UNSUPPORTED, "MPI cannot cancel %s that has started",
                                     pending->sends ? "a send" : "an operation");
        MPI_Cancel(&tree->requests[i]);
        MPI_Test(&tree->requests[i], &done, &status);
        if (done) MPI_Test_cancelled(&status, &cancelled);
        if (done && !cancelled) {
            complete_at(tree, i, MPI_SUCCESS); /* it arrived before the cancellation */
            return TUTTI_ERR_NOT_FOUND;
        }
        if (!done)
            return tree->host->error(TUTTI_ERR_UNSUPPORTED,
                                     "the message is being received and can no longer be cancelled");
        remove_at(tree, i);
        return TUTTI_OK;
    }
    return tree->host->error(TUTTI_ERR_NOT_FOUND, "the request is not pending");
}
