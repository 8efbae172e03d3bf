/* Memory at an aligned address, for structs that are made and freed all the time.
 *
 * aligned_alloc and posix_memalign do not suit them.  glibc before 2.38 cuts each block out of a larger one and may
 * not reuse it after it has been freed, so the process grows
 * (https://sourceware.org/bugzilla/show_bug.cgi?id=14581). */
#ifndef BASE_ALIGNED_H
#define BASE_ALIGNED_H

#include <stddef.h>

/* Returns memory at a multiple of `alignment`, which is a power of two and at least that of a pointer, or NULL.
 * aligned_free frees it. */
void *aligned_new(size_t alignment, size_t bytes);
/* NULL is ignored. */
void aligned_free(void *memory);

#endif
