#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    if (rank == 0) printf("first\n");
    fflush(stdout);
    TUTTI_CHECK(tutti_barrier(NULL));
    if (rank == 1) printf("second\n");
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     first
 *     second
 */
