#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float all[4] = {1, 2, 3, 4}, mine[2];
    TUTTI_CHECK(tutti_reduce_scatter_tensor(tutti_view(mine, 2), tutti_view(all, 4), TUTTI_SUM, NULL));
    printf("rank %d has %g %g\n", rank, (double)mine[0], (double)mine[1]);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 2 4
 *     rank 1 has 6 8
 */
