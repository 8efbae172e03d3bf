#include <tutti/tutti.h>

int main(void)
{
    tutti_init_opts opts = {.timeout_ms = 60000}; /* of operations; the default is 30 minutes */
    TUTTI_CHECK(tutti_init_process_group("tcp", &opts));
    printf("rank %d of %d on %s\n", tutti_get_rank(NULL), tutti_get_world_size(NULL), tutti_get_backend(NULL));
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 of 2 on cpu:tcp
 *     rank 1 of 2 on cpu:tcp
 */
