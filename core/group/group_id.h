/* Ids of groups: hashes of the parent's id and of what tells its subgroups apart. */
#ifndef GROUP_ID_H
#define GROUP_ID_H

#include <stdint.h>

/* Returns hash with value mixed in. */
uint64_t group_id_mix(uint64_t hash, uint64_t value);
uint64_t group_id_mix_text(uint64_t hash, const char *text);

#endif
