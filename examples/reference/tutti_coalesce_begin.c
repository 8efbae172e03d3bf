#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float a = (float)rank, b = 1;
    TUTTI_CHECK(tutti_coalesce_begin(NULL));
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&a, 1), TUTTI_SUM, NULL)); /* queued */
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&b, 1), TUTTI_SUM, NULL));
    TUTTI_CHECK(tutti_coalesce_end(NULL, NULL)); /* sends both as one message, and waits */
    printf("rank %d has %g and %g\n", rank, (double)a, (double)b);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 1 and 2
 *     rank 1 has 1 and 2
 */
