#include <tutti/tutti.h>

#include <string.h>

int main(void)
{
    tutti_store *store;
    TUTTI_CHECK(tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)atoi(getenv("MASTER_PORT")), NULL, &store));

    const char *mine = getenv("RANK");
    char leader[8] = "";
    size_t bytes; /* the first rank that comes sets the key; both read who it was */
    TUTTI_CHECK(
        tutti_store_compare_set(store, "leader", NULL, 0, mine, strlen(mine), leader, sizeof leader - 1, &bytes));
    printf("a leader is known: %s\n", leader[0] == '0' || leader[0] == '1' ? "yes" : "no");
    tutti_store_free(store);
    return 0;
}

/* Prints:
 *
 *     a leader is known: yes
 *     a leader is known: yes
 */
