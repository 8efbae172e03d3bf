#include "checkpoint_format.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_BYTES = 8 };
static const char manifest_magic[] = "TUTTICKP", shard_magic[] = "TUTTISHD";

enum { LITTLE = 1, BIG = 2 };
#define ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? LITTLE : BIG) /* of the data; fields are little-endian */

void checkpoint_hash(const void *data, size_t bytes, uint8_t *hash)
{
    crypto_generichash(hash, CHECKPOINT_HASH, data, bytes, NULL, 0);
}

int64_t checkpoint_data_bytes(const struct checkpoint_manifest *manifest, int shard, int entries)
{
    int64_t bytes = 0;
    for (int i = 0; i < entries; i++)
        if (!manifest->entry[i].replicated)
            bytes += manifest->shard[shard].numel * tutti_dtype_bytes(manifest->entry[i].dtype);
    return bytes;
}

int64_t checkpoint_blocks(const struct checkpoint_manifest *manifest, int shard, int entries)
{
    int64_t blocks = 0;
    for (int i = 0; i < entries; i++)
        if (!manifest->entry[i].replicated)
            blocks +=
                (manifest->shard[shard].numel * tutti_dtype_bytes(manifest->entry[i].dtype) + CHECKPOINT_BLOCK - 1) /
                CHECKPOINT_BLOCK;
    return blocks;
}

/* ---- encoding ---------------------------------------------------------------------------------------------- */

static void store(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * i);
}

static void put(FILE *file, uint64_t value, int bytes)
{
    uint8_t field[8];
    store(field, value, bytes);
    fwrite(field, 1, (size_t)bytes, file);
}

static void put_name(FILE *file, const char *name)
{
    put(file, strlen(name), 4);
    fputs(name, file);
}

static void put_entry(FILE *file, const struct checkpoint_entry *entry)
{
    put_name(file, entry->name);
    put(file, (uint64_t)entry->dtype, 4);
    put(file, entry->replicated, 4);
    put(file, (uint64_t)entry->numel, 8);
    if (entry->replicated) fwrite(entry->data, 1, (size_t)(entry->numel * tutti_dtype_bytes(entry->dtype)), file);
}

static void put_shard(FILE *file, const struct checkpoint_shard *shard)
{
    fwrite(shard->hash, 1, CHECKPOINT_HASH, file);
    put(file, (uint64_t)shard->n_ranges, 4);
    for (int i = 0; i < shard->n_ranges; i++) {
        put(file, (uint64_t)shard->range[i].begin, 8);
        put(file, (uint64_t)shard->range[i].numel, 8);
    }
}

bool checkpoint_encode(const struct checkpoint_manifest *manifest, uint8_t **bytes, size_t *n)
{
    uint8_t hash[CHECKPOINT_HASH];
    char *text = NULL;
    FILE *file = open_memstream(&text, n);
    if (file == NULL) return false;
    fwrite(manifest_magic, 1, MAGIC_BYTES, file);
    put(file, CHECKPOINT_VERSION, 4);
    put(file, ORDER, 4);
    fwrite(manifest->id, 1, CHECKPOINT_ID, file);
    put(file, (uint64_t)manifest->number, 8);
    put(file, (uint64_t)manifest->numel, 8);
    put(file, (uint64_t)manifest->n_parameters, 4);
    put(file, (uint64_t)manifest->n_entries, 4);
    put(file, (uint64_t)manifest->n_shards, 4);
    for (int i = 0; i < manifest->n_parameters; i++) {
        put_name(file, manifest->parameter[i].name);
        put(file, (uint64_t)manifest->parameter[i].dtype, 4);
        put(file, (uint64_t)manifest->parameter[i].numel, 8);
    }
    for (int i = 0; i < manifest->n_entries; i++) put_entry(file, &manifest->entry[i]);
    for (int i = 0; i < manifest->n_shards; i++) put_shard(file, &manifest->shard[i]);
    bool written = fflush(file) == 0;
    if (written) checkpoint_hash(text, *n, hash);
    if (written) fwrite(hash, 1, sizeof hash, file);
    written = fclose(file) == 0 && written;
    *bytes = (uint8_t *)text;
    if (!written) free(text);
    return written;
}

void checkpoint_header(const struct checkpoint_manifest *manifest, int shard, uint8_t header[CHECKPOINT_HEADER])
{
    memset(header, 0, CHECKPOINT_HEADER);
    memcpy(header, shard_magic, MAGIC_BYTES);
    store(header + 8, CHECKPOINT_VERSION, 4);
    store(header + 12, ORDER, 4);
    memcpy(header + 16, manifest->id, CHECKPOINT_ID);
    store(header + 32, (uint64_t)shard, 4);
    store(header + 36, (uint64_t)manifest->n_shards, 4);
    store(header + 40, (uint64_t)checkpoint_data_bytes(manifest, shard, manifest->n_entries), 8);
    store(header + 48, CHECKPOINT_BLOCK, 4);
}

/* ---- parsing ----------------------------------------------------------------------------------------------- */

/* The place up to which the bytes were read, and the first thing found wrong. */
struct reader {
    const uint8_t *bytes;
    size_t n, at;
    const char *wrong;
};

static const uint8_t *take(struct reader *reader, size_t n)
{
    if (reader->wrong == NULL && n > reader->n - reader->at) reader->wrong = "it is cut short";
    if (reader->wrong != NULL) return NULL;
    reader->at += n;
    return reader->bytes + reader->at - n;
}

static uint64_t get(struct reader *reader, int bytes)
{
    const uint8_t *field = take(reader, (size_t)bytes);
    uint64_t value = 0;
    for (int i = 0; i < bytes && field != NULL; i++) value |= (uint64_t)field[i] << 8 * i;
    return value;
}

static void require(struct reader *reader, bool condition, const char *wrong)
{
    if (!condition && reader->wrong == NULL) reader->wrong = wrong;
}

/* Reads the number of items that follow, of at least `least` bytes each. */
static int get_count(struct reader *reader, size_t least)
{
    uint64_t count = get(reader, 4);
    require(reader, count <= (reader->n - reader->at) / least && count <= INT32_MAX, "a count exceeds the file");
    return reader->wrong == NULL ? (int)count : 0;
}

static int64_t get_number(struct reader *reader)
{
    uint64_t number = get(reader, 8);
    require(reader, number <= INT64_MAX, "its number is out of range");
    return reader->wrong == NULL ? (int64_t)number : 0;
}

static int64_t get_numel(struct reader *reader)
{
    uint64_t numel = get(reader, 8);
    require(reader, numel <= INT64_MAX / 64, "a number of elements is out of range");
    return reader->wrong == NULL ? (int64_t)numel : 0;
}

static tutti_dtype get_dtype(struct reader *reader)
{
    uint64_t dtype = get(reader, 4);
    bool known = false;
#define COMPARE(name, ...) known = known || dtype == TUTTI_##name;
    TUTTI_DTYPES(COMPARE)
#undef COMPARE
    require(reader, known, "a dtype is unknown");
    return reader->wrong == NULL ? (tutti_dtype)dtype : TUTTI_UINT8;
}

static char *get_name(struct reader *reader)
{
    size_t length = (size_t)get(reader, 4);
    require(reader, length < CHECKPOINT_NAME, "a name is too long");
    const uint8_t *text = take(reader, length);
    if (text == NULL) return NULL;
    require(reader, memchr(text, '\0', length) == NULL, "a name contains a zero byte");
    char *name = strndup((const char *)text, length);
    require(reader, name != NULL, "there is no memory for it");
    return name;
}

static void *allocate(struct reader *reader, int n, size_t bytes)
{
    void *memory = calloc((size_t)n + 1, bytes);
    require(reader, memory != NULL, "there is no memory for it");
    return memory;
}

static void get_parameters(struct reader *reader, struct checkpoint_manifest *manifest, int n)
{
    int64_t numel = 0;
    manifest->parameter = allocate(reader, n, sizeof *manifest->parameter);
    for (int i = 0; i < n && reader->wrong == NULL; i++) {
        struct checkpoint_parameter *parameter = &manifest->parameter[i];
        manifest->n_parameters = i + 1;
        parameter->name = get_name(reader);
        parameter->dtype = get_dtype(reader);
        parameter->numel = get_numel(reader);
        numel += parameter->numel;
        require(reader, numel <= manifest->numel, "the parameters have more elements than the model");
    }
    require(reader, numel == manifest->numel, "the parameters have fewer elements than the model");
}

static void get_entries(struct reader *reader, struct checkpoint_manifest *manifest, int n)
{
    manifest->entry = allocate(reader, n, sizeof *manifest->entry);
    for (int i = 0; i < n && reader->wrong == NULL; i++) {
        struct checkpoint_entry *entry = &manifest->entry[i];
        manifest->n_entries = i + 1;
        entry->name = get_name(reader);
        entry->dtype = get_dtype(reader);
        uint64_t replicated = get(reader, 4);
        require(reader, replicated <= 1, "a flag is neither 0 nor 1");
        entry->replicated = replicated == 1;
        entry->numel = get_numel(reader);
        if (entry->replicated)
            entry->data = take(reader, (size_t)(entry->numel * tutti_dtype_bytes(entry->dtype)));
        else
            require(reader, entry->numel == manifest->numel, "a state has another size than the model");
    }
}

static void get_shards(struct reader *reader, struct checkpoint_manifest *manifest, int n)
{
    manifest->shard = allocate(reader, n, sizeof *manifest->shard);
    for (int i = 0; i < n && reader->wrong == NULL; i++) {
        struct checkpoint_shard *shard = &manifest->shard[i];
        manifest->n_shards = i + 1;
        const uint8_t *hash = take(reader, CHECKPOINT_HASH);
        if (hash != NULL) memcpy(shard->hash, hash, CHECKPOINT_HASH);
        shard->n_ranges = get_count(reader, 16);
        shard->range = allocate(reader, shard->n_ranges, sizeof *shard->range);
        for (int k = 0; k < shard->n_ranges && reader->wrong == NULL; k++) {
            shard->range[k].begin = get_numel(reader);
            shard->range[k].numel = get_numel(reader);
            int64_t end = shard->range[k].begin + shard->range[k].numel;
            require(reader, end <= manifest->numel, "a range exceeds the model");
            shard->numel += reader->wrong == NULL ? shard->range[k].numel : 0;
            require(reader, shard->numel <= manifest->numel, "a rank has more elements than the model");
        }
    }
}

static int by_begin(const void *a, const void *b)
{
    const struct checkpoint_range *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->numel > y->numel) - (x->numel < y->numel);
}

/* Checks that the ranges of all ranks together are the model, each element once. */
static void check_cover(struct reader *reader, const struct checkpoint_manifest *manifest)
{
    size_t n = 0, at = 0;
    int64_t end = 0;
    for (int i = 0; i < manifest->n_shards; i++) n += (size_t)manifest->shard[i].n_ranges;
    struct checkpoint_range *all = calloc(n + 1, sizeof *all);
    require(reader, all != NULL, "there is no memory for it");
    require(reader, manifest->numel <= INT64_MAX / 64 / (manifest->n_entries + 1), "the data exceed 2^63 bytes");
    if (all == NULL) return;
    for (int i = 0; i < manifest->n_shards; i++)
        for (int k = 0; k < manifest->shard[i].n_ranges; k++) all[at++] = manifest->shard[i].range[k];
    qsort(all, n, sizeof *all, by_begin);
    for (size_t i = 0; i < n; i++) {
        require(reader, all[i].begin == end, "the ranks' ranges overlap or leave gaps");
        end = all[i].begin + all[i].numel;
    }
    require(reader, end == manifest->numel, "the ranks' ranges leave gaps");
    free(all);
}

static void get_start(struct reader *reader)
{
    const uint8_t *magic = take(reader, MAGIC_BYTES);
    require(reader, magic != NULL && memcmp(magic, manifest_magic, MAGIC_BYTES) == 0,
            "it is not the manifest of a checkpoint");
    require(reader, get(reader, 4) == CHECKPOINT_VERSION, "another version of Tutti wrote it");
    require(reader, get(reader, 4) == ORDER, "a machine of another byte order wrote it");
}

/* Checks and removes the checksum at the end. */
static void check_hash(struct reader *reader)
{
    uint8_t hash[CHECKPOINT_HASH];
    require(reader, reader->n - reader->at > CHECKPOINT_HASH, "it is cut short");
    if (reader->wrong != NULL) return;
    reader->n -= CHECKPOINT_HASH;
    checkpoint_hash(reader->bytes, reader->n, hash);
    require(reader, memcmp(hash, reader->bytes + reader->n, CHECKPOINT_HASH) == 0,
            "its checksum is wrong: it is corrupted or cut short");
}

const char *checkpoint_parse(const uint8_t *bytes, size_t n, struct checkpoint_manifest *manifest, size_t *at)
{
    struct reader reader = {.bytes = bytes, .n = n};
    *manifest = (struct checkpoint_manifest){0};
    get_start(&reader);
    check_hash(&reader);
    const uint8_t *id = take(&reader, CHECKPOINT_ID);
    if (id != NULL) memcpy(manifest->id, id, CHECKPOINT_ID);
    manifest->number = get_number(&reader);
    manifest->numel = get_numel(&reader);
    int n_parameters = get_count(&reader, 16), n_entries = get_count(&reader, 20);
    int n_shards = get_count(&reader, CHECKPOINT_HASH + 4);
    if (reader.wrong == NULL) get_parameters(&reader, manifest, n_parameters);
    if (reader.wrong == NULL) get_entries(&reader, manifest, n_entries);
    if (reader.wrong == NULL) get_shards(&reader, manifest, n_shards);
    require(&reader, reader.at == reader.n, "bytes follow its end");
    if (reader.wrong == NULL) check_cover(&reader, manifest);
    *at = reader.at;
    return reader.wrong;
}

void checkpoint_manifest_free(struct checkpoint_manifest *manifest)
{
    for (int i = 0; i < manifest->n_parameters; i++) free(manifest->parameter[i].name);
    for (int i = 0; i < manifest->n_entries; i++) free(manifest->entry[i].name);
    for (int i = 0; i < manifest->n_shards; i++) free(manifest->shard[i].range);
    free(manifest->parameter);
    free(manifest->entry);
    free(manifest->shard);
    *manifest = (struct checkpoint_manifest){0};
}
