/* MPI requests under way: one array for MPI_Testsome, and beside it what each belongs to. */
#include <stdlib.h>

#include "mpib.h"

/* One MPI message has at most this many bytes; a longer one goes in pieces, one after the other. */
enum { PIECE = 1 << 30 };

enum { FEW = 4 }; /* requests that are tested one by one: MPI_Testsome looks at each more than once */

int mpib_flights_reserve(struct mpib_family *family, int n)
{
    if (family->n_flights + n <= family->room) return TUTTI_OK;
    size_t room = family->room > 0 ? 2 * (size_t)family->room : 32;
    void *requests = realloc(family->requests, room * sizeof *family->requests);
    if (requests != NULL) family->requests = requests;
    void *flights = realloc(family->flights, room * sizeof *family->flights);
    if (flights != NULL) family->flights = flights;
    void *done = realloc(family->done, room * sizeof *family->done);
    if (done != NULL) family->done = done;
    void *status = realloc(family->status, room * sizeof *family->status);
    if (status != NULL) family->status = status;
    if (requests == NULL || flights == NULL || done == NULL || status == NULL)
        return family->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a request");
    family->room = (int)room;
    return TUTTI_OK;
}

void mpib_flights_add(struct mpib_family *family, MPI_Request request, const struct mpib_flight *flight)
{
    family->requests[family->n_flights] = request;
    family->flights[family->n_flights++] = *flight;
    family->n_copies += flight->slot != NULL;
}

static int begin_piece(struct mpib_family *family, int i)
{
    struct mpib_flight *flight = &family->flights[i];
    MPI_Request *request = &family->requests[i];
    size_t now = flight->left < PIECE ? flight->left : PIECE;
    char *data = flight->data;
    flight->data += now;
    flight->left -= now;
    return flight->sends ? MPI_Isend(data, (int)now, MPI_BYTE, flight->peer, flight->tag, family->comm, request)
                         : MPI_Irecv(data, (int)now, MPI_BYTE, flight->peer, flight->tag, family->comm, request);
}

int mpib_flights_begin(struct mpib_family *family, const struct mpib_flight *flight)
{
    int status = mpib_flights_reserve(family, 1);
    if (status != TUTTI_OK) return status;
    family->flights[family->n_flights] = *flight;
    int error = begin_piece(family, family->n_flights);
    if (error != MPI_SUCCESS) return mpib_error(family->host, flight->sends ? "MPI_Isend" : "MPI_Irecv", error);
    family->n_flights++;
    return TUTTI_OK;
}

static void remove_at(struct mpib_family *family, int i)
{
    family->n_flights--;
    family->requests[i] = family->requests[family->n_flights];
    family->flights[i] = family->flights[family->n_flights];
}

/* Another rank gave an operation of another size: that is how MPI sees it. */
static int status_of(const struct mpib_family *family, int error)
{
    if (error == MPI_SUCCESS) return TUTTI_OK;
    int class = MPI_ERR_OTHER;
    MPI_Error_class(error, &class);
    mpib_error(family->host, "MPI", error);
    return class == MPI_ERR_TRUNCATE ? TUTTI_ERR_MISMATCH : TUTTI_ERR_BACKEND;
}

/* Request i is done: its next piece, or its end, with whose it was and what became of it. */
static bool ends(struct mpib_family *family, int i, int error, tutti_request **request, int *status)
{
    struct mpib_flight *flight = &family->flights[i];
    if (error == MPI_SUCCESS && flight->left > 0) {
        error = begin_piece(family, i);
        if (error == MPI_SUCCESS) return false;
    }
    *request = flight->request;
    *status = status_of(family, error);
    free(flight->memory);
    if (flight->slot != NULL) {
        family->n_copies--;
        mpib_slot_give(family, flight->slot);
    }
    remove_at(family, i);
    return true;
}

static void end(struct mpib_family *family, int i, int error)
{
    tutti_request *request;
    int status;
    if (ends(family, i, error, &request, &status) && request != NULL) family->host->complete(request, status);
}

int mpib_flights_look(struct mpib_family *family, tutti_request *request)
{
    int i = family->n_flights - 1, done = 0, status;
    while (family->flights[i].request != request) i--;
    int error = MPI_Test(&family->requests[i], &done, MPI_STATUS_IGNORE);
    if ((!done && error == MPI_SUCCESS) || !ends(family, i, error, &request, &status)) return TUTTI_REQUEST_PENDING;
    return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
}

/* From the end on: what is taken out is filled from there. */
static int test_each(struct mpib_family *family, int n)
{
    int ended = 0;
    for (int i = n - 1; i >= 0; i--) {
        int done = 0, error = MPI_Test(&family->requests[i], &done, MPI_STATUS_IGNORE);
        if (!done && error == MPI_SUCCESS) continue;
        end(family, i, error);
        ended++;
    }
    return ended;
}

int mpib_flights_test(struct mpib_family *family)
{
    int n = family->n_flights, done = 0;
    if (n == 0) return 0;
    if (n <= FEW) return test_each(family, n);
    int error = MPI_Testsome(n, family->requests, &done, family->done, family->status);
    if (done == MPI_UNDEFINED || done <= 0) {
        if (error != MPI_SUCCESS)
            family->host->failed(family->core, TUTTI_ERR_BACKEND, "MPI_Testsome fails and does not say for which");
        return 0;
    }
    for (int k = 0; k < done; k++) {
        struct mpib_flight *flight = &family->flights[family->done[k]];
        flight->ended = true;
        flight->error = error == MPI_SUCCESS ? MPI_SUCCESS : family->status[k].MPI_ERROR;
    }
    for (int i = n - 1; i >= 0; i--) { /* as above */
        struct mpib_flight *flight = &family->flights[i];
        if (!flight->ended) continue;
        flight->ended = false;
        end(family, i, flight->error);
    }
    return done;
}

void mpib_flights_drop(struct mpib_family *family, const struct mpib_group *group)
{
    for (int i = 0; i < family->n_flights; i++)
        if (family->flights[i].group == group) {
            family->flights[i].request = NULL;
            family->flights[i].left = 0; /* its memory may be gone */
        }
}

int mpib_flights_cancel(struct mpib_family *family, const tutti_request *request)
{
    for (int i = 0; i < family->n_flights; i++) {
        struct mpib_flight *flight = &family->flights[i];
        if (flight->request != request) continue;
        int done = 0, cancelled = 0;
        MPI_Status status;
        if (flight->slot != NULL) { /* a copy of it is on its way */
            flight->request = NULL;
            return TUTTI_OK;
        }
        if (!flight->is_message || flight->sends)
            return family->host->error(TUTTI_ERR_UNSUPPORTED, "MPI cannot take back %s that it has begun",
                                       flight->sends ? "a send" : "an operation");
        MPI_Cancel(&family->requests[i]);
        MPI_Test(&family->requests[i], &done, &status);
        if (done) MPI_Test_cancelled(&status, &cancelled);
        if (done && !cancelled) {
            end(family, i, MPI_SUCCESS); /* it came in after all */
            return TUTTI_ERR_NOT_FOUND;
        }
        if (!done) return family->host->error(TUTTI_ERR_UNSUPPORTED, "a message is just coming in");
        remove_at(family, i);
        return TUTTI_OK;
    }
    return family->host->error(TUTTI_ERR_NOT_FOUND, "it is not under way");
}
