/* All-reduce: every rank's tensor becomes the sum or the average of all ranks' tensors.
 *
 *     tutti-run -n 4 build/examples/all_reduce [tcp|mpi|nccl]
 */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL);
    tutti_tensor x = TENSOR(float, rank);

    TUTTI_CHECK(tutti_all_reduce(x, TUTTI_SUM, NULL));
    print_tensor(x, "Rank %d has the sum of the ranks", rank);

    tensor_set(x, (float[]){(float)rank + 1});
    TUTTI_CHECK(tutti_all_reduce(x, TUTTI_SUM, NULL));
    print_tensor(x, "Rank %d has the sum, counted from 1", rank);

    tensor_set(x, (float[]){(float)rank + 1});
    TUTTI_CHECK(tutti_all_reduce(x, TUTTI_AVG, NULL));
    print_tensor(x, "Rank %d has the average, counted from 1", rank);

    tensor_free(x);
    return tutti_destroy_process_group(NULL);
}
