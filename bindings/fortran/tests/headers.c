/* Prints the constants and layouts of the C headers, for run.sh to compare with those of the module. */
#include <stddef.h>
#include <stdio.h>
#include <tutti/tutti.h>

#define VALUE(name) printf(#name " %lld\n", (long long)TUTTI_##name);
#define KIND(name, ...) printf(#name "_KIND %d\n", (int)TUTTI_##name);
#define ROW(name, ...) VALUE(name)
#define FIELD(type, field) printf(#type "%%" #field " %zu\n", offsetof(tutti_##type, field));
#define SIZE(type) printf(#type " %zu\n", sizeof(tutti_##type));

int main(void)
{
    /* clang-format off */
    TUTTI_DTYPES(ROW)
    TUTTI_REDUCE_OPS(ROW)
    TUTTI_KINDS(KIND)
    /* in the order of the header */
    VALUE(OK) VALUE(ERR_INVALID_ARGUMENT) VALUE(ERR_UNSUPPORTED) VALUE(ERR_TIMEOUT) VALUE(ERR_PEER_LOST)
    VALUE(ERR_MISMATCH) VALUE(ERR_ABORTED) VALUE(ERR_STORE) VALUE(ERR_AUTH) VALUE(ERR_NO_MEMORY) VALUE(ERR_SYSTEM)
    VALUE(ERR_BACKEND) VALUE(ERR_NOT_FOUND)
    VALUE(CPU) VALUE(CUDA) VALUE(ANY_SOURCE) VALUE(ANY_TAG) VALUE(RANK_ALIVE) VALUE(RANK_LEFT) VALUE(RANK_LOST)
    VALUE(LOG_ERROR) VALUE(LOG_WARN) VALUE(LOG_INFO) VALUE(LOG_DEBUG) VALUE(ABI_VERSION) VALUE(TOKEN_BYTES)
    VALUE(INFINITE) VALUE(NOW) VALUE(DEFAULT_TIMEOUT)
    SIZE(device) FIELD(device, type) FIELD(device, index)
    SIZE(tensor) FIELD(tensor, data) FIELD(tensor, numel) FIELD(tensor, dtype) FIELD(tensor, device)
    SIZE(bytes) FIELD(bytes, data) FIELD(bytes, bytes)
    SIZE(p2p_op) FIELD(p2p_op, kind) FIELD(p2p_op, tensor) FIELD(p2p_op, peer) FIELD(p2p_op, tag)
    FIELD(p2p_op, source)
    SIZE(message) FIELD(message, source) FIELD(message, tag) FIELD(message, bytes)
    SIZE(rank_health) FIELD(rank_health, state) FIELD(rank_health, silent_ms) FIELD(rank_health, why)
    SIZE(stats) FIELD(stats, operations) FIELD(stats, failed) FIELD(stats, waits) FIELD(stats, sleeps)
    FIELD(stats, transport)
    SIZE(counters) FIELD(counters, shared) FIELD(counters, wire) FIELD(counters, retries) FIELD(counters, memory)
    FIELD(counters, library);
    /* clang-format on */
    return 0;
}
