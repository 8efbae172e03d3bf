/* Memory on the device of the default group, and copies between it and this program's own. */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <tutti/tutti.h>

/* Memory for numel elements.  On CPU it is the program's own, as in most programs, unless tutti_alloc's is asked for.
 * Ends the program with a sentence where there is none. */
tutti_tensor memory_new(int64_t numel, tutti_dtype dtype, bool from_tutti);
void memory_free(tutti_tensor tensor, bool from_tutti);

/* Copies all of the tensor's elements. */
void memory_write(tutti_tensor tensor, const void *from);
void memory_read(void *to, tutti_tensor tensor);

/* Sets every byte to 0xff, so that what is not written is found wrong. */
void memory_spoil(tutti_tensor tensor);

#endif
