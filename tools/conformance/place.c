#include "conformance/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "conformance/rank.h"

/* Rank 0's description of the store that it serves, for the other ranks. */
struct served {
    char host[256], port[8], token[2 * TUTTI_TOKEN_BYTES + 1]; /* the token is empty if each rank has it already */
};

static bool has_token(void)
{
    return getenv("TUTTI_TOKEN_FD") != NULL || getenv("TUTTI_TOKEN_FILE") != NULL || getenv("TUTTI_TOKEN") != NULL;
}

static bool make_token(struct served *served)
{
    uint8_t bytes[TUTTI_TOKEN_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
    for (int i = 0; i < TUTTI_TOKEN_BYTES; i++) snprintf(served->token + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

static void publish(const struct served *served)
{
    setenv("MASTER_ADDR", served->host, 1);
    setenv("MASTER_PORT", served->port, 1);
    if (served->token[0] != '\0') setenv("TUTTI_TOKEN", served->token, 1);
}

/* Finds the address at which rank 0 serves the store: MASTER_ADDR, else loopback if all ranks are on one host, else its
 * host's address. */
static int find_host(const struct rendezvous_spec *place, char *host, size_t capacity)
{
    char name[65] = "";
    tutti_bytes names[RANKS_MAX];
    bool one = true;
    const char *given = getenv("MASTER_ADDR");
    gethostname(name, sizeof name - 1);
    int status = tutti_all_gather_bytes(names, place->size, name, strlen(name) + 1, NULL);
    if (status != TUTTI_OK) return status;
    for (int i = 1; i < place->size; i++)
        one &= names[i].bytes == names[0].bytes && memcmp(names[i].data, names[0].data, names[0].bytes) == 0;
    tutti_bytes_free(names, place->size);
    snprintf(host, capacity, "%s", given != NULL ? given : "127.0.0.1");
    return given == NULL && !one && place->rank == 0 ? tutti_store_own_address(host, capacity) : TUTTI_OK;
}

/* Serves the suite's own store on rank 0. */
static int serve(struct rendezvous_spec *place, struct served *served)
{
    if (!has_token() && !make_token(served)) return TUTTI_ERR_SYSTEM;
    publish(served);
    int status = tutti_store_tcp(served->host, 0, &(tutti_store_opts){.server = true}, &place->server);
    snprintf(served->port, sizeof served->port, "%d", status == TUTTI_OK ? tutti_store_port(place->server) : 0);
    return status;
}

static int share_store(struct rendezvous_spec *place)
{
    struct served served = {.port = "0"};
    int status = find_host(place, served.host, sizeof served.host);
    if (status == TUTTI_OK && place->rank == 0) status = serve(place, &served);
    int shared = tutti_broadcast(tutti_tensor_of(&served, sizeof served, TUTTI_INT8), 0, NULL);
    if (status == TUTTI_OK) status = shared;
    served.host[sizeof served.host - 1] = served.port[sizeof served.port - 1] = '\0';
    served.token[sizeof served.token - 1] = '\0';
    publish(&served);
    setenv("TUTTI_STORE_HOSTED", "1", 1);
    return status;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static int find(struct rendezvous_spec *place, const char *backend)
{
    const char *hosted = getenv("TUTTI_STORE_HOSTED");
    int status = tutti_init_process_group(backend, NULL);
    if (status != TUTTI_OK) return status;
    place->rank = tutti_get_rank(NULL);
    place->size = tutti_get_world_size(NULL);
    if (place->size > RANKS_MAX) {
        fprintf(stderr, "tutti-conformance: the job has %d ranks; start at most %d\n", place->size, RANKS_MAX);
        status = TUTTI_ERR_INVALID_ARGUMENT;
    }
    if (status == TUTTI_OK && (hosted == NULL || strcmp(hosted, "1") != 0)) status = share_store(place);
    tutti_destroy_process_group(NULL);
    set_number("RANK", place->rank);
    set_number("WORLD_SIZE", place->size);
    return status == TUTTI_OK ? rank_store(&place->store) : status;
}

bool rendezvous_spec_parse(struct rendezvous_spec *place, const char *backend)
{
    *place = (struct rendezvous_spec){0};
    int status = find(place, backend);
    if (status == TUTTI_OK) return true;
    fprintf(stderr, "tutti-conformance: cannot join the job: %s: %s\n", tutti_status_string(status),
            tutti_last_error());
    place_free(place);
    return false;
}

void place_free(struct rendezvous_spec *place)
{
    tutti_store_free(place->store);
    tutti_store_free(place->server);
    *place = (struct rendezvous_spec){0};
}
