#include <tutti/tutti.h>

struct minloc {
    double loss;
    int64_t rank;
};

static void smaller(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    struct minloc *a = inout;
    const struct minloc *b = in;
    (void)dtype, (void)argument;
    for (int64_t i = 0; i < n; i++)
        if (b[i].loss < a[i].loss) a[i] = b[i];
}

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    tutti_reduce_op op;
    tutti_op_opts opts = {.element_bytes = sizeof(struct minloc), .commutative = true};
    TUTTI_CHECK(tutti_op_create("minloc", smaller, NULL, &opts, &op));
    struct minloc best = {rank == 0 ? 0.5 : 0.25, rank};
    tutti_tensor x = tutti_view((uint8_t *)&best, sizeof best);
    TUTTI_CHECK(tutti_all_reduce(x, op, NULL));
    printf("rank %d knows that rank %d has the smallest loss, %g\n", rank, (int)best.rank, best.loss);
    TUTTI_CHECK(tutti_op_free(op));
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     rank 0 knows that rank 1 has the smallest loss, 0.25
 *     rank 1 knows that rank 1 has the smallest loss, 0.25
 */
