#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float x = 42;
    if (rank == 0) TUTTI_CHECK(tutti_send(tutti_view(&x, 1), 1, NULL));
    int64_t bytes = 0;
    float got[4]; /* the receiver does not know the size */
    if (rank == 1) TUTTI_CHECK(tutti_recv(tutti_view(got, 4), 0, tutti_with(.received = &bytes)));
    if (rank == 1) printf("rank 1 got %g, %d bytes\n", (double)got[0], (int)bytes);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 1 got 42, 4 bytes
 */
