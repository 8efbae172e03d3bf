/* Every rank says hello.
 *
 *     tutti-run -n 4 build/examples/hello [tcp|mpi|nccl]
 */
#include <tutti/tutti.h>

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    printf("Hello from rank %d out of %d processes!\n", tutti_get_rank(NULL), tutti_get_world_size(NULL));
    return tutti_destroy_process_group(NULL);
}
