/* Cases of reductions by the program's own ops, for a group over any backend. */
#ifndef TESTS_USER_OP_CASES_H
#define TESTS_USER_OP_CASES_H

#include <tutti/tutti.h>

/* Runs every reduction with a commutative and a non-commutative op.  Returns 0, or the line of the failed check. */
int user_op_cases(tutti_group *group);

/* Creates an op on pairs of a double and an int64_t that keeps the smaller double, and of equal ones the smaller
 * integer. */
int user_op_minloc(tutti_reduce_op *op);

#endif
