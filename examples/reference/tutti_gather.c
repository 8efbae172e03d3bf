#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float mine = (float)rank, first = -1, second = -1;
    tutti_tensor out[2] = {tutti_view(&first, 1), tutti_view(&second, 1)};
    bool is_root = rank == 0;
    TUTTI_CHECK(tutti_gather(tutti_view(&mine, 1), is_root ? out : NULL, is_root ? 2 : 0, 0, NULL));
    printf("rank %d has %g %g\n", rank, (double)first, (double)second);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 0 1
 *     rank 1 has -1 -1
 */
