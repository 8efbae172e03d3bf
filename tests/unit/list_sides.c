#include "unit/list_sides.h"

#include <unistd.h>

struct end side_end[ENDS];
struct side side[ENDS];
uint64_t side_fingerprint = 7;
const int64_t side_large[ENDS] = {LARGE, LARGE, LARGE}, side_small[ENDS] = {SMALL, SMALL, SMALL};

void sides_open(void)
{
    ends_open(side_end, ENDS);
    for (int i = 0; i < ENDS; i++) {
        side_end[i].shm.can_read_memory = true;
        for (int k = 0; k < ENDS; k++) side_end[i].shm.peer[k].pid = getpid();
        LIST_INIT(&side[i].running);
        coll_open(&side[i].coll, &side_end[i].shm, COLL_FIRST, i, ENDS, (int32_t[]){0, 1, 2});
        assert_int_equal(side[i].coll.state, COLL_READY);
        for (int64_t k = 0; k <= LARGE; k++) {
            side[i].own[k] = i * 1000 + k;
            for (int j = 0; j < ENDS; j++) side[i].all[j][k] = i * 1000 + j * 100000 + k;
        }
    }
}

void sides_open_sharing_cores(void)
{
    sides_open();
    for (int i = 0; i < ENDS; i++) {
        side_end[i].shm.shares_cores = true;
        side_end[i].shm.polls = 0;
    }
}

void sides_close(void)
{
    for (int i = 0; i < ENDS; i++) coll_close(&side[i].coll);
    ends_close(side_end, ENDS);
}

void side_begin(int rank, tutti_kind kind, int root, const int64_t numel[ENDS])
{
    struct side *it = &side[rank];
    tutti_tensor x = {it->own, numel[rank], TUTTI_INT64, {TUTTI_CPU, 0}};
    it->one = x;
    for (int i = 0; i < ENDS; i++) {
        x.numel = numel[i];
        x.data = it->all[i];
        it->list[i] = x;
        x.data = it->got[i];
        it->received[i] = x;
    }
    tutti_op op = {.kind = kind, .dtype = TUTTI_INT64, .root = root, .list = true};
    bool gathers = kind == TUTTI_GATHER, exchanges = kind == TUTTI_ALL_TO_ALL, is_root = rank == root;
    op.in = gathers ? &it->one : is_root || exchanges ? it->list : NULL;
    op.out = exchanges ? it->received : !gathers ? &it->one : is_root ? it->list : NULL;
    op.n_in = gathers ? 1 : op.in != NULL ? ENDS : 0;
    op.n_out = !gathers && !exchanges ? 1 : op.out != NULL ? ENDS : 0;
    it->ended = 0;
    it->request = (tutti_request){.fingerprint = side_fingerprint, .owner = &it->ended};
    if (coll_begin(&it->coll, &op, &it->request, &it->running) == TUTTI_REQUEST_DONE) it->ended = 1;
}

void side_turn(int rank)
{
    for (int i = 0; i < 4; i++) coll_progress(&side[rank].running);
}
