/* Datagram endpoints, the receiver's side of RMA: reads the data of offered writes (rdm_offer.c) from the sender's
 * memory.
 *
 * A provider cannot cancel a read, and the program's memory must not be written after its receive has ended.  Who
 * writes the memory decides what prevents that:
 *
 *   software   Such a provider needs no registered buffers (no FI_MR_LOCAL).  Reads go to buffers of this file, and
 *              their data are copied.  Reads of a receive that has ended only give back their buffers.
 *   hardware   The adapter writes the program's memory.  Reads use an endpoint of their own, the reader.  Closing it
 *              ends all reads for certain.  Those of other receives are repeated on a new reader, and no link ends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/net/rdm.h"

enum {
    BATCH = 16,
    READ_DIRECT = 1 << 20,   /* maximum bytes of a read into the program's memory */
    READ_COPIED = 256 << 10, /* maximum bytes of a read into a buffer, which stays in the cache */
    READS = 4,               /* maximum reads of an offer in the provider */
    READINGS = 4,            /* maximum offers that are read at once, oldest first */
    SPARE = 2 * READS,       /* maximum buffers that are kept for later */
    STOP_MS = 20             /* hardware: a withdrawn receive waits this long for its reads */
};

/* A read under way. */
struct rdm_read {
    struct fi_context2 context; /* must be the first member; the provider owns it during a read */
    TAILQ_ENTRY(rdm_read) entry;
    struct rdm_reading *reading;
    size_t offset, bytes;
    uint8_t data[]; /* only if reads are copied */
};

/* An offer whose data are being read. */
struct rdm_reading {
    TAILQ_ENTRY(rdm_reading) entry;
    struct fabric_link *link;
    struct rdm_region *region; /* NULL once the receive has been withdrawn or the link has ended */
    uint64_t key;
    struct wire_offer offer;
    struct fid_mr *local; /* the registered region; NULL if reads are copied */
    size_t posted, landed;
    struct rdm_reads busy; /* reads in the provider */
    int n_busy;
    int error; /* the provider's error, or 0 */
};

static bool is_direct(const struct fabric *fabric)
{
    return fabric->info->domain_attr->mr_mode & FI_MR_LOCAL;
}

/* ---- reads --------------------------------------------------------------------------------------------------- */

static struct rdm_read *new_read(struct fabric *fabric)
{
    struct rdm_reader *reader = &fabric->rdm.reader;
    struct rdm_read *read = TAILQ_FIRST(&reader->spare);
    if (read == NULL) return malloc(sizeof *read + (is_direct(fabric) ? 0 : READ_COPIED));
    TAILQ_REMOVE(&reader->spare, read, entry);
    reader->n_spare--;
    return read;
}

static void free_read(struct fabric *fabric, struct rdm_read *read)
{
    struct rdm_reader *reader = &fabric->rdm.reader;
    if (reader->n_spare == SPARE) {
        free(read);
        return;
    }
    TAILQ_INSERT_HEAD(&reader->spare, read, entry);
    reader->n_spare++;
}

static void end_read(struct fabric *fabric, struct rdm_read *read, int error)
{
    struct rdm_reading *reading = read->reading;
    TAILQ_REMOVE(&reading->busy, read, entry);
    reading->n_busy--;
    if (error != 0)
        reading->error = error;
    else if (reading->region != NULL && !is_direct(fabric))
        tutti_copy(reading->region->data + read->offset, read->data, read->bytes);
    reading->landed += read->bytes;
    free_read(fabric, read);
}

/* ---- the reader ---------------------------------------------------------------------------------------------- */

static void close_reader(struct fabric *fabric)
{
    struct rdm_reader *reader = &fabric->rdm.reader;
    FABRIC_CLOSE(reader->ep);
    FABRIC_CLOSE(reader->cq);
    reader->ep = NULL;
    reader->cq = NULL;
    reader->cq_fd = -1;
}

static int open_reader(struct fabric *fabric)
{
    struct rdm_reader *reader = &fabric->rdm.reader;
    int status;
    if (reader->ep != NULL) return 0;
    if ((status = rdm_open_queue(fabric, &reader->cq, &reader->cq_fd)) != 0 ||
        (status = fi_endpoint(fabric->domain, fabric->info, &reader->ep, NULL)) != 0 ||
        (status = fi_ep_bind(reader->ep, &fabric->rdm.av->fid, 0)) != 0 ||
        (status = fi_ep_bind(reader->ep, &reader->cq->fid, FI_TRANSMIT | FI_RECV)) != 0 ||
        (status = fi_enable(reader->ep)) != 0) {
        close_reader(fabric);
        return status;
    }
    rdm_tune_listener(fabric, reader->ep);
    return 0;
}

/* Ends all reads, which are then repeated.  They complete in any order, so a whole message is read again. */
static void restart_reader(struct fabric *fabric)
{
    struct rdm_reading *reading;
    close_reader(fabric);
    TAILQ_FOREACH(reading, &fabric->rdm.readings, entry)
    {
        struct rdm_read *read;
        if (reading->n_busy == 0) continue;
        while ((read = TAILQ_FIRST(&reading->busy)) != NULL) end_read(fabric, read, 0);
        reading->posted = reading->landed = 0;
    }
}

static void handle_error(struct fabric *fabric)
{
    struct fi_cq_err_entry error = {0};
    if (fi_cq_readerr(fabric->rdm.reader.cq, &error, 0) < 0 || error.op_context == NULL) return;
    end_read(fabric, error.op_context, error.err != 0 ? error.err : FI_EIO);
}

/* Takes the completions of reads.  Raises no event. */
static int read_completions(struct fabric *fabric)
{
    struct fi_cq_msg_entry entry[BATCH];
    if (fabric->rdm.reader.cq == NULL) return 0;
    errno = 0;
    ssize_t n = fi_cq_read(fabric->rdm.reader.cq, entry, BATCH);
    if (n == -FI_EAVAIL) {
        handle_error(fabric);
        return 1;
    }
    for (ssize_t i = 0; i < n; i++)
        if (entry[i].op_context != NULL) end_read(fabric, entry[i].op_context, 0);
    return n > 0 ? (int)n : 0;
}

/* ---- readings ------------------------------------------------------------------------------------------------ */

static size_t next_bytes(const struct fabric *fabric, const struct rdm_reading *reading)
{
    size_t left = reading->offer.bytes - reading->posted, limit = fabric->info->ep_attr->max_msg_size;
    size_t most = is_direct(fabric) ? READ_DIRECT : READ_COPIED;
    if (most > limit) most = limit;
    return left < most ? left : most;
}

/* Posts the next read. */
static int post_read(struct fabric *fabric, struct rdm_reading *reading)
{
    int status = open_reader(fabric);
    if (status != 0) return status;
    struct rdm_read *read = new_read(fabric);
    if (read == NULL) return -FI_ENOMEM;
    read->reading = reading;
    read->offset = reading->posted;
    read->bytes = next_bytes(fabric, reading);
    void *data = is_direct(fabric) ? reading->region->data + read->offset : read->data;
    void *descriptor = reading->local != NULL ? fi_mr_desc(reading->local) : NULL;
    status = (int)fi_read(fabric->rdm.reader.ep, data, read->bytes, descriptor, reading->link->rdm.address,
                          reading->offer.address + read->offset, reading->offer.key, read);
    if (status != 0) {
        free_read(fabric, read);
        return status;
    }
    TAILQ_INSERT_TAIL(&reading->busy, read, entry);
    reading->n_busy++;
    reading->posted += read->bytes;
    return 0;
}

static void post_reads(struct fabric *fabric, struct rdm_reading *reading)
{
    while (reading->error == 0 && reading->n_busy < READS && reading->posted < reading->offer.bytes) {
        int status = post_read(fabric, reading);
        if (status == 0) continue;
        if (status != -FI_EAGAIN) reading->error = -status;
        transport_count_retry(&fabric->config);
        fabric->rdm.retry = true;
        return;
    }
}

static void free_reading(struct fabric *fabric, struct rdm_reading *reading)
{
    TAILQ_REMOVE(&fabric->rdm.readings, reading, entry);
    if (reading->region != NULL) reading->region->reading = NULL;
    FABRIC_CLOSE(reading->local);
    free(reading);
}

static void answer(struct fabric_link *link, enum wire_envelope_kind kind, uint64_t key)
{
    if (link->state != FABRIC_UP) return;
    if (rdm_queue_answer(link, kind, key) == TUTTI_OK)
        rdm_flush(link);
    else
        fabric_drop(link->fabric, link->rank, "no memory for an answer to it", true);
}

/* Answers an offer that has been read, cannot be read, or was withdrawn. */
static void finish_reading(struct fabric *fabric, struct rdm_reading *reading)
{
    struct fabric_link *link = reading->link;
    bool is_withdrawn = reading->region == NULL;
    int error = reading->error;
    uint64_t key = reading->key;
    free_reading(fabric, reading);
    if (is_withdrawn) {
        answer(link, WIRE_RETURNED, key);
        return;
    }
    if (error != 0)
        TUTTI_LOG_AS(fabric->config.host, "net", 1,
                     "tcp: reading memory of rank %d failed: %s; asking for pieces instead", link->rank,
                     fabric_reason(error));
    answer(link, error != 0 ? WIRE_REFUSED : WIRE_READ, key);
    if (error == 0) fabric->config.events->written(fabric->config.user, key);
}

static bool is_finished(const struct rdm_reading *reading)
{
    return reading->n_busy == 0 &&
           (reading->region == NULL || reading->error != 0 || reading->landed == reading->offer.bytes);
}

/* An event may end any reading, so each search begins anew. */
static struct rdm_reading *find_finished(struct fabric *fabric)
{
    struct rdm_reading *reading;
    TAILQ_FOREACH(reading, &fabric->rdm.readings, entry)
    {
        if (is_finished(reading)) break;
    }
    return reading;
}

int rdm_progress_reads(struct fabric *fabric)
{
    struct rdm_reading *reading;
    int moved = read_completions(fabric), n = 0;
    TAILQ_FOREACH(reading, &fabric->rdm.readings, entry)
    {
        if (reading->region != NULL && n++ < READINGS) post_reads(fabric, reading);
    }
    for (; (reading = find_finished(fabric)) != NULL; moved++) finish_reading(fabric, reading);
    return moved;
}

/* ---- ends ---------------------------------------------------------------------------------------------------- */

/* From here on nothing is written to the region.  The reads themselves may continue if they are copied. */
static void detach(struct fabric *fabric, struct rdm_reading *reading)
{
    if (reading->n_busy > 0 && is_direct(fabric)) restart_reader(fabric);
    reading->region->reading = NULL;
    reading->region = NULL;
}

void rdm_stop_reading(struct rdm_reading *reading)
{
    struct fabric *fabric = reading->link->fabric;
    const tutti_host *host = fabric->config.host;
    if (is_direct(fabric)) {
        int64_t end_ns = host->now_ns() + (int64_t)STOP_MS * 1000000;
        while (reading->n_busy > 0 && host->now_ns() < end_ns) read_completions(fabric);
    }
    detach(fabric, reading);
    if (reading->n_busy == 0) finish_reading(fabric, reading);
}

void rdm_end_readings(struct fabric_link *link)
{
    struct fabric *fabric = link->fabric;
    struct rdm_reading *reading, *next;
    for (reading = TAILQ_FIRST(&fabric->rdm.readings); reading != NULL; reading = next) {
        next = TAILQ_NEXT(reading, entry);
        if (reading->link != link) continue;
        if (reading->region != NULL) detach(fabric, reading);
        if (reading->n_busy == 0) free_reading(fabric, reading);
    }
}

/* Closes the reader, unless peers have not answered reads: libfabric 1.17 reports such a read twice when it closes its
 * connection (tcpx_ep_flush_all_queues), and crashes.  Then the reader and its buffers stay until the process ends. */
void rdm_close_reads(struct fabric *fabric)
{
    struct rdm_reader *reader = &fabric->rdm.reader;
    struct rdm_read *read;
    while ((read = TAILQ_FIRST(&reader->spare)) != NULL) {
        TAILQ_REMOVE(&reader->spare, read, entry);
        free(read);
    }
    if (TAILQ_EMPTY(&fabric->rdm.readings)) {
        close_reader(fabric);
        return;
    }
    TUTTI_LOG_AS(fabric->config.host, "net", 2,
                 "tcp: an endpoint stays open, because a lost rank has not answered reads");
    struct rdm_reading *reading;
    while ((reading = TAILQ_FIRST(&fabric->rdm.readings)) != NULL) free_reading(fabric, reading);
}

/* ---- offers -------------------------------------------------------------------------------------------------- */

static struct rdm_reading *new_reading(struct fabric_link *link, struct rdm_region *region,
                                       const struct wire_offer *offer)
{
    struct fabric *fabric = link->fabric;
    struct rdm_reading *reading = calloc(1, sizeof *reading);
    if (reading == NULL) return NULL;
    *reading = (struct rdm_reading){.link = link, .region = region, .key = region->key, .offer = *offer};
    TAILQ_INIT(&reading->busy);
    if (!is_direct(fabric) || rdm_register(fabric, region->data, offer->bytes, FI_READ, &reading->local) == 0)
        return reading;
    free(reading);
    return NULL;
}

static bool fits(const struct rdm_region *region, const struct wire_offer *offer)
{
    return region->reading == NULL && region->landed == 0 && region->bytes == offer->bytes;
}

void rdm_handle_offer(struct fabric_link *link, struct rdm_region *region, uint64_t key, const uint8_t *data, size_t n)
{
    struct fabric *fabric = link->fabric;
    struct wire_offer offer;
    if (!wire_offer_parse(data, n, &offer) || (region != NULL && !fits(region, &offer))) {
        fabric_drop(fabric, link->rank, "its offer does not fit the exposed memory", true);
        return;
    }
    if (region == NULL) {
        answer(link, WIRE_RETURNED, key);
        return;
    }
    struct rdm_reading *reading = fabric->rdm.has_rma ? new_reading(link, region, &offer) : NULL;
    if (reading == NULL) {
        answer(link, WIRE_REFUSED, key);
        return;
    }
    region->reading = reading;
    TAILQ_INSERT_TAIL(&fabric->rdm.readings, reading, entry); /* the current progress call posts the first reads */
}
