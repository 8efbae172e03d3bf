#include "trace/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MOST = 256 << 20 };

static bool has_suffix(const char *name, const char *suffix)
{
    size_t length = strlen(name), end = strlen(suffix);
    return length > end && name[0] != '.' && strcmp(name + length - end, suffix) == 0;
}

/* Reads a regular file.  Returns NULL, with why it cannot be read in *wrong. */
static char *read_bytes(const char *path, size_t *bytes, const char **wrong)
{
    struct stat info;
    char *data = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *wrong = strerror(errno);
    if (fd >= 0 && fstat(fd, &info) == 0) {
        *wrong = !S_ISREG(info.st_mode) ? "is no file" : info.st_size > FILE_MOST ? "is too large" : "cannot be read";
        if (S_ISREG(info.st_mode) && info.st_size <= FILE_MOST) data = malloc((size_t)info.st_size + 1);
    }
    *bytes = 0;
    for (ssize_t n = 1; data != NULL && n > 0 && *bytes<(size_t)info.st_size; *bytes += n> 0 ? (size_t)n : 0)
        n = read(fd, data + *bytes, (size_t)info.st_size - *bytes);
    if (fd >= 0) close(fd);
    return data;
}

/* Reads a file into folder->files, which has space for it. */
static void read_file(const char *path, const char *name, struct folder *folder)
{
    struct record_file *file = &folder->files[folder->n];
    const char *wrong = NULL;
    size_t bytes;
    *file = (struct record_file){0};
    if (asprintf(&file->path, "%s/%s", path, name) < 0) file->path = NULL;
    char *data = file->path != NULL ? read_bytes(file->path, &bytes, &wrong) : NULL;
    if (data != NULL) wrong = record_parse(data, bytes, file);
    if (wrong == NULL && data != NULL) {
        if (!file->is_whole) printf("%s: is cut short; its whole lines are used\n", name);
        folder->n++;
        return;
    }
    printf("%s: %s; left out\n", name, wrong != NULL ? wrong : "does not fit into memory");
    record_close(file);
}

/* Keeps the files of the job whose file is the latest. */
static void keep_one_job(struct folder *folder)
{
    size_t latest = 0, kept = 0, others = 0;
    for (size_t i = 1; i < folder->n; i++)
        if (folder->files[i].wall_ns > folder->files[latest].wall_ns) latest = i;
    uint64_t job = folder->n > 0 ? folder->files[latest].job : 0;
    for (size_t i = 0; i < folder->n; i++) {
        if (folder->files[i].job == job) {
            folder->files[kept++] = folder->files[i];
            continue;
        }
        printf("%s: is of another job; left out\n", strrchr(folder->files[i].path, '/') + 1);
        record_close(&folder->files[i]);
        others++;
    }
    folder->n = kept;
    if (others > 0) printf("\n");
}

static int is_record(const struct dirent *entry)
{
    return has_suffix(entry->d_name, ".record");
}

bool folder_read(const char *path, struct folder *folder)
{
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, is_record, versionsort);
    *folder = (struct folder){.files = calloc((size_t)(n > 0 ? n : 1), sizeof *folder->files)};
    if (n < 0) fprintf(stderr, "tutti-trace: cannot read the folder %s: %s\n", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (folder->files != NULL) read_file(path, entries[i]->d_name, folder);
        free(entries[i]);
    }
    free(entries);
    keep_one_job(folder);
    if (folder->n == 0 && n >= 0)
        fprintf(stderr,
                "tutti-trace: %s has no usable file of the flight recorder; name the folder that "
                "TUTTI_RECORD_DIR names\n",
                path);
    return folder->n > 0;
}

void folder_close(struct folder *folder)
{
    for (size_t i = 0; i < folder->n; i++) record_close(&folder->files[i]);
    free(folder->files);
    *folder = (struct folder){0};
}
