#include <tutti/tutti.h>

int main(void)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int rank = tutti_get_rank(NULL);

    if (rank == 0) {
        float x[3] = {1, 2, 3};
        TUTTI_CHECK(tutti_send(tutti_view(x, 3), 1, tutti_with(.tag = 5)));
    } else {
        tutti_message message;
        TUTTI_CHECK(tutti_probe(TUTTI_ANY_SOURCE, tutti_with(.tag = TUTTI_ANY_TAG), &message));
        printf("%d bytes of tag %d from rank %d\n", (int)message.bytes, message.tag, message.source);
        float x[3];
        TUTTI_CHECK(tutti_recv(tutti_view(x, 3), message.source, tutti_with(.tag = message.tag)));
    }
    return tutti_destroy_process_group(NULL);
}

/* Prints:
 *
 *     12 bytes of tag 5 from rank 0
 */
