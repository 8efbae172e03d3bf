#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    tutti_group *group;
    TUTTI_CHECK(tutti_new_group((int[]){1, 0}, 2, NULL, &group)); /* the ranks in another order */
    printf("rank %d has rank %d in the group\n", tutti_get_rank(NULL), tutti_get_rank(group));
    TUTTI_CHECK(tutti_destroy_process_group(group));
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has rank 1 in the group
 *     rank 1 has rank 0 in the group
 */
