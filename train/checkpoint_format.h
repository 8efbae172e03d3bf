/* The format of a checkpoint's files (docs/checkpoint.md).  Pure: from bytes to structs and back. */
#ifndef TRAIN_CHECKPOINT_FORMAT_H
#define TRAIN_CHECKPOINT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/types.h>

enum {
    CHECKPOINT_VERSION = 1,
    CHECKPOINT_HASH = 16, /* bytes of BLAKE2b */
    CHECKPOINT_ID = 16,
    CHECKPOINT_HEADER = 64,     /* bytes of a shard file before its data */
    CHECKPOINT_BLOCK = 1 << 20, /* bytes of data that have a checksum together */
    CHECKPOINT_NAME = 4096      /* a name is shorter */
};

struct checkpoint_parameter {
    char *name;
    int64_t numel;
    tutti_dtype dtype;
};

struct checkpoint_entry {
    char *name;
    tutti_dtype dtype;
    bool replicated;
    int64_t numel;       /* of all ranks */
    const uint8_t *data; /* if replicated: in the memory that was parsed, or the caller's */
};

/* Elements of the model, which are numbered in the order of its parameters. */
struct checkpoint_range {
    int64_t begin, numel;
};

/* The file of one rank: for each sharded entry, its elements of these ranges. */
struct checkpoint_shard {
    uint8_t hash[CHECKPOINT_HASH]; /* of the file's header and its table of checksums */
    int n_ranges;
    struct checkpoint_range *range;
    int64_t numel; /* the sum of the ranges */
};

struct checkpoint_manifest {
    uint8_t id[CHECKPOINT_ID]; /* random; the shard files have the same */
    int64_t number;
    int64_t numel; /* of the model */
    int n_parameters, n_entries, n_shards;
    struct checkpoint_parameter *parameter;
    struct checkpoint_entry *entry;
    struct checkpoint_shard *shard;
};

/* Computes a checksum. */
void checkpoint_hash(const void *data, size_t bytes, uint8_t *hash);

/* Encodes the manifest.  The caller frees *bytes.  Returns false without memory. */
bool checkpoint_encode(const struct checkpoint_manifest *manifest, uint8_t **bytes, size_t *n);

/* Parses a manifest and checks that its parts fit together.  Returns NULL, or says what is wrong; then *at is the
 * place. The caller frees the manifest in both cases.  The bytes must outlive it. */
const char *checkpoint_parse(const uint8_t *bytes, size_t n, struct checkpoint_manifest *manifest, size_t *at);

void checkpoint_manifest_free(struct checkpoint_manifest *manifest);

/* Return the bytes of data, and the number of checksums, of a shard file's first `entries` entries. */
int64_t checkpoint_data_bytes(const struct checkpoint_manifest *manifest, int shard, int entries);
int64_t checkpoint_blocks(const struct checkpoint_manifest *manifest, int shard, int entries);

/* Encodes a shard file's header. */
void checkpoint_header(const struct checkpoint_manifest *manifest, int shard, uint8_t header[CHECKPOINT_HEADER]);

#endif
