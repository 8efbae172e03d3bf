#include <tutti/tutti.h>

int main(void)
{
    tutti_store *store; /* of the launcher; its secret comes from the environment */
    TUTTI_CHECK(tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)atoi(getenv("MASTER_PORT")), NULL, &store));
    if (atoi(getenv("RANK")) == 0) TUTTI_CHECK(tutti_store_set(store, "greeting", "hello", 5));
    char text[16];
    size_t bytes;
    TUTTI_CHECK(tutti_store_get(store, "greeting", text, sizeof text, &bytes, 60000)); /* waits for the key */
    printf("%.*s\n", (int)bytes, text);
    tutti_store_free(store);
    return 0;
}

/* Prints:
 *
 *     hello
 *     hello
 */
