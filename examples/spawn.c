/* Spawn: a program starts its own ranks without a launcher, as torch.multiprocessing.spawn does.
 *
 *     build/examples/spawn [tcp|mpi|nccl]
 */
#include "example.h"

static int run(int rank, void *argument)
{
    const char *backend = argument;
    TUTTI_CHECK(tutti_init_process_group(backend, NULL));
    tutti_tensor x = TENSOR(float, rank);

    TUTTI_CHECK(tutti_all_reduce(x, TUTTI_SUM, NULL));
    print_tensor(x, "Rank %d of %d has", tutti_get_rank(NULL), tutti_get_world_size(NULL));

    tensor_free(x);
    return tutti_destroy_process_group(NULL);
}

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_spawn(run, argc > 1 ? argv[1] : "tcp", 4));
    printf("All 4 ranks are done\n");
    return 0;
}
