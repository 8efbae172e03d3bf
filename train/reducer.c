#include <stdlib.h>
#include <string.h>
#include <tutti/train/reducer.h>

#include "reducer_agree.h"
#include "reducer_check.h"
#include "reducer_iteration.h"
#include "reducer_layout.h"
#include "reducer_scheme.h"
#include "reducer_sequence.h"
#include "reducer_values.h"

/* Checks and allocates what one rank can by itself. */
static int prepare(struct tutti_reducer *reducer, const tutti_parameter *parameters, size_t parameter_bytes, int n)
{
    int status = reducer_check_options(&reducer->opts);
    if (status == TUTTI_OK) status = reducer_copy_list(reducer, parameters, parameter_bytes, n);
    if (status == TUTTI_OK) status = reducer_layout_create(reducer);
    for (int b = 0; b < reducer->buckets; b++) {
        int phases = scheme_phases(reducer, reducer->bucket[b].scheme);
        if (phases > reducer->most_phases) reducer->most_phases = phases;
    }
    return status;
}

/* Agrees with the other ranks on the list, and gives all ranks the values of rank 0. */
static int meet(struct tutti_reducer *reducer, int status)
{
    status = reducer_agree_on_list(reducer, status);
    if (status != TUTTI_OK || reducer->opts.no_broadcast) return status;
    return values_broadcast(reducer, 0);
}

static int check_call(const tutti_reducer_opts *opts, tutti_reducer **reducer)
{
    if (reducer == NULL)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "reducer_create: reducer is NULL; pass where to store it");
    if (tutti_get_rank(opts->group) >= 0) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                           "reducer_create: this rank is not in the group, or there is no default group");
}

/* Makes a group for messages in host memory, if the reducer's serves CUDA alone. */
static int make_control(struct tutti_reducer *reducer)
{
    tutti_group_opts opts = {.parent = reducer->group, .backend = "cpu:tcp", .members_only = true};
    reducer->control = reducer->group;
    if (tutti_get_device(reducer->group).type == TUTTI_CPU) return TUTTI_OK;
    int *ranks = calloc((size_t)reducer->size, sizeof *ranks);
    if (ranks == NULL) {
        tutti_abort(reducer->group, "a rank has no memory for a reducer");
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "reducer_create: out of memory for a list of ranks");
    }
    for (int i = 0; i < reducer->size; i++) ranks[i] = tutti_get_global_rank(reducer->group, i);
    int status = tutti_new_group(ranks, reducer->size, &opts, &reducer->control);
    reducer->has_control = status == TUTTI_OK;
    free(ranks);
    return status;
}

int tutti_reducer_create_sized(const tutti_parameter *parameters, size_t parameter_bytes, int n,
                               const tutti_reducer_opts *opts, size_t opts_bytes, tutti_reducer **reducer)
{
    tutti_reducer_opts options;
    int status = tutti_sized_read("tutti_reducer_opts", opts, opts_bytes, &options, sizeof options);
    if (status == TUTTI_OK) status = check_call(&options, reducer);
    if (status != TUTTI_OK) return status;
    struct tutti_reducer *made = calloc(1, sizeof *made);
    if (made == NULL) {
        tutti_abort(options.group, "a rank has no memory for a reducer");
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "reducer_create: out of memory");
    }
    pthread_mutex_init(&made->lock, NULL);
    made->opts = options;
    made->group = options.group;
    made->rank = tutti_get_rank(options.group);
    made->size = tutti_get_world_size(options.group);
    made->sync = true;
    status = make_control(made);
    if (status == TUTTI_OK) status = meet(made, prepare(made, parameters, parameter_bytes, n));
    sequence_reset(made);
    if (status != TUTTI_OK)
        tutti_reducer_destroy(made);
    else
        *reducer = made;
    if (status == TUTTI_OK && made->rank == 0)
        tutti_log("train", TUTTI_LOG_INFO, "a reducer has %d parameters in %d buckets", made->n, made->buckets);
    return status;
}

void tutti_reducer_destroy(tutti_reducer *reducer)
{
    char text[REDUCER_TEXT];
    if (reducer == NULL) return;
    snprintf(text, sizeof text, "%s", tutti_last_error());
    iteration_abandon(reducer);
    reducer_layout_free(reducer);
    for (int i = 0; i < reducer->n; i++) free(reducer->parameter[i].name);
    free(reducer->parameter);
    if (reducer->has_control) tutti_destroy_process_group(reducer->control);
    pthread_mutex_destroy(&reducer->lock);
    free(reducer);
    tutti_set_error(TUTTI_OK, "%s", text); /* that of a failed create */
}

int tutti_reducer_ready(tutti_reducer *reducer, int i)
{
    return iteration_report(reducer, i, false);
}

int tutti_reducer_skip(tutti_reducer *reducer, int i)
{
    return iteration_report(reducer, i, true);
}

int tutti_reducer_wait(tutti_reducer *reducer)
{
    pthread_mutex_lock(&reducer->lock);
    int status = iteration_end(reducer);
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

int tutti_reducer_set_sync(tutti_reducer *reducer, bool sync)
{
    if (iteration_is_open(reducer) && sync != reducer->sync)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "reducer_set_sync: gradients were reported; call tutti_reducer_wait before");
    reducer->sync = sync;
    return TUTTI_OK;
}

tutti_tensor tutti_reducer_gradient(const tutti_reducer *reducer, int i)
{
    tutti_tensor none = {NULL, -1, TUTTI_FLOAT32, {TUTTI_CPU, 0}};
    return i >= 0 && i < reducer->n ? reducer->parameter[i].gradient : none;
}

const tutti_bucket *tutti_reducer_bucket(const tutti_reducer *reducer, int k)
{
    return k >= 0 && k < reducer->buckets ? &reducer->bucket[k].view : NULL;
}

int64_t tutti_reducer_bytes(const tutti_reducer *reducer)
{
    return reducer->bytes;
}
