/* A message's header in a ring's cell.
 *
 * Most headers say little that the ring does not: who sends, how long the payload is, and no names of memory.  Left
 * out, they make room for a short payload in the cell's first line, so that such a message is one transfer between
 * caches.  The reader gets the whole header back, to be checked like one from a network.
 */
#ifndef SHM_CELL_H
#define SHM_CELL_H

#include "shm.h"

#define SHM_NAMED (UINT32_C(1) << 31) /* in shm_cell.bytes: size, id and ref are there */

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

/* The bytes of the payload.  Reads each field once: the writer may change it at any time. */
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
