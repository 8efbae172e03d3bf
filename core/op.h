/* The descriptor of an operation, kept beyond the call that made it. */
#ifndef OP_H
#define OP_H

#include <tutti/backend.h>

/* Copies op, with its tensors and its splits (size entries a side, where there are any).  Up to `room` tensors without
 * splits go to tensors; else *memory receives an allocation to be freed (it is NULL otherwise).  NO_MEMORY. */
int op_copy(tutti_op *copy, const tutti_op *op, int size, tutti_tensor *tensors, size_t room, void **memory);

#endif
