/* A reduction of the program's own: the smallest loss of all ranks, and the rank that has it.
 *
 *     tutti-run -n 4 build/examples/minloc [tcp|mpi]
 */
#include "example.h"

struct loss {
    double value;
    int64_t rank;
};

/* Keeps the smaller loss, and of equal ones that of the lower rank. */
static void keep_smaller(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    struct loss *mine = inout;
    const struct loss *lower = in;
    (void)dtype, (void)argument;
    for (int64_t i = 0; i < n; i++)
        if (lower[i].value < mine[i].value || (lower[i].value == mine[i].value && lower[i].rank < mine[i].rank))
            mine[i] = lower[i];
}

int main(int argc, char **argv)
{
    static const double losses[] = {0.5, 0.25, 0.75, 0.25};
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL);
    struct loss loss = {losses[rank % 4], rank};

    tutti_reduce_op minloc;
    tutti_op_opts opts = {.element_bytes = sizeof loss, .commutative = true};
    TUTTI_CHECK(tutti_op_create("minloc", keep_smaller, NULL, &opts, &minloc));
    TUTTI_CHECK(tutti_all_reduce(tutti_view((uint8_t *)&loss, sizeof loss), minloc, NULL));
    printf("Rank %d knows that rank %d has the smallest loss, %g\n", rank, (int)loss.rank, loss.value);

    TUTTI_CHECK(tutti_op_free(minloc));
    return tutti_destroy_process_group(NULL);
}
