/* A message's header in a ring's cell.
 *
 * Most headers say little that the ring does not: who sends, how long the payload is, and no names of memory.  Left
 * out, they make room for a short payload in the cell's first line, so that such a message is one transfer between
 * caches. The reader gets the whole header back, to be checked like one from a network.
 */
#ifndef SHM_CELL_H
#define SHM_CELL_H

#include <string.h>

#include "shm.h"

#define SHM_NAMED (UINT32_C(1) << 31) /* in shm_cell.bytes: size and names are there */

static inline void shm_cell_pack(struct shm_cell *cell, const uint8_t header[WIRE_HEADER], uint32_t bytes)
{
    uint8_t size[8], none[16] = {0};
    wire_put64(size, bytes);
    bool plain = memcmp(header + WIRE_AT_BYTES, size, sizeof size) == 0 &&
                 memcmp(header + WIRE_AT_NAMES, none, sizeof none) == 0;
    cell->bytes = plain ? bytes : bytes | SHM_NAMED;
    memcpy(cell->head, header, sizeof cell->head);
    memcpy(cell->group_tag, header + WIRE_AT_GROUP, sizeof cell->group_tag);
    memcpy(cell->fingerprint, header + WIRE_AT_FINGERPRINT, sizeof cell->fingerprint);
    memcpy(cell->credit, header + WIRE_AT_CREDIT, sizeof cell->credit);
    if (plain) return;
    memcpy(cell->size, header + WIRE_AT_BYTES, sizeof cell->size);
    memcpy(cell->names, header + WIRE_AT_NAMES, sizeof cell->names);
}

/* The bytes of the payload.  Reads bytes once: the writer may change it at any time. */
static inline uint32_t shm_cell_unpack(const struct shm_cell *cell, uint32_t from, uint8_t header[WIRE_HEADER])
{
    uint32_t bytes = *(const volatile uint32_t *)&cell->bytes;
    bool named = (bytes & SHM_NAMED) != 0;
    bytes &= ~SHM_NAMED;
    memcpy(header, cell->head, sizeof cell->head);
    wire_put32(header + WIRE_AT_SOURCE, from);
    memcpy(header + WIRE_AT_GROUP, cell->group_tag, sizeof cell->group_tag);
    memcpy(header + WIRE_AT_FINGERPRINT, cell->fingerprint, sizeof cell->fingerprint);
    memcpy(header + WIRE_AT_CREDIT, cell->credit, sizeof cell->credit);
    wire_put64(header + WIRE_AT_BYTES, bytes);
    memset(header + WIRE_AT_NAMES, 0, sizeof cell->names);
    if (!named) return bytes;
    memcpy(header + WIRE_AT_BYTES, cell->size, sizeof cell->size);
    memcpy(header + WIRE_AT_NAMES, cell->names, sizeof cell->names);
    return bytes;
}

#endif
