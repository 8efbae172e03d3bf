/* Memory of a group's last call of each kind.  Programs call in loops, with the same tensors each time: recognizing
 * that is much cheaper than checking the arguments again. */
#ifndef CALL_MEMO_H
#define CALL_MEMO_H

#include <stdint.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

struct tutti_group;

/* Runs check_op and fingerprint_of, unless the call repeats the last one of its kind.  Lock held. */
int call_memo_check(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, uint64_t *fingerprint);

#endif
