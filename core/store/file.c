/* A store in a file: a log of the requests that changed it, each as the wire has it, replayed by every process into a
 * table of its own.
 *
 * All access is under a lock of the open file (F_OFD_SETLK), which the system gives back when its holder dies.  A
 * record that its writer did not finish is recognised by its size or its code, and cut off by the next process.
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
    FILE_RECORD_HEADER = 4 + TOKEN_MAC_BYTES, /* size, code of size and body */
    FILE_POLL_US = 500,                       /* doubling up to the next: the cost of an fstat each time */
    FILE_POLL_MAX_US = 20000
};
static const char file_magic[FILE_HEADER] = {'T', 'U', 'T', 'T', 'I', 'F', 'S', '1'};

struct file {
    tutti_store base;
    pthread_mutex_t mutex; /* the file's lock belongs to the descriptor: it does not part our own threads */
    int fd;
    off_t end; /* of what the table has */
    struct table table;
    char path[];
};

static int file_errno(const struct file *file, const char *what)
{
    return error_errno(TUTTI_ERR_SYSTEM, "file store %.200s: %s", file->path, what);
}

static int file_no_memory(const struct file *file)
{
    return error_set(TUTTI_ERR_NO_MEMORY, "file store %.200s: out of memory", file->path);
}

static void file_sleep(int *pause_us)
{
    nanosleep(&(struct timespec){.tv_nsec = *pause_us * 1000L}, NULL);
    *pause_us = 2 * *pause_us > FILE_POLL_MAX_US ? FILE_POLL_MAX_US : 2 * *pause_us;
}

/* ---- the lock ----------------------------------------------------------------------------------------------- */

static int file_lock(struct file *file, int64_t deadline_ns)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int pause_us = 50;
    while (fcntl(file->fd, F_OFD_SETLK, &whole) != 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) return file_errno(file, "cannot be locked");
        if (clock_now_ns() > deadline_ns)
            return error_set(TUTTI_ERR_TIMEOUT, "file store %.200s: another process held its lock all the time",
                             file->path);
        file_sleep(&pause_us);
    }
    return TUTTI_OK;
}

static void file_unlock(struct file *file)
{
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(file->fd, F_OFD_SETLK, &whole);
}

/* ---- bytes -------------------------------------------------------------------------------------------------- */

/* 1: all of it, 0: the file ends before, -1: errno. */
static int file_read(const struct file *file, void *data, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file->fd, (char *)data + done, bytes - done, at + (off_t)done);
        if (got == 0) return 0;
        if (got < 0 && errno != EINTR) return -1;
        if (got > 0) done += (size_t)got;
    }
    return 1;
}

static int file_write(const struct file *file, const void *data, size_t bytes, off_t at)
{
    if (!file_limit_allows((size_t)at + bytes)) return -1;
    for (size_t done = 0; done < bytes;) {
        ssize_t put = pwrite(file->fd, (const char *)data + done, bytes - done, at + (off_t)done);
        if (put < 0 && errno != EINTR) return -1;
        if (put > 0) done += (size_t)put;
    }
    return 0;
}

/* Tells a whole record from a torn one; it is no proof of who wrote it. */
static void file_code(uint8_t code[TOKEN_MAC_BYTES], const uint8_t *body, size_t bytes)
{
    static const uint8_t no_key[TOKEN_BYTES];
    token_mac(code, no_key, body, bytes);
}

/* ---- replaying ---------------------------------------------------------------------------------------------- */

/* Applies one record's body.  1: done, 0: it is none, else an error: the record is there, and still to be applied. */
static int file_replay_body(struct file *file, const uint8_t *body, size_t bytes)
{
    struct store_request request;
    struct store_slice *slices;
    struct store_reply reply;
    int64_t timeout_ms;
    int missing, status = wire_parse_request(body, bytes, &request, &slices, &timeout_ms);
    if (status != TUTTI_OK) return status == TUTTI_ERR_NO_MEMORY ? file_no_memory(file) : 0;
    table_apply(&file->table, &request, &reply, &missing);
    status = reply.status;
    store_reply_free(&reply);
    free(slices);
    return status == TUTTI_ERR_NO_MEMORY ? file_no_memory(file) : 1; /* other errors are all processes' alike */
}

/* Reads the record at file->end and steps over it.  1: done, 0: no whole record is there, else an error. */
static int file_replay_one(struct file *file)
{
    uint8_t header[FILE_RECORD_HEADER], code[TOKEN_MAC_BYTES];
    int got = file_read(file, header, sizeof header, file->end);
    if (got <= 0) return got == 0 ? 0 : file_errno(file, "cannot be read");
    size_t bytes = wire_get_u32(header);
    if (bytes > WIRE_PAYLOAD_MAX) return 0;
    uint8_t *body = malloc(bytes + 1);
    if (body == NULL) return file_no_memory(file);
    got = file_read(file, body, bytes, file->end + FILE_RECORD_HEADER);
    int one = got < 0 ? file_errno(file, "cannot be read") : 0;
    if (got == 1) file_code(code, body, bytes);
    if (got == 1 && token_equal(code, header + 4)) one = file_replay_body(file, body, bytes);
    free(body);
    if (one == 1) file->end += (off_t)(FILE_RECORD_HEADER + bytes);
    return one;
}

/* Brings the table up to date.  Under the lock, so what is not whole was left by a process that died. */
static int file_replay(struct file *file)
{
    struct stat stat;
    int one = 1;
    if (fstat(file->fd, &stat) != 0) return file_errno(file, "cannot be read");
    if (stat.st_size < file->end)
        return error_set(TUTTI_ERR_STORE, "file store %.200s: the file became shorter: another program wrote into it",
                         file->path);
    while (one == 1 && file->end < stat.st_size) one = file_replay_one(file);
    if (one == 0 && ftruncate(file->fd, file->end) != 0) return file_errno(file, "cannot be cut");
    return one < 0 ? one : TUTTI_OK;
}

/* ---- changing ----------------------------------------------------------------------------------------------- */

/* Appends the request.  A part of it left by a full disk is cut off again. */
static int file_append(struct file *file, const struct store_request *request)
{
    size_t bytes = wire_request_bytes(request), total = FILE_RECORD_HEADER + bytes;
    if (bytes > WIRE_PAYLOAD_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "file store %.200s: a request of %zu bytes is over the limit of %d", file->path, bytes,
                         WIRE_PAYLOAD_MAX);
    if ((size_t)file->end + total > 4 * file->table.max_bytes)
        return error_set(TUTTI_ERR_STORE,
                         "file store %.200s is full: its log has %lld bytes, the limit is %zu, four times "
                         "TUTTI_STORE_MAX_BYTES",
                         file->path, (long long)file->end, 4 * file->table.max_bytes);
    uint8_t *record = malloc(total);
    if (record == NULL) return file_no_memory(file);
    wire_put_u32(record, (uint32_t)bytes);
    wire_put_request(record + FILE_RECORD_HEADER, request, 0);
    file_code(record + 4, record + FILE_RECORD_HEADER, bytes);
    int status = TUTTI_OK;
    if (file_write(file, record, total, file->end) != 0) {
        status = file_errno(file, "cannot be written");
        if (ftruncate(file->fd, file->end) != 0) status = file_errno(file, "cannot be cut");
    } else {
        file->end += (off_t)total;
    }
    free(record);
    return status;
}

/* Cuts off the request that was just appended, for which our memory did not suffice: nobody has seen it.  The table may
 * have a part of it, and is made anew with the next call. */
static int file_take_back(struct file *file, off_t before)
{
    table_free(&file->table);
    file->end = FILE_HEADER;
    return ftruncate(file->fd, before) == 0 ? TUTTI_OK : file_errno(file, "cannot be cut");
}

/* One try, under both locks.  The log comes first: what is not in the file must not be in our table. */
static int file_try(struct file *file, const struct store_request *request, struct store_reply *reply, bool *done)
{
    bool writes = store_op_writes(request->op);
    int missing, status = file_replay(file);
    off_t before = file->end;
    if (status == TUTTI_OK && writes) status = file_append(file, request);
    if (status != TUTTI_OK) return status;
    *done = table_apply(&file->table, request, reply, &missing);
    return writes && reply->status == TUTTI_ERR_NO_MEMORY ? file_take_back(file, before) : TUTTI_OK;
}

static int file_call_once(struct file *file, const struct store_request *request, struct store_reply *reply, bool last,
                          bool *done, off_t *seen)
{
    int64_t deadline_ns = request->deadline_ns;
    if (last && deadline_ns != CLOCK_NEVER) deadline_ns += 1000000000; /* a last look must get the lock */
    pthread_mutex_lock(&file->mutex);
    int status = file_lock(file, deadline_ns);
    if (status == TUTTI_OK) {
        status = file_try(file, request, reply, done);
        if (status == TUTTI_OK && !*done && last) table_timeout(&file->table, request, reply);
        file_unlock(file);
    }
    *seen = file->end;
    pthread_mutex_unlock(&file->mutex);
    return status;
}

/* Since this call's last look: another thread may have replayed the growth already. */
static bool file_has_grown(const struct file *file, off_t seen)
{
    struct stat stat;
    return fstat(file->fd, &stat) != 0 || stat.st_size != seen;
}

static int file_call(tutti_store *store, const struct store_request *request, struct store_reply *reply)
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
        int status = file_call_once(file, request, reply, last, &done, &seen);
        if (status != TUTTI_OK || done || last) return status;
        while (!file_has_grown(file, seen) && clock_now_ns() < request->deadline_ns) file_sleep(&pause_us);
        pause_us = FILE_POLL_US;
    }
}

/* ---- opening and closing ------------------------------------------------------------------------------------ */

static int file_check(const struct file *file)
{
    struct stat stat;
    if (fstat(file->fd, &stat) != 0) return file_errno(file, "cannot be examined");
    if (!S_ISREG(stat.st_mode))
        return error_set(TUTTI_ERR_STORE, "file store %.200s is not a regular file", file->path);
    if (stat.st_uid != geteuid())
        return error_set(TUTTI_ERR_STORE, "file store %.200s belongs to user %u, this process runs as user %u",
                         file->path, stat.st_uid, geteuid());
    if ((stat.st_mode & 022) != 0)
        return error_set(TUTTI_ERR_STORE, "file store %.200s has mode %04o: others could write into it; set it to 0600",
                         file->path, stat.st_mode & 07777);
    return TUTTI_OK;
}

/* An empty file is made a store; any other must be one. */
static int file_begin(struct file *file)
{
    char magic[FILE_HEADER];
    struct stat stat;
    if (fstat(file->fd, &stat) != 0) return file_errno(file, "cannot be examined");
    file->end = FILE_HEADER;
    if (stat.st_size == 0)
        return file_write(file, file_magic, FILE_HEADER, 0) == 0 ? TUTTI_OK : file_errno(file, "cannot be written");
    if (file_read(file, magic, FILE_HEADER, 0) == 1 && memcmp(magic, file_magic, FILE_HEADER) == 0) return TUTTI_OK;
    return error_set(TUTTI_ERR_STORE,
                     "file store %.200s holds something else than a Tutti store: it was left untouched", file->path);
}

static int file_open(struct file *file)
{
    int status = token_init(); /* libsodium makes the codes */
    if (status == TUTTI_OK) status = store_max_bytes(&file->table.max_bytes);
    if (status != TUTTI_OK) return status;
    file->fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (file->fd < 0) return file_errno(file, "cannot be opened");
    status = file_check(file);
    if (status == TUTTI_OK) status = file_lock(file, clock_deadline_ns(file->base.timeout_ms));
    if (status != TUTTI_OK) return status;
    status = file_begin(file);
    file_unlock(file);
    return status;
}

static void file_close(tutti_store *store, bool forked)
{
    struct file *file = (struct file *)store;
    if (file->fd >= 0) close(file->fd);
    table_free(&file->table);
    if (!forked) pthread_mutex_destroy(&file->mutex);
    free(file);
}

static const struct store_class file_class = {.call = file_call, .close = file_close};

int tutti_store_file_sized(const char *path, const tutti_store_opts *opts, size_t opts_bytes, tutti_store **store)
{
    tutti_store_opts known;
    if (path == NULL || *path == '\0' || store == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tutti_store_file: %s",
                         store == NULL ? "store is NULL" : "path is missing");
    *store = NULL;
    int status = SIZED_READ(tutti_store_opts, opts, opts_bytes, &known);
    if (status != TUTTI_OK) return status;
    struct file *file = calloc(1, sizeof *file + strlen(path) + 1);
    if (file == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "tutti_store_file: out of memory");
    strcpy(file->path, path);
    file->fd = -1;
    pthread_mutex_init(&file->mutex, NULL);
    status = store_base_init(&file->base, &file_class, opts);
    snprintf(file->base.name, sizeof file->base.name, "file store %.200s", path);
    if (status == TUTTI_OK) status = file_open(file);
    if (status != TUTTI_OK) {
        file_close(&file->base, false);
        return status;
    }
    *store = &file->base;
    return TUTTI_OK;
}
