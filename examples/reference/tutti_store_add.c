#include <tutti/tutti.h>

int main(void)
{
    tutti_store *store;
    TUTTI_CHECK(tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)atoi(getenv("MASTER_PORT")), NULL, &store));
    int64_t ticket;
    TUTTI_CHECK(tutti_store_add(store, "tickets", 1, &ticket)); /* each rank gets another number */
    printf("ticket %d\n", (int)ticket);
    tutti_store_free(store);
    return 0;
}

/* Prints:
 *
 *     ticket 1
 *     ticket 2
 */
