#include <tutti/train/sampler.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    tutti_sampler sampler;
    TUTTI_CHECK(tutti_sampler_init(&sampler, 5, NULL)); /* 5 samples; the first one is taken twice */
    printf("rank %d takes", rank);
    for (int64_t row; tutti_sampler_next(&sampler, &row);) printf(" %d", (int)row);
    printf("\n");
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 takes 0 2 4
 *     rank 1 takes 1 3 0
 */
