/* Checks the arguments of operations. */
#ifndef CHECK_H
#define CHECK_H

#include <tutti/backend.h>
#include <tutti/tutti.h>

struct tutti_group;

/* Checks op, translates its root into a rank of the group and sets its dtype.  Returns INVALID_ARGUMENT, or UNSUPPORTED
 * if no backend could do it, with an error message that says what is wrong. */
int check_op(const struct tutti_group *group, tutti_op *op, const tutti_opts *opts);

/* Checks the root or peer of op, and translates it to a rank of the group. */
int check_root(const struct tutti_group *group, tutti_op *op, const tutti_opts *opts);

#endif
