#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float mine = (float)rank, all[2];
    TUTTI_CHECK(tutti_all_gather_into_tensor(tutti_view(all, 2), tutti_view(&mine, 1), NULL));
    printf("rank %d has %g %g\n", rank, (double)all[0], (double)all[1]);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 0 1
 *     rank 1 has 0 1
 */
