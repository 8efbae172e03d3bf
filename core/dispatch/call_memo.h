/* What was found of a group's last call of each kind.  Programs call in loops, with the same tensors each time: to see
 * that takes a tenth of what checking it again would. */
#ifndef CALL_MEMO_H
#define CALL_MEMO_H

#include <stdint.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

struct tutti_group;

/* check_op and fingerprint_of, or what they said of the same call.  Under the lock. */
int call_memo_check(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, uint64_t *fingerprint);

#endif
