#include "round.h"

#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

static int open_store(const char *addr, uint16_t port, tutti_store_opts *opts, int token_fd, tutti_store **store)
{
    uint8_t token[TUTTI_TOKEN_BYTES] = {0};
    if (pread(token_fd, token, sizeof token, 0) != (ssize_t)sizeof token) return TUTTI_ERR_SYSTEM;
    opts->token = token;
    int status = tutti_store_tcp(addr, port, opts, store);
    explicit_bzero(token, sizeof token);
    return status;
}

int round_host_store(const char *addr, uint16_t port, int world_size, int token_fd, tutti_store **store)
{
    tutti_store_opts opts = {.server = true, .world_size = world_size};
    return open_store(addr, port, &opts, token_fd, store);
}

int round_join_store(const char *addr, uint16_t port, int token_fd, int64_t timeout_ms, tutti_store **store)
{
    tutti_store_opts opts = {.timeout_ms = timeout_ms};
    return open_store(addr, port, &opts, token_fd, store);
}
