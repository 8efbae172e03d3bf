/* core/store/file.c: a log that another process left, with whole records and torn ones. */
#include <fcntl.h>
#include <tutti/store.h>
#include <unistd.h>

#include "base/token.h"
#include "fuzz.h"
#include "store/wire.h"
#include "targets.h"

/* Makes a record, with the right code if a bit says so.  A record with the right code is parsed and replayed. */
static size_t fuzz_record(struct fuzz_bytes *from, uint8_t *record)
{
    static const uint8_t no_key[TOKEN_BYTES];
    uint64_t shape = fuzz_take(from, 2);
    size_t bytes = shape >> 1 & 0x3ff;
    const uint8_t *body = fuzz_take_run(from, &bytes);
    wire_put_u32(record, (uint32_t)(bytes + (shape >> 14)));
    if (shape & 1)
        token_mac(record + 4, no_key, body, bytes);
    else
        memset(record + 4, 0x5a, TOKEN_MAC_BYTES);
    memcpy(record + 4 + TOKEN_MAC_BYTES, body, bytes);
    return 4 + TOKEN_MAC_BYTES + bytes;
}

static void fuzz_fill(int fd, const uint8_t *in, size_t bytes)
{
    static const char magic[] = "TUTTIFS1";
    uint8_t record[4 + TOKEN_MAC_BYTES + 0x3ff];
    struct fuzz_bytes from = {in, in + bytes};
    FUZZ_CHECK(write(fd, magic, 8) == 8);
    while (from.at < from.end) {
        size_t n = fuzz_record(&from, record);
        FUZZ_CHECK(write(fd, record, n) == (ssize_t)n);
    }
}

/* A store opened again on the same log has the same contents, and continues with it. */
void fuzz_store_file(const uint8_t *in, size_t bytes)
{
    char path[] = "/dev/shm/tutti-fuzz-XXXXXX", value[8];
    int64_t before = -1, after = -1;
    size_t n = 0;
    int fd = mkstemp(path);
    FUZZ_CHECK(fd >= 0 && token_init() == TUTTI_OK);
    fuzz_fill(fd, in, bytes);
    close(fd);
    for (int turn = 0; turn < 2; turn++) {
        tutti_store *store = NULL;
        FUZZ_CHECK(tutti_store_file(path, NULL, &store) == TUTTI_OK);
        FUZZ_CHECK(tutti_store_num_keys(store, turn == 0 ? &before : &after) == TUTTI_OK);
        if (turn == 1) {
            FUZZ_CHECK(before == after && before >= 0);
            FUZZ_CHECK(tutti_store_set(store, "fuzz", "right", 5) == TUTTI_OK);
            FUZZ_CHECK(tutti_store_get(store, "fuzz", value, sizeof value, &n, 0) == TUTTI_OK && n == 5);
            FUZZ_CHECK(memcmp(value, "right", 5) == 0);
        }
        tutti_store_free(store);
    }
    unlink(path);
}
