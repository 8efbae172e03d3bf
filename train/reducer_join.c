/* A rank that has joined makes the same operations as the others, as iterations without gradients.  The header of each
 * iteration tells it whether another one follows: it counts the ranks that have not joined. */
#include <tutti/train/reducer.h>

#include "reducer_iteration.h"
#include "reducer_sequence.h"
#include "reducer_values.h"

/* Takes part in iterations until all ranks have joined.  An iteration that fails on another rank's account is not this
 * rank's affair. */
static int shadow(struct tutti_reducer *reducer)
{
    for (;;) {
        tutti_opts opts = reducer_control_opts(reducer, NULL);
        reducer->active = 0;
        int status = tutti_all_reduce(tutti_view(&reducer->active, 1), TUTTI_SUM, &opts);
        if (status != TUTTI_OK || reducer->active == 0) return status;
        status = iteration_end(reducer);
        if (status != TUTTI_OK && status != TUTTI_ERR_INVALID_ARGUMENT) return status;
    }
}

/* Broadcasts the values of the rank with most iterations, the highest of those. */
static int share_values(struct tutti_reducer *reducer)
{
    int64_t last = reducer->iterations * reducer->size + reducer->rank;
    tutti_opts opts = reducer_control_opts(reducer, NULL);
    int status = tutti_all_reduce(tutti_view(&last, 1), TUTTI_MAX, &opts);
    return status == TUTTI_OK ? values_broadcast(reducer, (int)(last % reducer->size)) : status;
}

int tutti_reducer_join(tutti_reducer *reducer)
{
    if (!reducer->opts.join)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "reducer_join: set join in the options of all ranks");
    if (iteration_is_open(reducer))
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "reducer_join: gradients were reported; call tutti_reducer_wait before");
    bool sync = reducer->sync;
    reducer->is_shadow = reducer->sync = true;
    pthread_mutex_lock(&reducer->lock);
    int status = shadow(reducer);
    pthread_mutex_unlock(&reducer->lock);
    reducer->is_shadow = false;
    reducer->sync = sync;
    if (status == TUTTI_OK) status = share_values(reducer);
    reducer->iterations = 0;
    return status;
}
