/* Scatter: rank r receives the r-th tensor of rank 0's list.
 *
 *     tutti-run -n 4 build/examples/scatter [tcp|mpi|nccl]
 */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    tutti_tensor x = ZEROS(float, 1);

    if (rank == 0) {
        tutti_tensor list[world];
        for (int r = 0; r < world; r++) list[r] = TENSOR(float, r);
        TUTTI_CHECK(tutti_scatter(x, list, world, 0, NULL));
        for (int r = 0; r < world; r++) tensor_free(list[r]);
    } else {
        TUTTI_CHECK(tutti_scatter(x, NULL, 0, 0, NULL)); /* only the root passes a list */
    }
    print_tensor(x, "Rank %d has", rank);

    tensor_free(x);
    return tutti_destroy_process_group(NULL);
}
