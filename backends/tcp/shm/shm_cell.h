/* A message header in a slot of a ring.
 *
 * Most headers say little that the ring does not imply: the sender, the payload size, no memory references.  Leaving
 * these out makes room for a short payload in the slot's first line, so that such a message is a single cache-line
 * transfer.  The reader restores the whole header, to be validated like one from a network.
 */
#ifndef SHM_CELL_H
#define SHM_CELL_H

#include "tcp/shm/shm.h"

#define SHM_NAMED (UINT32_C(1) << 31) /* in shm_cell.bytes: size, id and ref are valid */

static inline void shm_cell_pack(struct shm_cell *cell, const struct wire_header *header, uint32_t bytes)
{
    bool plain = header->bytes == bytes && header->id == 0 && header->ref == 0;
    cell->bytes = plain ? bytes : bytes | SHM_NAMED;
    cell->kind = header->kind;
    cell->flags = header->flags;
    cell->group = header->group;
    cell->tag = header->tag;
    cell->fingerprint = header->fingerprint;
    cell->credit = header->credit;
    if (plain) return;
    cell->size = header->bytes;
    cell->id = header->id;
    cell->ref = header->ref;
}

/* Returns the payload size.  Reads each field once, since the writer may change it at any time. */
static inline uint32_t shm_cell_unpack(const volatile struct shm_cell *cell, uint32_t from, struct wire_header *header)
{
    uint32_t bytes = cell->bytes, payload = bytes & ~SHM_NAMED;
    bool named = (bytes & SHM_NAMED) != 0;
    header->kind = cell->kind;
    header->flags = cell->flags;
    header->source = from;
    header->group = cell->group;
    header->tag = cell->tag;
    header->bytes = named ? cell->size : payload;
    header->fingerprint = cell->fingerprint;
    header->id = named ? cell->id : 0;
    header->ref = named ? cell->ref : 0;
    header->credit = cell->credit;
    return payload;
}

#endif
