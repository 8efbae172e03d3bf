#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float mine, parts[2] = {5, 6};
    tutti_tensor in[2] = {tutti_view(&parts[0], 1), tutti_view(&parts[1], 1)};
    bool is_root = rank == 0;
    TUTTI_CHECK(tutti_scatter(tutti_view(&mine, 1), is_root ? in : NULL, is_root ? 2 : 0, 0, NULL));
    printf("rank %d has %g\n", rank, (double)mine);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 5
 *     rank 1 has 6
 */
