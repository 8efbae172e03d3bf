/* Memory of a group's last call of each kind.  Programs call in loops, with the same tensors each time: recognizing
 * that is much cheaper than checking the arguments again. */
#ifndef CALL_MEMO_H
#define CALL_MEMO_H

#include <stdint.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

struct backend_entry;
struct tutti_group;

/* What is known of a checked call. */
struct checked_call {
    uint64_t fingerprint;
    const struct backend_entry *entry; /* see dispatch_entry; NULL if it is not known */
};

/* Runs check_op and fingerprint_of, unless the call repeats the last one of its kind.  Fills *call if it returns OK.
 * Lock held. */
int call_memo_check(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, struct checked_call *call);

#endif
