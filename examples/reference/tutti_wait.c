#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float grad[1000];
    for (int i = 0; i < 1000; i++) grad[i] = (float)rank;
    tutti_work *work;
    TUTTI_CHECK(tutti_all_reduce(tutti_view(grad, 1000), TUTTI_AVG, tutti_with(.async_op = &work)));
    /* Compute here meanwhile, but leave grad alone. */
    TUTTI_CHECK(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT));
    printf("rank %d has %g, and the Work is %s\n", rank, (double)grad[999], work == NULL ? "freed" : "there");
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 0.5, and the Work is freed
 *     rank 1 has 0.5, and the Work is freed
 */
