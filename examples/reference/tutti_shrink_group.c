#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    tutti_group *smaller; /* no rank is lost here, so it has both */
    TUTTI_CHECK(tutti_shrink_group(NULL, &smaller));
    printf("rank %d goes on as %d of %d\n", rank, tutti_get_rank(smaller), tutti_get_world_size(smaller));
    TUTTI_CHECK(tutti_destroy_process_group(smaller));
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 goes on as 0 of 2
 *     rank 1 goes on as 1 of 2
 */
