#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float x = (float)rank, y = 0;
    tutti_work *works[2];
    TUTTI_CHECK(tutti_isend(tutti_view(&x, 1), 1 - rank, NULL, &works[0]));
    TUTTI_CHECK(tutti_irecv(tutti_view(&y, 1), 1 - rank, NULL, &works[1]));
    for (int i = 0, sum = 0; i < 2; i++) { /* in the order in which they end */
        int index;
        TUTTI_CHECK(tutti_wait_any(works, 2, TUTTI_DEFAULT_TIMEOUT, &index));
        sum += index;
        if (i == 1) printf("rank %d: both have ended, indices %s\n", rank, sum == 1 ? "0 and 1" : "wrong");
    }
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0: both have ended, indices 0 and 1
 *     rank 1: both have ended, indices 0 and 1
 */
