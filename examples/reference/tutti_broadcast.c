#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    int64_t x[2] = {rank, rank};
    TUTTI_CHECK(tutti_broadcast(tutti_view(x, 2), 1, NULL)); /* rank 1's */
    printf("rank %d has %d %d\n", rank, (int)x[0], (int)x[1]);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 1 1
 *     rank 1 has 1 1
 */
