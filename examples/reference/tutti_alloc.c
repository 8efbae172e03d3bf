#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float *x; /* other ranks of this host read it in place */
    TUTTI_CHECK(tutti_alloc(NULL, (1 << 20) * (int64_t)sizeof *x, (void **)&x));
    for (int i = 0; i < 1 << 20; i++) x[i] = (float)rank;
    TUTTI_CHECK(tutti_all_reduce(tutti_view(x, 1 << 20), TUTTI_SUM, NULL));
    printf("rank %d has %g\n", rank, (double)x[0]);
    TUTTI_CHECK(tutti_free(NULL, x));
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 1
 *     rank 1 has 1
 */
