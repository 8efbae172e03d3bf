/* Timing: a reduce and an all-reduce between two barriers.  With the first barrier all ranks start together.  With the
 * second, all measure the time of the slowest rank.
 *
 *     tutti-run -n 4 build/examples/timed [tcp|mpi|nccl]
 */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL);
    tutti_tensor x = ZEROS(float, 1 << 20);

    TUTTI_CHECK(tutti_barrier(NULL));
    double start = seconds();
    TUTTI_CHECK(tutti_reduce(x, 0, TUTTI_SUM, NULL));
    TUTTI_CHECK(tutti_all_reduce(x, TUTTI_SUM, NULL));
    TUTTI_CHECK(tutti_barrier(NULL));
    double took = seconds() - start;

    if (rank == 0) printf("reduce and all_reduce of %lld floats took %.6f seconds\n", (long long)x.numel, took);
    tensor_free(x);
    return tutti_destroy_process_group(NULL);
}
