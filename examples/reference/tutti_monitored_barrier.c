#include <tutti/tutti.h>

#include <string.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float x = 0;
    int status = rank == 0 ? tutti_monitored_barrier(tutti_with(.timeout_ms = 300))
                           : tutti_recv(tutti_view(&x, 1), 0, NULL); /* rank 1 waits elsewhere, until the group fails */
    if (rank == 0)
        printf("%s names rank 1: %s\n", tutti_status_string(status), strchr(tutti_last_error(), '1') ? "yes" : "no");
    tutti_destroy_process_group(NULL); /* the group has failed */
    return 0;
}

/* Prints:
 *
 *     TUTTI_ERR_TIMEOUT names rank 1: yes
 */
