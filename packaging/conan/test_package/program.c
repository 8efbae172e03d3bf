#include <tutti/tutti.h>

int main(void)
{
    float x = 1;
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL));
    int right = x == (float)tutti_get_world_size(NULL);
    printf("rank %d: %s\n", tutti_get_rank(NULL), right ? "ok" : "wrong sum");
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return !right;
}
