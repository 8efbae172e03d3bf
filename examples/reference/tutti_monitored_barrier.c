#include <tutti/tutti.h>

#include <string.h>
#include <unistd.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    int status =
        rank == 0 ? tutti_monitored_barrier(tutti_with(.timeout_ms = 300)) : TUTTI_OK; /* rank 1 does not come */
    if (rank == 0)
        printf("%s names rank 1: %s\n", tutti_status_string(status), strchr(tutti_last_error(), '1') ? "yes" : "no");
    if (rank == 1) sleep(1);
    tutti_destroy_process_group(NULL); /* the group has failed */
    return 0;
}

/* Prints:
 *
 *     TUTTI_ERR_TIMEOUT names rank 1: yes
 */
