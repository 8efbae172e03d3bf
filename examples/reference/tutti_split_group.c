#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    tutti_group *group; /* even and odd ranks */
    TUTTI_CHECK(tutti_split_group(rank % 2, rank, NULL, &group));
    printf("rank %d is in a group of %d\n", rank, tutti_get_world_size(group));
    TUTTI_CHECK(tutti_destroy_process_group(group));
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 is in a group of 1
 *     rank 1 is in a group of 1
 */
