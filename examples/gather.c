/* Gather: rank 0 receives every rank's tensor, in rank order.
 *
 *     tutti-run -n 4 build/examples/gather [tcp|mpi|nccl]
 */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    tutti_tensor x = TENSOR(float, rank);

    if (rank == 0) {
        tutti_tensor list[world];
        for (int r = 0; r < world; r++) list[r] = ZEROS(float, 1);
        TUTTI_CHECK(tutti_gather(x, list, world, 0, NULL));
        print_tensors(list, world, "Rank 0 has");
        for (int r = 0; r < world; r++) tensor_free(list[r]);
    } else {
        TUTTI_CHECK(tutti_gather(x, NULL, 0, 0, NULL)); /* only the root passes a list */
        print_tensor(x, "Rank %d sent", rank);
    }

    tensor_free(x);
    return tutti_destroy_process_group(NULL);
}
