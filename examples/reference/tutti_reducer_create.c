#include <tutti/train/reducer.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float weight[2] = {(float)rank, 1}, gradient[2] = {0, 0};
    tutti_parameter list[] = {{"weight", tutti_view(weight, 2), tutti_view(gradient, 2)}};
    tutti_reducer *reducer; /* rank 0's weights go to all ranks */
    TUTTI_CHECK(tutti_reducer_create(list, 1, NULL, &reducer));
    gradient[0] = (float)rank; /* the backward pass */
    TUTTI_CHECK(tutti_reducer_ready(reducer, 0));
    TUTTI_CHECK(tutti_reducer_wait(reducer));
    printf("rank %d: weight %g, average gradient %g\n", rank, (double)weight[0], (double)gradient[0]);
    tutti_reducer_destroy(reducer);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0: weight 0, average gradient 0.5
 *     rank 1: weight 0, average gradient 0.5
 */
