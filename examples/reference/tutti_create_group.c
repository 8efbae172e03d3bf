#include <tutti/tutti.h>

int main(void)
{
    tutti_store *server, *store; /* of the launcher */
    TUTTI_CHECK(tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)atoi(getenv("MASTER_PORT")), NULL, &server));
    TUTTI_CHECK(tutti_store_prefix(server, "mine", &store));
    tutti_group *group;
    TUTTI_CHECK(tutti_create_group("tcp", store, atoi(getenv("RANK")), atoi(getenv("WORLD_SIZE")), NULL, &group));
    printf("rank %d, without a default group: %d\n", tutti_get_rank(group), tutti_is_initialized());
    TUTTI_CHECK(tutti_destroy_process_group(group));
    tutti_store_free(store);
    tutti_store_free(server);
    return 0;
}

/* Prints:
 *
 *     rank 0, without a default group: 0
 *     rank 1, without a default group: 0
 */
