#include <tutti/tutti.h>

#include <string.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    const char *mine = rank == 0 ? "first" : "and second";
    tutti_bytes all[2];
    TUTTI_CHECK(tutti_all_gather_bytes(all, 2, mine, strlen(mine), NULL));
    printf("rank %d has", rank);
    for (int i = 0; i < 2; i++) printf(" %.*s", (int)all[i].bytes, (char *)all[i].data);
    printf("\n");
    tutti_bytes_free(all, 2);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has first and second
 *     rank 1 has first and second
 */
