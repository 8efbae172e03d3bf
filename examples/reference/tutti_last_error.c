#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    float x = 0;
    int status = tutti_send(tutti_view(&x, 1), rank, NULL); /* to oneself */
    printf("%s\n", tutti_status_string(status));
    if (tutti_last_error()[0] == '\0') return 1; /* the message says what was wrong */
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     TUTTI_ERR_INVALID_ARGUMENT
 *     TUTTI_ERR_INVALID_ARGUMENT
 */
