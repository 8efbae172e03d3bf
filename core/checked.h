/* What was found of a group's last call of each kind.  Programs call in loops, with the same tensors each time: to see
 * that takes a tenth of what checking it again would. */
#ifndef CHECKED_H
#define CHECKED_H

#include <stdint.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

struct tutti_group;

struct checked {
    uint64_t call; /* see tutti_op; 0: there was none */
    uint64_t fingerprint;
    /* as the caller gave it */
    int32_t given_root;
    bool group_rank;
    tutti_reduce_op reduce_op;
    tutti_tensor in, out; /* of the sides that count */
    /* as check_op left it */
    int32_t root, n_in, n_out;
    tutti_dtype dtype;
};

/* check_op and fingerprint_of, or what they said of the same call.  Under the lock. */
int checked_op(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, uint64_t *fingerprint);

#endif
