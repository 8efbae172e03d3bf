/* Headers: each begins a message, and carries it if it is short.
 *
 * One receive, which is started again after each, takes in those of all ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi_message.h"

enum {
    TAG_HEADER = 1,
    COPIES = 16, /* that MPI has not taken yet: who sends more to ranks that are busy waits, or they would pile up */
    LOOKS = 8    /* for one that a receive waits for, before others have their turn: a round takes twice as long */
};

static struct mpib_slot *take_slot(struct mpib_family *family)
{
    struct mpib_slot *slot = family->spare;
    if (slot == NULL) return malloc(sizeof *slot);
    family->spare = slot->next;
    return slot;
}

void mpib_slot_give(struct mpib_family *family, struct mpib_slot *slot)
{
    slot->next = family->spare;
    family->spare = slot;
}

/* The receive for the next header, which MPI then puts there by itself.  It is started again while a header of ours is
 * on its way, or with the next look: not while somebody waits for what the last one brought. */
static int post(struct mpib_family *family)
{
    if (family->listens) return MPI_SUCCESS;
    int error = MPI_Start(&family->inbox);
    family->listens = error == MPI_SUCCESS;
    return error;
}

int mpib_header_send(struct mpib_family *family, int32_t to, const struct mpib_header *header, const void *data,
                     const struct mpib_flight *message)
{
    bool follows = header->long_tag != 0, waits = false;
    size_t bytes = follows ? 0 : header->bytes;
    struct mpib_slot *slot = take_slot(family);
    MPI_Request request;
    int done = 0, status = mpib_flights_reserve(family, 2);
    if (slot == NULL) return family->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message");
    if (status == TUTTI_OK) {
        slot->envelope.header = *header;
        if (bytes > 0) memcpy(slot->envelope.data, data, bytes);
        int error =
            MPI_Isend(&slot->envelope, (int)(sizeof *header + bytes), MPI_BYTE, to, TAG_HEADER, family->comm, &request);
        if (error != MPI_SUCCESS) status = mpib_error(family->host, "MPI_Isend", error);
    }
    if (status != TUTTI_OK) {
        mpib_slot_give(family, slot);
        return status;
    }
    if (follows) status = mpib_flights_begin(family, message);
    MPI_Test(&request, &done, MPI_STATUS_IGNORE); /* it mostly is: there is nothing to keep */
    post(family);                                 /* where it fails, the next look tells */
    if (done) {
        mpib_slot_give(family, slot);
    } else {
        struct mpib_flight flight = {.is_message = true, .sends = true};
        waits = message != NULL && !follows && family->n_copies >= COPIES;
        if (waits) flight = *message;
        flight.slot = slot;
        mpib_flights_add(family, request, &flight);
    }
    if (status != TUTTI_OK) return status;
    return follows || waits ? TUTTI_REQUEST_PENDING : TUTTI_REQUEST_DONE;
}

/* MPI hands over whole messages: that what the header says fits in is all that there is to find out. */
static bool is_sound(const struct mpib_header *header)
{
    if (header->bytes <= MPIB_SHORT) return header->long_tag == 0;
    return header->note == 0 && header->long_tag >= MPIB_TAG_LONG && header->long_tag <= MPIB_TAG_LONG_END;
}

int mpib_messages_listen(struct mpib_family *family)
{
    int error = MPI_Recv_init(family->buffer, sizeof(struct mpib_envelope), MPI_BYTE, MPI_ANY_SOURCE, TAG_HEADER,
                              family->comm, &family->inbox);
    if (error == MPI_SUCCESS) error = post(family);
    return error == MPI_SUCCESS ? TUTTI_OK : mpib_error(family->host, "MPI_Recv_init and MPI_Start", error);
}

void mpib_messages_deafen(struct mpib_family *family)
{
    if (family->listens) {
        MPI_Cancel(&family->inbox);
        MPI_Wait(&family->inbox, MPI_STATUS_IGNORE);
        family->listens = false;
    }
    if (family->inbox != MPI_REQUEST_NULL) MPI_Request_free(&family->inbox);
}

enum mpib_came mpib_header_poll(struct mpib_family *family)
{
    struct mpib_envelope *envelope = family->buffer;
    MPI_Status status;
    int there = 0, error = post(family);
    if (error != MPI_SUCCESS) {
        family->host->failed(family->core, TUTTI_ERR_BACKEND, "MPI takes no receive");
        return MPIB_NOTHING;
    }
    bool wanted = family->awaited.request != NULL || !TAILQ_EMPTY(&family->posted);
    bool looks_again = !family->shares_cores && family->n_flights == 0 && wanted;
    int looks = looks_again ? LOOKS : 1;
    for (int i = 0; i < looks && !there && error == MPI_SUCCESS; i++) error = MPI_Test(&family->inbox, &there, &status);
    if (!there && error == MPI_SUCCESS) return MPIB_NOTHING;
    family->listens = false;
    if (error == MPI_SUCCESS && is_sound(&envelope->header))
        return mpib_match_arrive(family, status.MPI_SOURCE, envelope) ? MPIB_WANTED : MPIB_KEPT;
    family->host->log(0, "a message of %llu bytes from rank %d makes no sense",
                      (unsigned long long)envelope->header.bytes, status.MPI_SOURCE);
    return MPIB_KEPT;
}
