#include <tutti/tutti.h>

#include <poll.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float x = 1;
    tutti_work *work;
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.async_op = &work)));
    struct pollfd ended = {tutti_work_fd(work), POLLIN, 0}; /* beside the descriptors of the program */
    int n = poll(&ended, 1, 60000);
    printf("rank %d: poll says %d, the status is %s\n", rank, n, tutti_status_string(tutti_work_status(work)));
    tutti_work_free(work);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0: poll says 1, the status is TUTTI_OK
 *     rank 1: poll says 1, the status is TUTTI_OK
 */
