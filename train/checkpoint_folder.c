#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_file.h"
#include "checkpoint_path.h"

#define PARTIAL ".partial"

int checkpoint_failed(const char *verb, const char *path)
{
    return tutti_set_error(TUTTI_ERR_SYSTEM, "checkpoint: cannot %s %s: %s", verb, path, strerror(errno));
}

int checkpoint_path(const struct checkpoint_place *place, const char *name, char path[CHECKPOINT_PATH])
{
    int length = snprintf(path, CHECKPOINT_PATH, "%s/%010" PRId64 "%s%s%s", place->folder, place->number,
                          place->partial ? PARTIAL : "", name != NULL ? "/" : "", name != NULL ? name : "");
    if (length < CHECKPOINT_PATH) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "checkpoint: the path of the folder has %zu bytes; at most %d",
                           strlen(place->folder), CHECKPOINT_PATH - 64);
}

/* Parses the name of a checkpoint's folder.  Returns its number, or 0 if it is something else: also a number with more
 * zeros than checkpoint_path writes, because that path leads elsewhere. */
static int64_t parse_name(const char *name, bool *partial)
{
    char *end;
    errno = 0;
    size_t digits = strspn(name, "0123456789");
    long long number = digits >= 10 ? strtoll(name, &end, 10) : 0;
    if (number <= 0 || errno != 0 || (digits > 10 && name[0] == '0')) return 0;
    *partial = strcmp(end, PARTIAL) == 0;
    return *end == '\0' || *partial ? number : 0;
}

/* Removes a folder of files.  Of a link, only the link: what it leads to is not ours. */
static void remove_folder(const char *path)
{
    char file[CHECKPOINT_PATH + 256];
    if (unlink(path) == 0) return; /* fails for a folder */
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        unlink(file);
    }
    if (folder != NULL) closedir(folder);
    rmdir(path);
}

/* Calls fn for each checkpoint in the folder, complete or not. */
static int visit(const char *path, void (*fn)(const struct checkpoint_place *place, int64_t *value), int64_t *value)
{
    DIR *folder = opendir(path);
    if (folder == NULL) return errno == ENOENT ? TUTTI_OK : checkpoint_failed("read folder", path);
    errno = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL; errno = 0) {
        struct checkpoint_place place = {.folder = path};
        place.number = parse_name(entry->d_name, &place.partial);
        if (place.number > 0) fn(&place, value);
    }
    int status = errno != 0 ? checkpoint_failed("read folder", path) : TUTTI_OK;
    closedir(folder);
    return status;
}

static void note_latest(const struct checkpoint_place *place, int64_t *latest)
{
    if (!place->partial && place->number > *latest) *latest = place->number;
}

static void remove_partial(const struct checkpoint_place *place, int64_t *unused)
{
    char path[CHECKPOINT_PATH];
    (void)unused;
    if (place->partial && checkpoint_path(place, NULL, path) == TUTTI_OK) remove_folder(path);
}

/* Takes the checkpoint's name away first, so that an interrupted removal leaves no complete-looking rest. */
static void remove_up_to(const struct checkpoint_place *place, int64_t *last)
{
    char path[CHECKPOINT_PATH], renamed[CHECKPOINT_PATH];
    struct checkpoint_place partial = {place->folder, place->number, true};
    if (place->partial || place->number > *last) return;
    if (checkpoint_path(place, NULL, path) != TUTTI_OK || checkpoint_path(&partial, NULL, renamed) != TUTTI_OK) return;
    if (rename(path, renamed) == 0) remove_folder(renamed);
}

int checkpoint_find_latest(const char *folder, int64_t *number)
{
    *number = 0;
    return visit(folder, note_latest, number);
}

/* Stores in bound[1] the highest number below bound[0]. */
static void note_latest_below(const struct checkpoint_place *place, int64_t *bound)
{
    if (place->number < bound[0]) note_latest(place, &bound[1]);
}

/* Numbers may have gaps, because a person may have removed a checkpoint. */
void checkpoint_remove_old(const char *folder, int keep)
{
    int64_t bound[2] = {INT64_MAX, INT64_MAX};
    for (int i = 0; i <= keep && bound[1] > 0; i++) {
        bound[0] = bound[1];
        bound[1] = 0;
        if (visit(folder, note_latest_below, bound) != TUTTI_OK) return;
    }
    if (bound[1] > 0) visit(folder, remove_up_to, &bound[1]);
}

bool checkpoint_exists(const struct checkpoint_place *place)
{
    char path[CHECKPOINT_PATH];
    struct stat info;
    return checkpoint_path(place, NULL, path) == TUTTI_OK && (stat(path, &info) == 0 || errno != ENOENT);
}

void checkpoint_folder_discard(const char *folder, int64_t number)
{
    remove_partial(&(struct checkpoint_place){folder, number, true}, NULL);
}

/* Waits until a folder's names are on disk. */
static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return checkpoint_failed("open folder", path);
    int status = fsync(fd) != 0 ? checkpoint_failed("sync folder", path) : TUTTI_OK;
    close(fd);
    return status;
}

/* Syncs the folder that a path is in. */
static int sync_parent(const char *path)
{
    char parent[CHECKPOINT_PATH];
    if (snprintf(parent, sizeof parent, "%s/..", path) >= CHECKPOINT_PATH) return TUTTI_OK;
    return sync_folder(parent);
}

int checkpoint_folder_lock(const char *folder, int *lock)
{
    *lock = -1;
    bool made = mkdir(folder, 0777) == 0;
    if (!made && errno != EEXIST) return checkpoint_failed("make folder", folder);
    int status = made ? sync_parent(folder) : TUTTI_OK;
    if (status != TUTTI_OK) return status;
    *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return checkpoint_failed("open folder", folder);
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return TUTTI_OK; /* not all file systems lock */
    close(*lock);
    *lock = -1;
    return tutti_set_error(TUTTI_ERR_SYSTEM,
                           "checkpoint: another job is saving to %s; let one job at a time save there, or pass another "
                           "folder",
                           folder);
}

void checkpoint_folder_unlock(int lock)
{
    if (lock < 0) return;
    flock(lock, LOCK_UN); /* closing would not unlock it while a forked child has the descriptor, too */
    close(lock);
}

int checkpoint_folder_begin(const char *folder, int64_t number)
{
    char path[CHECKPOINT_PATH];
    int status = checkpoint_path(&(struct checkpoint_place){folder, number, true}, NULL, path);
    if (status == TUTTI_OK) status = visit(folder, remove_partial, NULL);
    if (status == TUTTI_OK && mkdir(path, 0777) != 0) status = checkpoint_failed("make folder", path);
    return status;
}

int checkpoint_folder_commit(const char *folder, int64_t number)
{
    char partial[CHECKPOINT_PATH], path[CHECKPOINT_PATH];
    int status = checkpoint_path(&(struct checkpoint_place){folder, number, true}, NULL, partial);
    if (status == TUTTI_OK) status = checkpoint_path(&(struct checkpoint_place){folder, number, false}, NULL, path);
    if (status == TUTTI_OK) status = sync_folder(partial);
    if (status == TUTTI_OK && rename(partial, path) != 0) status = checkpoint_failed("rename", partial);
    if (status != TUTTI_OK) return status;
    status = sync_folder(folder);
    if (status != TUTTI_OK) rename(path, partial); /* there is no new checkpoint after an error */
    return status;
}
