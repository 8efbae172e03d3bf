/* What processes have, and whether it is left when they are gone: descriptors, threads, files under a name, sockets. */
#ifndef LEFTOVERS_H
#define LEFTOVERS_H

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int n = 0;
    while (directory != NULL && readdir(directory) != NULL) n++;
    if (directory != NULL) closedir(directory);
    return n;
}

static inline int count_fds(void)
{
    return count_entries("/proc/self/fd");
}

static inline int count_threads(void)
{
    return count_entries("/proc/self/task");
}

/* Sanitizers have an allocator of their own. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static inline size_t allocated_bytes(void)
{
    if (__sanitizer_get_current_allocated_bytes != NULL) return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* ---- of other processes ---------------------------------------------------------------------------------------- */

/* Files in /dev/shm and /tmp, and "socket:[number]". */
enum { THINGS = 256 };

struct things {
    int n;
    char name[THINGS][256];
};

static inline bool has_thing(const struct things *things, const char *name)
{
    for (int i = 0; i < things->n; i++)
        if (strcmp(things->name[i], name) == 0) return true;
    return false;
}

static inline void note_thing(struct things *things, const char *name)
{
    bool file = strncmp(name, "/dev/shm/", 9) == 0 || strncmp(name, "/tmp/", 5) == 0;
    if (!file && strncmp(name, "socket:[", 8) != 0) return;
    if (strncmp(name, TUTTI_BUILD_DIR, strlen(TUTTI_BUILD_DIR)) == 0 || strstr(name, "(deleted)") != NULL) return;
    if (things->n < THINGS && !has_thing(things, name)) snprintf(things->name[things->n++], 256, "%s", name);
}

/* What a process has open or mapped. */
static inline void note_things(struct things *things, pid_t pid)
{
    char path[300], target[256], line[512];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        snprintf(path, sizeof path, "/proc/%d/fd/%.40s", (int)pid, entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        note_thing(things, target);
    }
    if (directory != NULL) closedir(directory);
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strchr(line, '/') != NULL) note_thing(things, strchr(line, '/'));
    }
    if (maps != NULL) fclose(maps);
}

/* Whether a table of the kernel's has a socket of this number, as one of a line's words. */
static inline bool table_has(const char *table, const char *number)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(table, "re");
    while (!found && file != NULL && fgets(line, sizeof line, file) != NULL)
        for (char *rest, *word = strtok_r(line, " \n", &rest); word != NULL; word = strtok_r(NULL, " \n", &rest))
            found |= strcmp(word, number) == 0;
    if (file != NULL) fclose(file);
    return found;
}

static inline bool is_left(const char *name)
{
    static const char *const tables[] = {"/proc/net/unix", "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp"};
    char number[32] = "";
    if (*name == '/') return access(name, F_OK) == 0;
    sscanf(name, "socket:[%31[0-9]", number);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (table_has(tables[i], number)) return true;
    return false;
}

/* Names with a process' number in them. */
static inline bool names_with(const char *where, pid_t pid)
{
    char number[16];
    bool found = false;
    snprintf(number, sizeof number, "%d", (int)pid);
    DIR *directory = opendir(where);
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        const char *at = strstr(entry->d_name, number);
        if (at == NULL || strstr(entry->d_name, "tutti") == NULL) continue;
        fprintf(stderr, "%s/%s is left\n", where, entry->d_name);
        found = true;
    }
    if (directory != NULL) closedir(directory);
    return found;
}

/* Whether any of what these n processes had is still there; what this process has, too, such as what the test's output
 * goes to, does not count. */
static inline bool leave_things(const struct things *things, const pid_t *pids, int n)
{
    struct things own = {0};
    bool left = false;
    note_things(&own, getpid());
    for (int i = 0; i < things->n; i++) {
        if (has_thing(&own, things->name[i]) || !is_left(things->name[i])) continue;
        fprintf(stderr, "%s is left\n", things->name[i]);
        left = true;
    }
    for (int i = 0; i < n; i++) left |= names_with("/dev/shm", pids[i]) || names_with("/tmp", pids[i]);
    return left;
}

#endif
