#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    if (rank == 0) TUTTI_CHECK(tutti_send_bytes("hello", 5, 1, NULL));
    tutti_bytes message = {NULL, 0};
    if (rank == 1) TUTTI_CHECK(tutti_recv_bytes(&message, TUTTI_ANY_SOURCE, NULL));
    if (rank == 1) printf("%.*s\n", (int)message.bytes, (char *)message.data);
    tutti_bytes_free(&message, 1);
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     hello
 */
