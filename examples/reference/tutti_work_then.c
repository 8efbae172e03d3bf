#include <tutti/tutti.h>

#include <sched.h>
#include <stdatomic.h>

/* Called by the thread that completes the operation. */
static void count(tutti_work *work, void *argument)
{
    atomic_fetch_add((atomic_int *)argument, tutti_work_status(work) == TUTTI_OK ? 1 : -1);
}

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float x = 1;
    atomic_int ended = 0;
    tutti_work *work;
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.async_op = &work)));
    TUTTI_CHECK(tutti_work_then(work, count, &ended));
    TUTTI_CHECK(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT));
    while (ended == 0) sched_yield(); /* the callback may return after the wait */
    printf("rank %d: %d has ended\n", rank, ended);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0: 1 has ended
 *     rank 1: 1 has ended
 */
