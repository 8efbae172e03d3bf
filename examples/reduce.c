/* Reduce: rank 0's tensor becomes the sum, and the others' tensors are unchanged.
 *
 *     tutti-run -n 4 build/examples/reduce [tcp|mpi|nccl]
 */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL);
    tutti_tensor x = TENSOR(float, rank);

    TUTTI_CHECK(tutti_reduce(x, 0, TUTTI_SUM, NULL));
    print_tensor(x, "Rank %d has", rank);

    tensor_free(x);
    return tutti_destroy_process_group(NULL);
}
