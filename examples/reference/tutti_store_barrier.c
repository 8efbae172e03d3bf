#include <tutti/tutti.h>

int main(void)
{
    tutti_store *store;
    TUTTI_CHECK(tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)atoi(getenv("MASTER_PORT")), NULL, &store));

    TUTTI_CHECK(tutti_store_barrier(store, "ready", 2, 60000)); /* before any group is made */
    printf("all are here\n");
    tutti_store_free(store);
    return 0;
}

/* Prints:
 *
 *     all are here
 *     all are here
 */
