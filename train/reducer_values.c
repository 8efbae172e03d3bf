#include "reducer_values.h"

#include "reducer_sequence.h"

int values_broadcast(struct tutti_reducer *reducer, int root)
{
    tutti_work *work = NULL;
    tutti_opts opts = reducer_opts(reducer, NULL);
    int status = tutti_coalesce_begin(reducer->group);
    if (status != TUTTI_OK) return status;
    opts.group_rank = true;
    for (int i = 0; i < reducer->n && reducer->status == TUTTI_OK; i++)
        if (reducer->parameter[i].value.numel > 0)
            sequence_fail_start(reducer, tutti_broadcast(reducer->parameter[i].value, root, &opts));
    sequence_fail_start(reducer, tutti_coalesce_end(reducer->group, &work));
    sequence_wait(reducer, &work, false);
    status = reducer->status;
    reducer->status = TUTTI_OK;
    return status == TUTTI_OK ? TUTTI_OK : tutti_set_error(status, "%s", reducer->text);
}
