/* Blocking point to point: rank 0 sends a number to rank 1.  The other ranks are idle.
 *
 *     tutti-run -n 4 build/examples/send_recv [tcp|mpi|nccl]
 */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL);
    tutti_tensor x = ZEROS(float, 1);

    if (rank == 0) {
        tensor_set(x, (float[]){42});
        TUTTI_CHECK(tutti_send(x, 1, NULL));
    } else if (rank == 1) {
        printf("Rank 1 has %.1f before\n", tensor_item(x, 0));
        TUTTI_CHECK(tutti_recv(x, 0, NULL));
        printf("Rank 1 has %.1f after\n", tensor_item(x, 0));
    }

    tensor_free(x);
    return tutti_destroy_process_group(NULL);
}
