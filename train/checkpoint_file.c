#include "checkpoint_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_path.h"

#define MANIFEST "manifest"

static int corrupted(const char *path, int64_t at, const char *what)
{
    return tutti_set_error(TUTTI_ERR_SYSTEM,
                           "checkpoint: %s is not usable at byte %" PRId64 ": %s; load an earlier one", path, at, what);
}

int checkpoint_bad_manifest(const struct checkpoint_place *place, size_t at, const char *what)
{
    char path[CHECKPOINT_PATH];
    int status = checkpoint_path(place, MANIFEST, path);
    return status == TUTTI_OK ? corrupted(path, (int64_t)at, what) : status;
}

/* ---- writing ----------------------------------------------------------------------------------------------- */

/* Writes all bytes.  A file beyond the process's limit is refused first, because the signal would end the process. */
static int write_all(int fd, const char *path, const void *data, size_t n)
{
    struct rlimit limit;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (at < 0 || (rlim_t)at + n > limit.rlim_cur)) {
        errno = EFBIG;
        return checkpoint_failed("write", path);
    }
    for (size_t done = 0; done < n;) {
        ssize_t written = write(fd, (const char *)data + done, n - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return checkpoint_failed("write", path);
        done += (size_t)written;
    }
    return TUTTI_OK;
}

static int create(const struct checkpoint_place *place, const char *name, char path[CHECKPOINT_PATH], int *fd)
{
    int status = checkpoint_path(place, name, path);
    if (status != TUTTI_OK) return status;
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd < 0 && errno == ENOENT)
        return tutti_set_error(TUTTI_ERR_SYSTEM,
                               "checkpoint: cannot make %s: its folder is not there; all hosts must share it", path);
    return *fd >= 0 ? TUTTI_OK : checkpoint_failed("make", path);
}

/* Waits until the file is on disk, and closes it. */
static int finish(int fd, const char *path, int status)
{
    if (status == TUTTI_OK && fsync(fd) != 0) status = checkpoint_failed("sync", path);
    if (close(fd) != 0 && status == TUTTI_OK) status = checkpoint_failed("close", path);
    return status;
}

int checkpoint_write_manifest(const struct checkpoint_place *place, const uint8_t *bytes, size_t n)
{
    char path[CHECKPOINT_PATH];
    int fd, status = create(place, MANIFEST, path, &fd);
    return status == TUTTI_OK ? finish(fd, path, write_all(fd, path, bytes, n)) : status;
}

static void shard_name(int shard, char name[32])
{
    snprintf(name, 32, "rank-%05d", shard);
}

/* Writes an entry's data in blocks, and appends their checksums. */
static int write_entry(int fd, const char *path, const uint8_t *data, int64_t bytes, uint8_t **checksum)
{
    int status = TUTTI_OK;
    for (int64_t at = 0; at < bytes && status == TUTTI_OK; at += CHECKPOINT_BLOCK) {
        size_t n = (size_t)(bytes - at < CHECKPOINT_BLOCK ? bytes - at : CHECKPOINT_BLOCK);
        checkpoint_hash(data + at, n, *checksum);
        *checksum += CHECKPOINT_HASH;
        status = write_all(fd, path, data + at, n);
    }
    return status;
}

static int write_shard(int fd, const char *path, const struct checkpoint_manifest *manifest, int shard,
                       const void *const *data, uint8_t *table)
{
    uint8_t *checksum = table + CHECKPOINT_HEADER;
    checkpoint_header(manifest, shard, table);
    int status = write_all(fd, path, table, CHECKPOINT_HEADER);
    for (int i = 0; i < manifest->n_entries && status == TUTTI_OK; i++) {
        const struct checkpoint_entry *entry = &manifest->entry[i];
        int64_t bytes = manifest->shard[shard].numel * tutti_dtype_bytes(entry->dtype);
        if (!entry->replicated) status = write_entry(fd, path, data[i], bytes, &checksum);
    }
    if (status != TUTTI_OK) return status;
    return write_all(fd, path, table + CHECKPOINT_HEADER, (size_t)(checksum - table - CHECKPOINT_HEADER));
}

/* Returns memory for a shard file's header and checksums, and stores its size. */
static uint8_t *alloc_table(const struct checkpoint_manifest *manifest, int shard, size_t *bytes)
{
    *bytes = CHECKPOINT_HEADER + (size_t)checkpoint_blocks(manifest, shard, manifest->n_entries) * CHECKPOINT_HASH;
    uint8_t *table = malloc(*bytes);
    if (table == NULL) tutti_set_error(TUTTI_ERR_NO_MEMORY, "checkpoint: no memory for %zu bytes of checksums", *bytes);
    return table;
}

int checkpoint_write_shard(const struct checkpoint_place *place, const struct checkpoint_manifest *manifest, int shard,
                           const void *const *data, uint8_t *hash)
{
    char path[CHECKPOINT_PATH], name[32];
    size_t bytes;
    int fd;
    shard_name(shard, name);
    uint8_t *table = alloc_table(manifest, shard, &bytes);
    if (table == NULL) return TUTTI_ERR_NO_MEMORY;
    int status = create(place, name, path, &fd);
    if (status == TUTTI_OK) status = finish(fd, path, write_shard(fd, path, manifest, shard, data, table));
    if (status == TUTTI_OK) checkpoint_hash(table, bytes, hash);
    free(table);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

/* Reads exactly n bytes at a place.  The file may have been cut short meanwhile. */
static int read_all(int fd, const char *path, int64_t at, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + (int64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return checkpoint_failed("read", path);
        if (got == 0) return corrupted(path, at + (int64_t)done, "the file ends here: it was cut short");
        done += (size_t)got;
    }
    return TUTTI_OK;
}

static int open_file(const struct checkpoint_place *place, const char *name, char path[CHECKPOINT_PATH], int *fd,
                     int64_t *bytes)
{
    struct stat info;
    *fd = -1;
    int status = checkpoint_path(place, name, path);
    if (status != TUTTI_OK) return status;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for its writer */
    if (*fd < 0) return checkpoint_failed("open", path);
    if (fstat(*fd, &info) != 0) return checkpoint_failed("read", path);
    if (!S_ISREG(info.st_mode)) return corrupted(path, 0, "it is not a regular file");
    *bytes = info.st_size;
    return TUTTI_OK;
}

int checkpoint_read_manifest(const struct checkpoint_place *place, uint8_t **bytes, size_t *n)
{
    char path[CHECKPOINT_PATH];
    int64_t size = 0;
    int fd, status = open_file(place, MANIFEST, path, &fd, &size);
    *bytes = status == TUTTI_OK ? malloc((size_t)size + 1) : NULL;
    if (status == TUTTI_OK && *bytes == NULL)
        status =
            tutti_set_error(TUTTI_ERR_NO_MEMORY, "checkpoint: no memory for %s with %" PRId64 " bytes", path, size);
    if (status == TUTTI_OK) status = read_all(fd, path, 0, *bytes, (size_t)size);
    if (fd >= 0) close(fd);
    *n = (size_t)size;
    if (status == TUTTI_OK) return TUTTI_OK;
    free(*bytes);
    *bytes = NULL;
    return status;
}

/* Reads and checks the header and the checksums. */
static int read_table(struct checkpoint_file *file, int64_t file_bytes)
{
    size_t bytes;
    uint8_t header[CHECKPOINT_HEADER], hash[CHECKPOINT_HASH];
    int64_t data = checkpoint_data_bytes(file->manifest, file->shard, file->manifest->n_entries);
    int64_t blocks = checkpoint_blocks(file->manifest, file->shard, file->manifest->n_entries);
    int64_t wanted = CHECKPOINT_HEADER + data + blocks * CHECKPOINT_HASH;
    if (file_bytes != wanted)
        return corrupted(file->path, file_bytes < wanted ? file_bytes : wanted,
                         file_bytes < wanted ? "the file ends here: it was cut short" : "bytes follow its end");
    uint8_t *table = alloc_table(file->manifest, file->shard, &bytes);
    if (table == NULL) return TUTTI_ERR_NO_MEMORY;
    file->checksum = table;
    int status = read_all(file->fd, file->path, 0, table, CHECKPOINT_HEADER);
    if (status != TUTTI_OK) return status;
    checkpoint_header(file->manifest, file->shard, header);
    if (memcmp(header, table, sizeof header) != 0)
        return corrupted(file->path, 0, "its header is not that of this checkpoint's rank");
    status =
        read_all(file->fd, file->path, CHECKPOINT_HEADER + data, table + CHECKPOINT_HEADER, bytes - CHECKPOINT_HEADER);
    if (status != TUTTI_OK) return status;
    checkpoint_hash(table, bytes, hash);
    if (memcmp(hash, file->manifest->shard[file->shard].hash, sizeof hash) == 0) return TUTTI_OK;
    return corrupted(file->path, CHECKPOINT_HEADER + data, "the checksum of its checksums is wrong: it is corrupted");
}

int checkpoint_open_shard(const struct checkpoint_place *place, const struct checkpoint_manifest *manifest, int shard,
                          struct checkpoint_file *file)
{
    char name[32];
    int64_t bytes = 0;
    shard_name(shard, name);
    *file = (struct checkpoint_file){.fd = -1, .shard = shard, .manifest = manifest};
    int status = open_file(place, name, file->path, &file->fd, &bytes);
    if (status == TUTTI_OK) status = read_table(file, bytes);
    if (status == TUTTI_OK && (file->block = malloc(CHECKPOINT_BLOCK)) == NULL)
        status =
            tutti_set_error(TUTTI_ERR_NO_MEMORY, "checkpoint: no memory for a block of %d bytes", CHECKPOINT_BLOCK);
    if (status != TUTTI_OK) checkpoint_close_shard(file);
    return status;
}

void checkpoint_close_shard(struct checkpoint_file *file)
{
    if (file->fd >= 0) close(file->fd);
    free(file->checksum);
    free(file->block);
    *file = (struct checkpoint_file){.fd = -1};
}

/* Reads a block of an entry and checks it. */
static int read_block(struct checkpoint_file *file, int entry, int64_t block, void *to, size_t n)
{
    uint8_t hash[CHECKPOINT_HASH];
    int64_t base = CHECKPOINT_HEADER + checkpoint_data_bytes(file->manifest, file->shard, entry);
    int64_t first = checkpoint_blocks(file->manifest, file->shard, entry), at = base + block * CHECKPOINT_BLOCK;
    int status = read_all(file->fd, file->path, at, to, n);
    if (status != TUTTI_OK) return status;
    checkpoint_hash(to, n, hash);
    const uint8_t *wanted = file->checksum + CHECKPOINT_HEADER + (first + block) * CHECKPOINT_HASH;
    if (memcmp(hash, wanted, sizeof hash) == 0) return TUTTI_OK;
    return corrupted(file->path, at, "the checksum of the block that begins here is wrong: it is corrupted");
}

int checkpoint_read_elements(struct checkpoint_file *file, int entry, int64_t begin, int64_t numel, void *to)
{
    int64_t element = tutti_dtype_bytes(file->manifest->entry[entry].dtype);
    int64_t all = file->manifest->shard[file->shard].numel * element;
    int64_t from = begin * element, end = from + numel * element;
    for (int64_t block = from / CHECKPOINT_BLOCK; from < end; block++) {
        int64_t start = block * CHECKPOINT_BLOCK;
        int64_t n = all - start < CHECKPOINT_BLOCK ? all - start : CHECKPOINT_BLOCK;
        int64_t wanted = (end < start + n ? end : start + n) - from;
        uint8_t *into = wanted == n ? to : file->block; /* a whole block goes where it belongs */
        int status = read_block(file, entry, block, into, (size_t)n);
        if (status != TUTTI_OK) return status;
        if (into != to) memcpy(to, file->block + (from - start), (size_t)wanted);
        to = (char *)to + wanted;
        from += wanted;
    }
    return TUTTI_OK;
}
