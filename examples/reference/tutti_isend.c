#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    int other = 1 - rank;
    float mine = (float)rank, theirs;
    tutti_work *works[2]; /* both ranks send first, at any size */
    TUTTI_CHECK(tutti_isend(tutti_view(&mine, 1), other, NULL, &works[0]));
    TUTTI_CHECK(tutti_irecv(tutti_view(&theirs, 1), other, NULL, &works[1]));
    TUTTI_CHECK(tutti_wait_all(works, 2, TUTTI_DEFAULT_TIMEOUT));
    printf("rank %d got %g\n", rank, (double)theirs);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 got 1
 *     rank 1 got 0
 */
