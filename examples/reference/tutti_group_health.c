#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    tutti_rank_health health[2];
    TUTTI_CHECK(tutti_group_health(NULL, health, 2));
    for (int i = 0; i < 2; i++) printf("rank %d is %s\n", i, health[i].state == TUTTI_RANK_ALIVE ? "alive" : "gone");
    TUTTI_CHECK(tutti_barrier(NULL)); /* so that no rank leaves before the other has asked */
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 is alive
 *     rank 0 is alive
 *     rank 1 is alive
 *     rank 1 is alive
 */
