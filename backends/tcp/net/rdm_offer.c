/* Datagram endpoints, the sender's side of RMA: a large write is offered to its receiver, which reads the data from
 * this rank's memory (rdm_read.c).
 *
 *   OFFER     address and key of the registered memory
 *   READ      the receiver has all data
 *   RETURNED  the receive was withdrawn, so the receiver reads no more
 *   REFUSED   the receiver cannot read; from now on this rank sends pieces to that peer
 *
 * The memory stays registered until the answer or the end of the link.  Registering is left to each operation: a cache
 * here could not know that the program freed the memory, and the providers that gain from one (efa, verbs) have their
 * own, which watches the program's unmapping. */
#include <stdlib.h>

#include "tcp/net/rdm.h"

struct rdm_offer {
    TAILQ_ENTRY(rdm_offer) entry;
    struct transport_write *write;
    struct fid_mr *region;
    bool is_cut; /* the receive was withdrawn, or the send */
};

/* ---- registered memory --------------------------------------------------------------------------------------- */

int rdm_register(struct fabric *fabric, const void *data, size_t bytes, uint64_t access, struct fid_mr **region)
{
    int mode = fabric->info->domain_attr->mr_mode;
    uint64_t key = 0;
    *region = NULL;
    /* A key at random, so that no unauthenticated peer guesses it.  Keys of the provider are as good as it makes them.
     */
    if (!(mode & FI_MR_PROV_KEY)) fabric->config.host->random(&key, sizeof key);
    size_t key_bytes = fabric->info->domain_attr->mr_key_size;
    if (key_bytes < sizeof key) key &= (UINT64_C(1) << (8 * key_bytes)) - 1;
    int status = fi_mr_reg(fabric->domain, data, bytes, access, 0, key, 0, region, NULL);
    if (status != 0 || !(mode & FI_MR_ENDPOINT) || !(access & FI_REMOTE_READ)) return status;
    status = fi_mr_bind(*region, &fabric->rdm.ep->fid, 0);
    if (status == 0) status = fi_mr_enable(*region);
    if (status == 0) return 0;
    FABRIC_CLOSE(*region);
    *region = NULL;
    return status;
}

/* ---- offers -------------------------------------------------------------------------------------------------- */

bool rdm_uses_rma(const struct fabric *fabric, size_t bytes, const tutti_path_row *row)
{
    if (!fabric->rdm.has_rma) return false;
    if (row != NULL && (row->path == TRANSPORT_RMA || row->path == TRANSPORT_WRITE)) return row->path == TRANSPORT_RMA;
    /* ofi_rxd emulates reads by packets of an unreliable socket, and large ones overflow its buffer. */
    return bytes >= RDM_RMA_MIN && fabric->info->ep_attr->protocol != FI_PROTO_RXD;
}

bool rdm_is_offered(const struct fabric_link *link, const struct transport_write *write)
{
    return write->bytes > 0 && !link->rdm.refuses_rma && rdm_uses_rma(link->fabric, write->bytes, write->row);
}

static void free_offer(struct fabric_link *link, struct rdm_offer *offer)
{
    TAILQ_REMOVE(&link->rdm.offers, offer, entry);
    FABRIC_CLOSE(offer->region);
    offer->write->offer = NULL;
    offer->write->queued = false;
    link->rdm.n_offers--;
    free(offer);
}

static struct rdm_offer *new_offer(struct fabric *fabric, struct transport_write *write)
{
    struct rdm_offer *offer = calloc(1, sizeof *offer);
    if (offer == NULL) return NULL;
    offer->write = write;
    if (rdm_register(fabric, write->data, write->bytes, FI_REMOTE_READ, &offer->region) == 0) return offer;
    free(offer);
    return NULL;
}

/* Offers a write.  If its memory cannot be registered, this and all later writes to the peer are sent as pieces. */
int rdm_post_offer(struct fabric_link *link, struct transport_write *write)
{
    struct fabric *fabric = link->fabric;
    uint8_t body[WIRE_OFFER_BODY];
    if (link->rdm.n_offers >= RDM_OFFERS_MAX) return -FI_EAGAIN; /* the next answer continues */
    struct rdm_offer *offer = new_offer(fabric, write);
    if (offer == NULL) {
        link->rdm.refuses_rma = true;
        fabric->rdm.retry = true;
        return -FI_EAGAIN;
    }
    bool is_virtual = fabric->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
    struct wire_offer wire = {.bytes = write->bytes,
                              .address = is_virtual ? (uint64_t)(uintptr_t)write->data : 0,
                              .key = fi_mr_key(offer->region)};
    struct rdm_parts parts = {.first = body, .first_bytes = sizeof body};
    wire_offer_encode(body, &wire);
    int status = rdm_post(link, (struct wire_envelope){.kind = WIRE_OFFER, .key = write->key}, &parts, NULL);
    if (status != 0) {
        FABRIC_CLOSE(offer->region);
        free(offer);
        return status;
    }
    fabric_unqueue(link, write);
    write->queued = true;
    write->posted = write->bytes;
    write->offer = offer;
    TAILQ_INSERT_TAIL(&link->rdm.offers, offer, entry);
    link->rdm.n_offers++;
    return 0;
}

void rdm_cut_offer(struct rdm_offer *offer)
{
    offer->is_cut = true;
}

void rdm_end_offers(struct fabric_link *link)
{
    struct rdm_offer *offer;
    while ((offer = TAILQ_FIRST(&link->rdm.offers)) != NULL) free_offer(link, offer);
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

/* Sends the write as pieces instead. */
static void send_pieces(struct fabric_link *link, struct transport_write *write)
{
    TUTTI_LOG_AS(link->fabric->config.host, "net", 2,
                 "tcp: rank %d cannot read this rank's memory; sending it pieces instead", link->rank);
    write->posted = 0;
    write->queued = true;
    TAILQ_INSERT_HEAD(&link->writes, write, entry);
}

void rdm_handle_answer(struct fabric_link *link, const struct wire_envelope *envelope)
{
    struct fabric *fabric = link->fabric;
    struct rdm_offer *offer;
    TAILQ_FOREACH(offer, &link->rdm.offers, entry)
    {
        if (offer->write->key == envelope->key) break;
    }
    if (offer == NULL) {
        fabric_drop(fabric, link->rank, "it answered an offer that was not made", true);
        return;
    }
    struct transport_write *write = offer->write;
    bool by_pieces = envelope->kind == WIRE_REFUSED && !offer->is_cut;
    free_offer(link, offer);
    link->rdm.refuses_rma |= envelope->kind == WIRE_REFUSED;
    if (by_pieces) send_pieces(link, write);
    rdm_flush(link); /* before the event, to keep the network busy */
    if (by_pieces) return;
    if (envelope->kind != WIRE_READ) write->bytes = 0; /* the receive was withdrawn */
    fabric->config.events->write_done(fabric->config.user, write);
}
