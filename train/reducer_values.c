#include "reducer_values.h"

int values_broadcast(struct tutti_reducer *reducer, int root)
{
    tutti_work *work = NULL;
    tutti_opts opts = reducer_opts(reducer, NULL);
    int status = tutti_coalesce_begin(reducer->group);
    if (status != TUTTI_OK) return status;
    opts.group_rank = true;
    for (int i = 0; i < reducer->n && status == TUTTI_OK; i++)
        if (reducer->parameter[i].value.numel > 0) status = tutti_broadcast(reducer->parameter[i].value, root, &opts);
    int end = tutti_coalesce_end(reducer->group, &work);
    if (status == TUTTI_OK) status = end;
    int waited = work != NULL ? tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) : TUTTI_OK;
    return status != TUTTI_OK ? status : waited;
}
