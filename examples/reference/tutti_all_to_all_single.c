#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    /* Rank 0 keeps one element and sends two; rank 1 sends none and keeps one. */
    float in[3] = {10.0f * (float)rank, 1, 2}, out[3] = {0};
    int64_t in_splits[2][2] = {{1, 2}, {0, 1}}, out_splits[2][2] = {{1, 0}, {2, 1}};
    int64_t n_in = rank == 0 ? 3 : 1, n_out = rank == 0 ? 1 : 3;
    TUTTI_CHECK(
        tutti_all_to_all_single(tutti_view(out, n_out), tutti_view(in, n_in), out_splits[rank], in_splits[rank], NULL));
    printf("rank %d has %g %g %g\n", rank, (double)out[0], (double)out[1], (double)out[2]);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 has 0 0 0
 *     rank 1 has 1 2 10
 */
