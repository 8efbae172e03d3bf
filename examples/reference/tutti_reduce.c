#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float x = (float)rank + 1;
    TUTTI_CHECK(tutti_reduce(tutti_view(&x, 1), 0, TUTTI_SUM, NULL)); /* the root is rank 0 */
    printf("rank %d has %g\n", rank, (double)x);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 3
 *     rank 1 has 2
 */
