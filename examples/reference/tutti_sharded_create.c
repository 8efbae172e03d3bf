#include <tutti/train/sharded.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float weight[4] = {1, 1, 1, 1}, gradient[4];
    tutti_parameter list[] = {{"weight", tutti_view(weight, 4), tutti_view(gradient, 4)}};
    tutti_sharded *sharded;
    TUTTI_CHECK(tutti_sharded_create(list, 1, NULL, &sharded));
    for (int i = 0; i < 4; i++) gradient[i] = (float)(rank + i); /* the backward pass */
    TUTTI_CHECK(tutti_sharded_ready(sharded, 0));
    TUTTI_CHECK(tutti_sharded_wait(sharded));
    tutti_tensor value = tutti_sharded_value(sharded), average = tutti_sharded_gradient(sharded);
    for (int64_t i = 0; i < value.numel; i++)
        ((float *)value.data)[i] -= ((float *)average.data)[i]; /* this rank's part */
    TUTTI_CHECK(tutti_sharded_update(sharded));
    TUTTI_CHECK(tutti_sharded_wait_values(sharded));
    printf("rank %d: %g %g %g %g\n", rank, (double)weight[0], (double)weight[1], (double)weight[2], (double)weight[3]);
    tutti_sharded_destroy(sharded);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0: 0.5 -0.5 -1.5 -2.5
 *     rank 1: 0.5 -0.5 -1.5 -2.5
 */
