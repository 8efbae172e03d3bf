/* Tensors on a device, filled with numbers of any dtype and compared with the expected ones. */
#ifndef DEVICE_TENSORS_H
#define DEVICE_TENSORS_H

#include <stdint.h>

#include <tutti/tutti.h>

#include "gpu/cuda_shim.h"

/* Returns element i, given some parameters. */
typedef double (*element_fn)(int64_t i, const int *what);

/* Allocates a tensor on the group's device.  drop() frees it. */
tutti_tensor on_device(tutti_group *group, int64_t numel, tutti_dtype dtype);
void drop(tutti_group *group, tutti_tensor x);

/* Returns the view of numel elements at index `from`. */
tutti_tensor part(tutti_tensor x, int64_t from, int64_t numel);

/* Copies the elements to host memory, which the caller frees. */
void *to_host(tutti_tensor x);

/* Sets element i to value(i, what). */
void fill(tutti_tensor x, element_fn value, const int *what);

/* True if element i is value(i, what).  Prints the first one that is not. */
bool holds(tutti_tensor x, element_fn value, const int *what);

/* Elements of a rank, and of the reduction over all ranks.  `what` holds the rank and the index of the first element,
 * and for reductions the op and the group's size.  reduced_whole truncates, as integers do. */
double of_rank(int64_t i, const int *what);
double reduced(int64_t i, const int *what);
double reduced_whole(int64_t i, const int *what);

cu_stream new_stream(void);

/* Waits for the stream's work.  Prints an error of the driver. */
void wait_stream(cu_stream stream);

#endif
