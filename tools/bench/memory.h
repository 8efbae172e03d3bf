/* Memory on the device of the default group, and copies between it and the program's own memory. */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <tutti/tutti.h>

/* Allocates numel elements.  On CPU they are malloc's, as in most programs, unless tutti_alloc's are asked for.  Ends
 * the program with a message if there is no memory. */
tutti_tensor memory_new(int64_t numel, tutti_dtype dtype, bool from_tutti);
void memory_free(tutti_tensor tensor, bool from_tutti);

/* Copies all elements of the tensor. */
void memory_write(tutti_tensor tensor, const void *from);
void memory_read(void *to, tutti_tensor tensor);

/* Sets every byte to 0xff, so an element that is not written is found wrong. */
void memory_spoil(tutti_tensor tensor);

#endif
