#include <tutti/tutti.h>

int main(void)
{
    double sum[2] = {1, 2}, more[2] = {10, 20};
    TUTTI_CHECK(tutti_reduce_local(tutti_view(sum, 2), tutti_view(more, 2), TUTTI_SUM)); /* needs no group */
    printf("%g %g\n", sum[0], sum[1]);
    return 0;
}

/* Prints:
 *
 *     11 22
 *     11 22
 */
