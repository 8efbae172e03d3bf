/* All-to-all: rank r's p-th part becomes rank p's r-th part, a transposition across ranks.
 *
 *     tutti-run -n 4 build/examples/all_to_all_single [tcp|mpi|nccl]
 */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    tutti_tensor in = ZEROS(float, world), out = ZEROS(float, world);
    float values[world];
    for (int i = 0; i < world; i++) values[i] = (float)(world * rank + i);
    tensor_set(in, values);

    TUTTI_CHECK(tutti_all_to_all_single(out, in, NULL, NULL, NULL)); /* no splits: one element per rank */
    print_tensor(in, "Rank %d sent", rank);
    print_tensor(out, "Rank %d has", rank);

    tensor_free(in);
    tensor_free(out);
    return tutti_destroy_process_group(NULL);
}
