#include "group/group_id.h"

uint64_t group_id_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

uint64_t group_id_mix_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) hash = group_id_mix(hash, (unsigned char)*text);
    return hash;
}
