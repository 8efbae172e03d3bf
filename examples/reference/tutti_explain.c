#include <tutti/tutti.h>

#include <string.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    char text[4096];
    TUTTI_CHECK(tutti_explain(TUTTI_ALL_REDUCE, 65536, NULL, text, sizeof text));
    printf("%.*s\n", (int)strcspn(text, "\n"), text); /* the first line; the next ones have the reason */
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     all_reduce of 65536 bytes in group world: 2 ranks on 1 host
 *     all_reduce of 65536 bytes in group world: 2 ranks on 1 host
 */
