/* A message header in a slot of a ring.
 *
 * The ring identifies the sender, and most messages carry no memory references and no other size than the payload's.  A
 * slot leaves these fields out, which frees space for a short payload in its first line.  Such a message is a single
 * cache-line transfer.  The reader restores the whole header and validates it like one from a network.
 */
#ifndef RING_SLOT_H
#define RING_SLOT_H

#include "tcp/shm/shm.h"

/* Bits of shm_slot.bytes. */
#define SHM_FULL_HEADER (UINT32_C(1) << 31) /* size, id and ref are valid */
#define SHM_AT_START (UINT32_C(1) << 30)    /* the payload is at the start of the byte area: see restart in ring.c */

/* Not inline, so that messages without these fields load none of them. */
static __attribute__((noinline, unused)) void shm_slot_pack_rest(struct shm_slot *slot,
                                                                 const struct transport_header *header)
{
    slot->size = header->bytes;
    slot->id = header->id;
    slot->ref = header->ref;
}

static inline void shm_slot_pack(struct shm_slot *slot, const struct transport_header *header, uint32_t bytes)
{
    bool plain = ((header->bytes ^ bytes) | header->id | header->ref) == 0;
    slot->bytes = plain ? bytes : bytes | SHM_FULL_HEADER;
    slot->kind = header->kind;
    slot->flags = header->flags;
    slot->group = header->group;
    slot->tag = header->tag;
    slot->fingerprint = header->fingerprint;
    slot->credit = header->credit;
    if (!plain) shm_slot_pack_rest(slot, header);
}

/* Restores the header and returns the payload size.  Reads each field once, because the writer may change it. */
static inline uint32_t shm_slot_unpack(const volatile struct shm_slot *slot, uint32_t from,
                                       struct transport_header *header, bool *at_start)
{
    uint32_t bytes = slot->bytes, payload = bytes & ~(SHM_FULL_HEADER | SHM_AT_START);
    *at_start = (bytes & SHM_AT_START) != 0;
    bool named = (bytes & SHM_FULL_HEADER) != 0;
    header->kind = slot->kind;
    header->flags = slot->flags;
    header->source = from;
    header->group = slot->group;
    header->tag = slot->tag;
    header->bytes = named ? slot->size : payload;
    header->fingerprint = slot->fingerprint;
    header->id = named ? slot->id : 0;
    header->ref = named ? slot->ref : 0;
    header->credit = slot->credit;
    return payload;
}

#endif
