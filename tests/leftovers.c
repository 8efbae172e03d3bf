#include "leftovers.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_name(const struct leftovers *leftovers, const char *name)
{
    for (int i = 0; i < leftovers->n; i++)
        if (strcmp(leftovers->name[i], name) == 0) return true;
    return false;
}

static void add_name(struct leftovers *leftovers, const char *name)
{
    bool file = strncmp(name, "/dev/shm/", 9) == 0 || strncmp(name, "/tmp/", 5) == 0;
    if (!file && strncmp(name, "socket:[", 8) != 0) return;
    if (strncmp(name, TUTTI_BUILD_DIR, strlen(TUTTI_BUILD_DIR)) == 0 || strstr(name, "(deleted)") != NULL) return;
    if (leftovers->n < LEFTOVERS_MOST && !has_name(leftovers, name))
        snprintf(leftovers->name[leftovers->n++], sizeof *leftovers->name, "%s", name);
}

static void add_open_files(struct leftovers *leftovers, pid_t pid)
{
    char path[300], target[256];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        snprintf(path, sizeof path, "/proc/%d/fd/%.40s", (int)pid, entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        add_name(leftovers, target);
    }
    if (directory != NULL) closedir(directory);
}

static void add_mapped_files(struct leftovers *leftovers, pid_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strchr(line, '/') != NULL) add_name(leftovers, strchr(line, '/'));
    }
    if (maps != NULL) fclose(maps);
}

void leftovers_add(struct leftovers *leftovers, pid_t pid)
{
    add_open_files(leftovers, pid);
    add_mapped_files(leftovers, pid);
}

/* True if the kernel's table of sockets has this number among the words of a line. */
static bool is_in_table(const char *table, const char *number)
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

static bool exists(const char *name)
{
    static const char *const tables[] = {"/proc/net/unix", "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp"};
    char number[32] = "";
    if (*name == '/') return access(name, F_OK) == 0;
    sscanf(name, "socket:[%31[0-9]", number);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (is_in_table(tables[i], number)) return true;
    return false;
}

/* True if the text has the number, and not only as a part of a longer one. */
static bool has_number(const char *text, int number)
{
    while (*text != '\0') {
        char *end;
        text += strcspn(text, "0123456789");
        if (*text != '\0' && strtol(text, &end, 10) == number) return true;
        text += strspn(text, "0123456789");
    }
    return false;
}

/* True if the folder has a file of this user with the process's number in its name. */
static bool has_file_of(const char *folder, pid_t pid)
{
    bool found = false;
    DIR *directory = opendir(folder);
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (strstr(entry->d_name, "tutti") == NULL || !has_number(entry->d_name, (int)pid)) continue;
        fprintf(stderr, "%s/%s still exists\n", folder, entry->d_name);
        found = true;
    }
    if (directory != NULL) closedir(directory);
    return found;
}

bool leftovers_exist(const struct leftovers *leftovers, const pid_t *pids, int n)
{
    struct leftovers own = {0};
    bool found = false;
    leftovers_add(&own, getpid());
    for (int i = 0; i < leftovers->n; i++) {
        if (has_name(&own, leftovers->name[i]) || !exists(leftovers->name[i])) continue;
        fprintf(stderr, "%s still exists\n", leftovers->name[i]);
        found = true;
    }
    for (int i = 0; i < n; i++) found |= has_file_of("/dev/shm", pids[i]) || has_file_of("/tmp", pids[i]);
    return found;
}
