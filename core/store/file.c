/* File store: a log of the requests that changed the store, in the wire format.  Every process replays the log into a
 * table of its own.
 *
 * All accesses hold a lock on the open file description (F_OFD_SETLK), which the kernel releases when the owner dies.
 * The next process recognizes an incomplete record by its size or checksum and truncates it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_limit.h"
#include "base/sized.h"
#include "base/token.h"
#include "store/table.h"
#include "store/wire.h"

enum {
    FILE_HEADER = 8,
    FILE_RECORD_HEADER = 4 + TOKEN_MAC_BYTES, /* size and checksum of the body */
    FILE_POLL_US = 500,                       /* doubles up to FILE_POLL_MAX_US; each poll costs one fstat */
    FILE_POLL_MAX_US = 20000
};
static const char file_magic[FILE_HEADER] = {'T', 'U', 'T', 'T', 'I', 'F', 'S', '1'};

struct file {
    tutti_store base;
    pthread_mutex_t mutex; /* the file lock belongs to the descriptor, so it does not exclude threads of this process */
    int fd;
    off_t end; /* end of the log that the table reflects */
    struct table table;
    char path[];
};

static int fail_errno(const struct file *file, const char *what)
{
    return error_errno(TUTTI_ERR_SYSTEM, "file store %.200s: %s", file->path, what);
}

static int fail_no_memory(const struct file *file)
{
    return error_set(TUTTI_ERR_NO_MEMORY, "file store %.200s: out of memory", file->path);
}

static void back_off(int *pause_us)
{
    nanosleep(&(struct timespec){.tv_nsec = *pause_us * 1000L}, NULL);
    *pause_us = 2 * *pause_us > FILE_POLL_MAX_US ? FILE_POLL_MAX_US : 2 * *pause_us;
}

/* ---- the lock ----------------------------------------------------------------------------------------------- */

static int lock_file(struct file *file, int64_t deadline_ns)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int pause_us = 50;
    while (fcntl(file->fd, F_OFD_SETLK, &whole) != 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) return fail_errno(file, "cannot be locked");
        if (clock_now_ns() > deadline_ns)
            return error_set(TUTTI_ERR_TIMEOUT,
                             "file store %.200s: timed out waiting for the file lock, which another process holds",
                             file->path);
        back_off(&pause_us);
    }
    return TUTTI_OK;
}

static void unlock_file(struct file *file)
{
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(file->fd, F_OFD_SETLK, &whole);
}

/* ---- bytes -------------------------------------------------------------------------------------------------- */

/* Returns 1 if all bytes were read, 0 if the file ends before, -1 with errno on failure. */
static int read_at(const struct file *file, void *data, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file->fd, (char *)data + done, bytes - done, at + (off_t)done);
        if (got == 0) return 0;
        if (got < 0 && errno != EINTR) return -1;
        if (got > 0) done += (size_t)got;
    }
    return 1;
}

static int write_at(const struct file *file, const void *data, size_t bytes, off_t at)
{
    if (!file_limit_allows((size_t)at + bytes)) return -1;
    for (size_t done = 0; done < bytes;) {
        ssize_t put = pwrite(file->fd, (const char *)data + done, bytes - done, at + (off_t)done);
        if (put < 0 && errno != EINTR) return -1;
        if (put > 0) done += (size_t)put;
    }
    return 0;
}

/* Computes a record's checksum.  It detects torn records; it does not authenticate the writer. */
static void checksum_record(uint8_t code[TOKEN_MAC_BYTES], const uint8_t *body, size_t bytes)
{
    static const uint8_t no_key[TOKEN_BYTES];
    token_mac(code, no_key, body, bytes);
}

/* ---- replaying ---------------------------------------------------------------------------------------------- */

/* Applies one record's body.  Returns 1 if applied, 0 if the body is invalid, else an error (the record stays in the
 * log and is not yet applied). */
static int replay_body(struct file *file, const uint8_t *body, size_t bytes)
{
    struct store_request request;
    struct store_slice *slices;
    struct store_reply reply;
    int64_t timeout_ms;
    int missing, status = wire_parse_request(body, bytes, &request, &slices, &timeout_ms);
    if (status != TUTTI_OK) return status == TUTTI_ERR_NO_MEMORY ? fail_no_memory(file) : 0;
    table_apply(&file->table, &request, &reply, &missing);
    status = reply.status;
    store_reply_free(&reply);
    free(slices);
    return status == TUTTI_ERR_NO_MEMORY ? fail_no_memory(file) : 1; /* other errors are the same in every process */
}

/* Replays the record at file->end and advances.  Returns 1 if done, 0 if there is no complete record, else an error. */
static int replay_record(struct file *file)
{
    uint8_t header[FILE_RECORD_HEADER], code[TOKEN_MAC_BYTES];
    int got = read_at(file, header, sizeof header, file->end);
    if (got <= 0) return got == 0 ? 0 : fail_errno(file, "cannot be read");
    size_t bytes = wire_get_u32(header);
    if (bytes > WIRE_PAYLOAD_MAX) return 0;
    uint8_t *body = malloc(bytes + 1);
    if (body == NULL) return fail_no_memory(file);
    got = read_at(file, body, bytes, file->end + FILE_RECORD_HEADER);
    int one = got < 0 ? fail_errno(file, "cannot be read") : 0;
    if (got == 1) checksum_record(code, body, bytes);
    if (got == 1 && token_equal(code, header + 4)) one = replay_body(file, body, bytes);
    free(body);
    if (one == 1) file->end += (off_t)(FILE_RECORD_HEADER + bytes);
    return one;
}

/* Brings the table up to date.  The file lock is held, so an incomplete record was left by a process that died. */
static int replay_log(struct file *file)
{
    struct stat stat;
    int one = 1;
    if (fstat(file->fd, &stat) != 0) return fail_errno(file, "cannot be read");
    if (stat.st_size < file->end)
        return error_set(
            TUTTI_ERR_STORE,
            "file store %.200s: the file shrank because another program truncated it; start again with a new file",
            file->path);
    while (one == 1 && file->end < stat.st_size) one = replay_record(file);
    if (one == 0 && ftruncate(file->fd, file->end) != 0) return fail_errno(file, "cannot be truncated");
    return one < 0 ? one : TUTTI_OK;
}

/* ---- changing ----------------------------------------------------------------------------------------------- */

/* Appends the request to the log.  If the disk is full, truncates the partial record. */
static int append_request(struct file *file, const struct store_request *request)
{
    size_t bytes = wire_request_bytes(request), total = FILE_RECORD_HEADER + bytes;
    if (bytes > WIRE_PAYLOAD_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "file store %.200s: a request of %zu bytes is over the limit of %d; use smaller values",
                         file->path, bytes, WIRE_PAYLOAD_MAX);
    if ((size_t)file->end + total > 4 * file->table.max_bytes)
        return error_set(TUTTI_ERR_STORE,
                         "file store %.200s is full: its log has %lld bytes and the limit is %zu, four times "
                         "TUTTI_STORE_MAX_BYTES; raise it",
                         file->path, (long long)file->end, 4 * file->table.max_bytes);
    uint8_t *record = malloc(total);
    if (record == NULL) return fail_no_memory(file);
    wire_put_u32(record, (uint32_t)bytes);
    wire_put_request(record + FILE_RECORD_HEADER, request, 0);
    checksum_record(record + 4, record + FILE_RECORD_HEADER, bytes);
    int status = TUTTI_OK;
    if (write_at(file, record, total, file->end) != 0) {
        status = fail_errno(file, "cannot be written");
        if (ftruncate(file->fd, file->end) != 0) status = fail_errno(file, "cannot be truncated");
    } else {
        file->end += (off_t)total;
    }
    free(record);
    return status;
}

/* Truncates the request just appended, after the table ran out of memory for it; no other process has seen it.  The
 * table may hold a part of it, so the next call rebuilds the table from the log. */
static int undo_append(struct file *file, off_t before)
{
    table_free(&file->table);
    file->end = FILE_HEADER;
    return ftruncate(file->fd, before) == 0 ? TUTTI_OK : fail_errno(file, "cannot be truncated");
}

/* Tries the request once, with both locks held.  Appends to the log first: the table must not hold more than the
 * file. */
static int try_request(struct file *file, const struct store_request *request, struct store_reply *reply, bool *done)
{
    bool writes = store_op_writes(request->op);
    int missing, status = replay_log(file);
    off_t before = file->end;
    if (status == TUTTI_OK && writes) status = append_request(file, request);
    if (status != TUTTI_OK) return status;
    *done = table_apply(&file->table, request, reply, &missing);
    return writes && reply->status == TUTTI_ERR_NO_MEMORY ? undo_append(file, before) : TUTTI_OK;
}

static int attempt_call(struct file *file, const struct store_request *request, struct store_reply *reply, bool last,
                        bool *done, off_t *seen)
{
    int64_t deadline_ns = request->deadline_ns;
    if (last && deadline_ns != CLOCK_NEVER) deadline_ns += 1000000000; /* the last attempt must get the lock */
    pthread_mutex_lock(&file->mutex);
    int status = lock_file(file, deadline_ns);
    if (status == TUTTI_OK) {
        status = try_request(file, request, reply, done);
        if (status == TUTTI_OK && !*done && last) table_timeout(&file->table, request, reply);
        unlock_file(file);
    }
    *seen = file->end;
    pthread_mutex_unlock(&file->mutex);
    return status;
}

/* True if the log has grown since offset `seen`.  Not file->end: another thread may have replayed the growth
 * already. */
static bool log_has_grown(const struct file *file, off_t seen)
{
    struct stat stat;
    return fstat(file->fd, &stat) != 0 || stat.st_size != seen;
}

static int call_file(tutti_store *store, const struct store_request *request, struct store_reply *reply)
{
    struct file *file = (struct file *)store;
    bool done = false, last = false;
    int pause_us = FILE_POLL_US;
    off_t seen = 0;
    pthread_mutex_lock(&file->mutex);
    file->table.n_requests++;
    pthread_mutex_unlock(&file->mutex);
    for (;;) {
        last = clock_now_ns() >= request->deadline_ns;
        int status = attempt_call(file, request, reply, last, &done, &seen);
        if (status != TUTTI_OK || done || last) return status;
        while (!log_has_grown(file, seen) && clock_now_ns() < request->deadline_ns) back_off(&pause_us);
        pause_us = FILE_POLL_US;
    }
}

/* ---- opening and closing ------------------------------------------------------------------------------------ */

static int check_file(const struct file *file)
{
    struct stat stat;
    if (fstat(file->fd, &stat) != 0) return fail_errno(file, "cannot be examined");
    if (!S_ISREG(stat.st_mode))
        return error_set(TUTTI_ERR_STORE, "file store %.200s is not a regular file; give the path of one", file->path);
    if (stat.st_uid != geteuid())
        return error_set(
            TUTTI_ERR_STORE,
            "file store %.200s is owned by user %u and this process runs as user %u; use a file of your own",
            file->path, stat.st_uid, geteuid());
    if ((stat.st_mode & 022) != 0)
        return error_set(TUTTI_ERR_STORE,
                         "file store %.200s has mode %04o, so other users can write to it; set the mode to 0600",
                         file->path, stat.st_mode & 07777);
    return TUTTI_OK;
}

/* Writes the header of an empty file; checks the header of any other. */
static int check_or_write_header(struct file *file)
{
    char magic[FILE_HEADER];
    struct stat stat;
    if (fstat(file->fd, &stat) != 0) return fail_errno(file, "cannot be examined");
    file->end = FILE_HEADER;
    if (stat.st_size == 0)
        return write_at(file, file_magic, FILE_HEADER, 0) == 0 ? TUTTI_OK : fail_errno(file, "cannot be written");
    if (read_at(file, magic, FILE_HEADER, 0) == 1 && memcmp(magic, file_magic, FILE_HEADER) == 0) return TUTTI_OK;
    return error_set(TUTTI_ERR_STORE,
                     "file store %.200s is not a Tutti store and was left untouched; give an empty or a new file",
                     file->path);
}

static int open_file(struct file *file)
{
    int status = token_init(); /* libsodium computes the checksums */
    if (status == TUTTI_OK) status = store_max_bytes(&file->table.max_bytes);
    if (status != TUTTI_OK) return status;
    file->fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (file->fd < 0) return fail_errno(file, "cannot be opened");
    status = check_file(file);
    if (status == TUTTI_OK) status = lock_file(file, clock_deadline_ns(file->base.timeout_ms));
    if (status != TUTTI_OK) return status;
    status = check_or_write_header(file);
    unlock_file(file);
    return status;
}

static void close_file(tutti_store *store)
{
    struct file *file = (struct file *)store;
    bool forked = store_is_forked(store);
    if (file->fd >= 0) close(file->fd);
    table_free(&file->table);
    if (!forked) pthread_mutex_destroy(&file->mutex);
    free(file);
}

static const struct store_class file_class = {.call = call_file, .close = close_file};

int tutti_store_file_sized(const char *path, const tutti_store_opts *opts, size_t opts_bytes, tutti_store **store)
{
    tutti_store_opts known;
    if (path == NULL || *path == '\0' || store == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tutti_store_file: %s",
                         store == NULL ? "store is NULL" : "path is NULL or empty");
    *store = NULL;
    int status = SIZED_READ(tutti_store_opts, opts, opts_bytes, &known);
    if (status != TUTTI_OK) return status;
    struct file *file = calloc(1, sizeof *file + strlen(path) + 1);
    if (file == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "tutti_store_file: out of memory for %zu bytes", sizeof *file);
    strcpy(file->path, path);
    file->fd = -1;
    pthread_mutex_init(&file->mutex, NULL);
    status = store_base_init(&file->base, &file_class, opts);
    snprintf(file->base.name, sizeof file->base.name, "file store %.200s", path);
    if (status == TUTTI_OK) status = open_file(file);
    if (status != TUTTI_OK) {
        close_file(&file->base);
        return status;
    }
    *store = &file->base;
    return TUTTI_OK;
}
