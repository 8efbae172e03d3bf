#include "unit/small_groups.h"

void small_begin(struct small *small, tutti_kind kind)
{
    tutti_tensor tensor = {small->x, small->numel, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {.kind = kind,
                   .dtype = TUTTI_INT64,
                   .n_in = kind == TUTTI_ALL_REDUCE,
                   .n_out = 1,
                   .in = &tensor,
                   .out = &tensor,
                   .async = small->async};
    small->ended = 0;
    small->request = (tutti_request){.fingerprint = 7, .owner = &small->ended};
    int status = coll_begin(&small->coll, &op, &small->request, &small->running);
    if (status != TUTTI_REQUEST_PENDING) small->ended = status == TUTTI_REQUEST_DONE ? 1 : status;
}

void small_open(struct end *end, struct small *small, int n)
{
    *small = (struct small){.numel = 1};
    LIST_INIT(&small->running);
    coll_open(&small->coll, &end->shm, COLL_FIRST, end->shm.local_rank, n, (int32_t[]){0, 1, 2});
    assert_int_equal(small->coll.state, COLL_READY);
}

static void reduce_both(struct small small[2])
{
    for (int i = 0; i < 2; i++) small_begin(&small[i], TUTTI_ALL_REDUCE);
    for (int turn = 0; turn < 8; turn++) coll_progress(&small[turn % 2].running);
    assert_true(small[0].ended == 1 && small[1].ended == 1);
}

static const tutti_path_row lockstep[] = {{TUTTI_ALL_REDUCE, COLL_LOCKSTEP, INT64_MAX},
                                          {TUTTI_BROADCAST, COLL_LOCKSTEP, INT64_MAX}};

void small_open_both(struct end end[2], struct small small[2])
{
    ends_open(end, 2);
    for (int i = 0; i < 2; i++) small_open(&end[i], &small[i], 2);
    reduce_both(small);
    for (int i = 0; i < 2; i++) {
        small[i].numel = SMALL_MOST;
        small[i].coll.choices = lockstep;
        small[i].coll.n_choices = sizeof lockstep / sizeof *lockstep;
    }
}

void small_close_both(struct end end[2], struct small small[2])
{
    for (int i = 0; i < 2; i++) coll_close(&small[i].coll);
    ends_close(end, 2);
}

void small_broadcast(struct small *small, int64_t value)
{
    for (int64_t i = 0; i < small->numel; i++) small->x[i] = value + i;
    small_begin(small, TUTTI_BROADCAST);
}

void small_receive(struct small *small, int64_t value)
{
    memset(small->x, 0, sizeof small->x);
    small_begin(small, TUTTI_BROADCAST);
    assert_int_equal(small->ended, 1);
    for (int64_t i = 0; i < small->numel; i++) assert_int_equal(small->x[i], value + i);
}
