/* All-gather: every rank receives every rank's tensor, in rank order.
 *
 *     tutti-run -n 4 build/examples/all_gather [tcp|mpi|nccl]
 */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    tutti_tensor x = TENSOR(float, rank), list[world];
    for (int r = 0; r < world; r++) list[r] = ZEROS(float, 1);

    TUTTI_CHECK(tutti_all_gather(list, world, x, NULL));
    print_tensors(list, world, "Rank %d has", rank);

    for (int r = 0; r < world; r++) tensor_free(list[r]);
    tensor_free(x);
    return tutti_destroy_process_group(NULL);
}
