/* Links to peers, which are made when first needed, and their states. */
#include <stdio.h>
#include <stdlib.h>

#include "tcp/net/fabric_impl.h"

/* ---- making -------------------------------------------------------------------------------------------------- */

void fabric_init_rail(struct fabric_link *link, struct msg_rail *rail, int index)
{
    *rail = (struct msg_rail){.fd = -1, .index = (uint8_t)index};
    rail->fence = (struct fabric_chunk){.kind = FABRIC_FENCED, .link = link, .rail = rail};
    for (int i = 0; i < FABRIC_CHUNKS; i++)
        rail->chunk[i] = (struct fabric_chunk){.kind = FABRIC_CHUNK_WRITTEN, .link = link, .rail = rail};
}

struct fabric_link *fabric_make_link(struct fabric *fabric, int32_t rank)
{
    if (fabric->link[rank] != NULL) return fabric->link[rank];
    struct fabric_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a link to rank %d", rank);
        return NULL;
    }
    link->fabric = fabric;
    link->rank = rank;
    STAILQ_INIT(&link->waiting);
    TAILQ_INIT(&link->writes);
    TAILQ_INIT(&link->cut);
    STAILQ_INIT(&link->msg.sent);
    link->rdm.probe = -1;
    TAILQ_INIT(&link->rdm.in_flight);
    TAILQ_INIT(&link->rdm.offers);
    STAILQ_INIT(&link->rdm.early);
    fabric_init_rail(link, &link->msg.first, 0);
    STAILQ_INSERT_TAIL(&fabric->all_links, link, entry);
    fabric->link[rank] = link;
    return link;
}

void fabric_free_links(struct fabric *fabric)
{
    struct fabric_link *link;
    while ((link = STAILQ_FIRST(&fabric->all_links)) != NULL) {
        STAILQ_REMOVE_HEAD(&fabric->all_links, entry);
        fabric_free_buffers(&link->waiting);
        free(link->msg.further);
        free(link);
    }
}

/* ---- states -------------------------------------------------------------------------------------------------- */

bool fabric_is_connecting(const struct fabric_link *link)
{
    return link->state == FABRIC_CONNECTING || link->state == FABRIC_WAITING || link->state == FABRIC_ACCEPTING;
}

void fabric_set_state(struct fabric_link *link, enum fabric_state state)
{
    link->fabric->connecting -= fabric_is_connecting(link);
    link->state = (uint8_t)state;
    link->fabric->connecting += fabric_is_connecting(link);
    if (!fabric_is_connecting(link)) return;
    fabric_watch(link->fabric); /* for the deadline */
    int64_t now = link->fabric->config.host->now_ns();
    link->deadline_ns = now + (int64_t)FABRIC_CONNECT_MS * 1000000;
    int64_t timeout_ms = link->fabric->config.timeout_ms;
    link->last_ns = timeout_ms < (INT64_MAX - now) / 1000000 ? now + timeout_ms * 1000000 : INT64_MAX;
}

int fabric_connect(struct fabric *fabric, int32_t rank)
{
    struct fabric_link *link = fabric_make_link(fabric, rank);
    if (link == NULL) return TUTTI_ERR_NO_MEMORY;
    link->is_trial = false;
    if (link->state == FABRIC_IDLE) {
        int status = fabric->kind->connect(link);
        if (status != TUTTI_OK) return status;
    }
    if (link->state != FABRIC_LOST) return TUTTI_OK;
    return fabric->config.host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", rank, link->why);
}

/* Drops a link.  Without notify the fabric is about to be closed, so a link that was never made can be skipped. */
void fabric_drop(struct fabric *fabric, int32_t rank, const char *why, bool notify)
{
    struct fabric_link *link = notify ? fabric_make_link(fabric, rank) : fabric->link[rank];
    if (link == NULL || link->state == FABRIC_LOST) return;
    fabric->kind->end(link);
    fabric_set_state(link, FABRIC_LOST);
    snprintf(link->why, sizeof link->why, "%s", why);
    struct transport_write *write;
    while ((write = TAILQ_FIRST(&link->writes)) != NULL) fabric_unqueue(link, write);
    for (; (write = TAILQ_FIRST(&link->cut)) != NULL; fabric->cuts--) TAILQ_REMOVE(&link->cut, write, entry);
    if (notify && !fabric->closing) fabric->config.events->lost(fabric->config.user, rank, link->why);
}

int fabric_try_to_connect(struct fabric *fabric, int32_t rank)
{
    bool is_first = fabric->link[rank] == NULL || fabric->link[rank]->state == FABRIC_IDLE;
    int status = fabric_connect(fabric, rank);
    if (status == TUTTI_OK) fabric->link[rank]->is_trial = is_first;
    return status;
}

void fabric_fail_connecting(struct fabric_link *link, const char *what)
{
    char why[160];
    if (link->is_trial && fabric_is_connecting(link)) {
        link->fabric->kind->end(link);
        fabric_set_state(link, FABRIC_IDLE);
        link->repeats = 0;
        return;
    }
    snprintf(why, sizeof why, "%s at %s", what, link->address_text);
    fabric_drop(link->fabric, link->rank, why, true);
}

bool fabric_is_up(const struct fabric *fabric, int32_t rank)
{
    return fabric->link[rank] != NULL && fabric->link[rank]->state == FABRIC_UP;
}

const char *fabric_lost(const struct fabric *fabric, int32_t rank)
{
    const struct fabric_link *link = fabric->link[rank];
    return link != NULL && link->state == FABRIC_LOST ? link->why : NULL;
}

bool fabric_is_flushed(const struct fabric *fabric, int32_t rank)
{
    const struct fabric_link *link = fabric->link[rank];
    if (link == NULL) return true;
    if (fabric->kind->is_busy(link)) return false;
    if (link->state == FABRIC_LOST || link->state == FABRIC_IDLE) return true;
    return STAILQ_EMPTY(&link->waiting) && TAILQ_EMPTY(&link->writes);
}
