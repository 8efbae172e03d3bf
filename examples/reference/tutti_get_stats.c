#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    float x = 1;
    for (int i = 0; i < 3; i++) TUTTI_CHECK(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL));
    tutti_stats stats;
    TUTTI_CHECK(tutti_get_stats(NULL, &stats));
    printf("%d all_reduces, %d failures\n", (int)stats.operations[TUTTI_ALL_REDUCE], (int)stats.failed);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     3 all_reduces, 0 failures
 *     3 all_reduces, 0 failures
 */
