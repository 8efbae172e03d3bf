/* train/checkpoint_format.c: manifests of checkpoints.  The checksum at the end is right, so that the rest is parsed.
 */
#include "checkpoint_format.h"
#include "fuzz.h"
#include "targets.h"

/* A manifest that is parsed and encoded again is the same. */
void fuzz_checkpoint(const uint8_t *in, size_t bytes)
{
    struct checkpoint_manifest manifest;
    size_t at, n;
    uint8_t *whole = malloc(bytes + CHECKPOINT_HASH), *again = NULL;
    FUZZ_CHECK(whole != NULL);
    memcpy(whole, in, bytes);
    checkpoint_hash(in, bytes, whole + bytes);
    const char *wrong = checkpoint_parse(whole, bytes + CHECKPOINT_HASH, &manifest, &at);
    FUZZ_CHECK(at <= bytes + CHECKPOINT_HASH);
    if (wrong == NULL) {
        for (int i = 0; i < manifest.n_shards; i++) {
            int64_t data = checkpoint_data_bytes(&manifest, i, manifest.n_entries);
            int64_t blocks = checkpoint_blocks(&manifest, i, manifest.n_entries);
            FUZZ_CHECK(data >= 0 && blocks >= data / CHECKPOINT_BLOCK);
        }
        FUZZ_CHECK(checkpoint_encode(&manifest, &again, &n));
        FUZZ_CHECK(n == bytes + CHECKPOINT_HASH && memcmp(whole, again, n) == 0);
        free(again);
    }
    checkpoint_manifest_free(&manifest);
    free(whole);
}
