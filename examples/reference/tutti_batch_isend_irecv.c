#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    int other = 1 - rank;
    float mine = (float)rank, theirs;
    tutti_p2p_op ops[2] = {{.kind = TUTTI_SEND, .tensor = tutti_view(&mine, 1), .peer = other},
                           {.kind = TUTTI_RECV, .tensor = tutti_view(&theirs, 1), .peer = other}};
    tutti_work *works[2];
    TUTTI_CHECK(tutti_batch_isend_irecv(ops, 2, NULL, works));
    TUTTI_CHECK(tutti_wait_all(works, 2, TUTTI_DEFAULT_TIMEOUT));
    printf("rank %d got %g\n", rank, (double)theirs);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 got 1
 *     rank 1 got 0
 */
