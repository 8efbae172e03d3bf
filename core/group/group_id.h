/* Ids of groups.  An id is a hash of the parent's id and of properties that differ between its subgroups. */
#ifndef GROUP_ID_H
#define GROUP_ID_H

#include <stdint.h>

/* Mixes value into hash and returns the result. */
uint64_t group_id_mix(uint64_t hash, uint64_t value);
uint64_t group_id_mix_text(uint64_t hash, const char *text);

#endif
