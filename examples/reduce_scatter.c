/* Reduce-scatter: rank r receives the sum of every rank's r-th tensor.
 *
 *     tutti-run -n 4 build/examples/reduce_scatter [tcp|mpi|nccl]
 */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    tutti_tensor sum = ZEROS(float, 1), list[world];
    for (int r = 0; r < world; r++) list[r] = TENSOR(float, rank);

    TUTTI_CHECK(tutti_reduce_scatter(sum, list, world, TUTTI_SUM, NULL));
    print_tensor(sum, "Rank %d has", rank);

    for (int r = 0; r < world; r++) tensor_free(list[r]);
    tensor_free(sum);
    return tutti_destroy_process_group(NULL);
}
