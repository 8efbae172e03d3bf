/* Converts between this processor's order of bytes and little-endian, in both directions.  <endian.h> has another name
 * and other contents on each system. */
#ifndef BASE_LITTLE_ENDIAN_H
#define BASE_LITTLE_ENDIAN_H

#include <stdint.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define TO_LITTLE_ENDIAN(bits, n) (n)
#else
#define TO_LITTLE_ENDIAN(bits, n) __builtin_bswap##bits(n)
#endif

static inline uint16_t le16(uint16_t n)
{
    return TO_LITTLE_ENDIAN(16, n);
}

static inline uint32_t le32(uint32_t n)
{
    return TO_LITTLE_ENDIAN(32, n);
}

static inline uint64_t le64(uint64_t n)
{
    return TO_LITTLE_ENDIAN(64, n);
}

#undef TO_LITTLE_ENDIAN

#endif
