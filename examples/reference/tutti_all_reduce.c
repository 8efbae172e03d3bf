#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float x[2] = {(float)rank, 10}, largest = (float)rank;
    TUTTI_CHECK(tutti_all_reduce(tutti_view(x, 2), TUTTI_SUM, NULL));
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&largest, 1), TUTTI_MAX, tutti_with(.timeout_ms = 5000)));
    printf("rank %d: sum %g %g, largest %g\n", rank, (double)x[0], (double)x[1], (double)largest);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0: sum 1 20, largest 1
 *     rank 1: sum 1 20, largest 1
 */
