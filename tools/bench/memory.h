/* Memory on the device of the default group, and copies between it and the program's memory. */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <tutti/tutti.h>

/* Allocates numel elements.  On the CPU it uses the system's memory, as most programs do, unless from_tutti.  Ends the
 * program with a message if there is no memory. */
tutti_tensor memory_new(int64_t numel, tutti_dtype dtype, bool from_tutti);
void memory_free(tutti_tensor tensor, bool from_tutti);

/* Copy all elements to or from the tensor. */
void memory_write(tutti_tensor tensor, const void *from);
void memory_read(void *to, tutti_tensor tensor);

/* Sets every byte to 0xff, so that an element that is not written is wrong. */
void memory_spoil(tutti_tensor tensor);

#endif
