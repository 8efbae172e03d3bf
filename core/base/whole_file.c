#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "portable/waits.h"

/* A file to write.  The caller and the thread share it, and the last of them frees it. */
struct whole_file {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int references, error;
    char *folder, *path, *temporary, *data;
    size_t bytes;
};

static void free_file(struct whole_file *file)
{
    free(file->folder);
    free(file->path);
    free(file->temporary);
    free(file->data);
    pthread_cond_destroy(&file->changed);
    pthread_mutex_destroy(&file->lock);
    free(file);
}

/* Takes data in any case. */
static struct whole_file *new_file(const char *folder, const char *name, char *data, size_t bytes)
{
    static atomic_uint files; /* several threads may write a file of this name */
    struct whole_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        free(data);
        return NULL;
    }
    pthread_mutex_init(&file->lock, NULL);
    waits_condition_init(&file->changed);
    file->data = data;
    file->bytes = bytes;
    file->references = 1;
    if (asprintf(&file->folder, "%s", folder) < 0) file->folder = NULL;
    if (asprintf(&file->path, "%s/%s", folder, name) < 0) file->path = NULL;
    if (asprintf(&file->temporary, "%s/.%s.%d.%u", folder, name, (int)getpid(), atomic_fetch_add(&files, 1)) < 0)
        file->temporary = NULL;
    if (file->folder != NULL && file->path != NULL && file->temporary != NULL) return file;
    free_file(file);
    return NULL;
}

static int write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : ENOSPC;
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int write_file(const struct whole_file *file)
{
    mkdir(file->folder, 0777); /* open reports a folder that is still missing */
    int fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return errno;
    int error = write_all(fd, file->data, file->bytes);
    if (close(fd) != 0 && error == 0) error = errno;
    if (error == 0 && rename(file->temporary, file->path) != 0) error = errno;
    if (error != 0) unlink(file->temporary);
    return error;
}

static void *write_in_thread(void *argument)
{
    struct whole_file *file = argument;
    int error = write_file(file);
    pthread_mutex_lock(&file->lock);
    file->error = error;
    bool last = --file->references == 0;
    pthread_cond_signal(&file->changed);
    pthread_mutex_unlock(&file->lock);
    if (last) free_file(file);
    return NULL;
}

/* Waits until the thread has ended with the file, or for WHOLE_FILE_MS. */
static int await_thread(struct whole_file *file)
{
    struct timespec until = clock_timespec(clock_deadline_ns(WHOLE_FILE_MS));
    int waited = 0;
    pthread_mutex_lock(&file->lock);
    while (file->references > 1 && waited != ETIMEDOUT) waited = waits_condition(&file->changed, &file->lock, &until);
    int error = file->references > 1 ? ETIMEDOUT : file->error;
    bool last = --file->references == 0;
    pthread_mutex_unlock(&file->lock);
    if (last) free_file(file);
    return error;
}

int whole_file_write(const char *folder, const char *name, char *data, size_t bytes)
{
    pthread_t thread;
    struct whole_file *file = new_file(folder, name, data, bytes);
    if (file == NULL) return ENOMEM;
    file->references = 2;
    if (thread_start(&thread, write_in_thread, file) == 0) {
        pthread_detach(thread);
        return await_thread(file);
    }
    int error = write_file(file); /* without a thread it is written here, without the limit */
    free_file(file);
    return error;
}
