#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float mine[2] = {(float)rank, 7}, first[1], second[2]; /* rank 0 has one element, rank 1 has two */
    tutti_tensor out[2] = {tutti_view(first, 1), tutti_view(second, 2)};
    TUTTI_CHECK(tutti_all_gather(out, 2, tutti_view(mine, rank + 1), NULL));
    printf("rank %d has [%g] [%g, %g]\n", rank, (double)first[0], (double)second[0], (double)second[1]);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has [0] [1, 7]
 *     rank 1 has [0] [1, 7]
 */
