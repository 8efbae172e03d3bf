#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    int32_t mine = 10 + rank, before = 0, upto = mine;
    TUTTI_CHECK(tutti_exscan_into(tutti_view(&before, 1), tutti_view(&mine, 1), TUTTI_SUM, NULL));
    TUTTI_CHECK(tutti_scan(tutti_view(&upto, 1), TUTTI_SUM, NULL));
    printf("rank %d has items %d to %d\n", rank, before, upto - 1); /* where its part of a list begins and ends */
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has items 0 to 9
 *     rank 1 has items 10 to 20
 */
