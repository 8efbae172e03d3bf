/* Broadcast: all ranks receive rank 0's tensor. */
#include "example.h"

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL);

    tutti_tensor x = rank == 0 ? TENSOR(float, 1, 2, 3, 4, 5) : ZEROS(float, 5);
    TUTTI_CHECK(tutti_broadcast(x, 0, NULL));
    print_tensor(x, "Rank %d has floats", rank);

    tutti_tensor k = rank == 0 ? TENSOR(int64_t, 1, 2, 3) : ZEROS(int64_t, 3);
    TUTTI_CHECK(tutti_broadcast(k, 0, NULL));
    print_tensor(k, "Rank %d has integers", rank);

    tensor_free(x);
    tensor_free(k);
    return tutti_destroy_process_group(NULL);
}
