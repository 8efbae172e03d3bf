/* Asynchronous all-reduce: it continues while the program computes.  Rank 0 prints how much of the shorter of the two
 * overlapped with the longer: 100 % if ranks have spare cores or a GPU, less if they share cores.
 *
 *     tutti-run -n 4 build/examples/async_all_reduce [tcp|mpi|nccl]
 */
#include "example.h"

enum { NUMEL = 4 << 20, ROUNDS = 5 };

/* Computes without the network and with little memory. */
static double compute(void)
{
    double x = 0.5;
    for (int i = 0; i < 4000000; i++) x = 3.6 * x * (1 - x);
    return x;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    tutti_tensor x = ZEROS(float, NUMEL);
    float *values = malloc(NUMEL * sizeof *values);
    if (!values) abort();

    double alone = 1e9, computing = 1e9, together = 1e9; /* best times of several rounds */
    volatile double result = 0;
    int right = 0;
    for (int round = 0; round < ROUNDS; round++) {
        tutti_work *work = NULL;
        for (int i = 0; i < NUMEL; i++) values[i] = (float)rank;

        tensor_set(x, values);
        TUTTI_CHECK(tutti_barrier(NULL));
        double start = seconds();
        TUTTI_CHECK(tutti_all_reduce(x, TUTTI_SUM, tutti_with(.async_op = &work)));
        TUTTI_CHECK(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT));
        alone = smaller(alone, seconds() - start);

        TUTTI_CHECK(tutti_barrier(NULL));
        start = seconds();
        result = compute();
        computing = smaller(computing, seconds() - start);

        tensor_set(x, values);
        TUTTI_CHECK(tutti_barrier(NULL));
        start = seconds();
        TUTTI_CHECK(tutti_all_reduce(x, TUTTI_SUM, tutti_with(.async_op = &work)));
        result = compute();
        TUTTI_CHECK(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT)); /* now x holds the sum */
        together = smaller(together, seconds() - start);

        tensor_get(values, x);
        right = 0;
        for (int i = 0; i < NUMEL; i++) right += values[i] == (float)(world * (world - 1) / 2);
    }
    (void)result;

    printf("Rank %d has [%g] in %s of %d elements\n", rank, (double)values[0], right == NUMEL ? "each" : "NOT ALL",
           NUMEL);
    double hidden = 100 * (alone + computing - together) / smaller(alone, computing);
    if (rank == 0)
        printf("all_reduce %.4f s, compute %.4f s, both %.4f s: overlap %.0f %%\n", alone, computing, together,
               hidden < 0 ? 0 : smaller(hidden, 100));

    free(values);
    tensor_free(x);
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return right == NUMEL ? 0 : 1;
}
