#include "plugin/registry.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/name_list.h"
#include "plugin/backend_spec.h"
#include "plugin/file_check.h"

struct loaded {
    const tutti_backend *backend;
    char name[PATH_MAX]; /* as requested: a name or a path */
    struct loaded *next;
};

static struct loaded *registry_all;
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

enum { FOLDERS_MOST = 16 };
static char registry_folders[FOLDERS_MOST][PATH_MAX]; /* under registry_lock */

static bool name_is_valid(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length >= 1 && length <= 32 && name[length] == '\0';
}

static int check_table(const char *path, const tutti_backend *backend)
{
    if (backend->abi != TUTTI_BACKEND_ABI)
        return error_set(TUTTI_ERR_BACKEND, "%s has plug-in ABI %u and this library %u; rebuild it", path, backend->abi,
                         TUTTI_BACKEND_ABI);
    if (backend->size < offsetof(tutti_backend, native))
        return error_set(TUTTI_ERR_BACKEND, "%s has a table of %u bytes and at least %zu are required; rebuild it",
                         path, backend->size, offsetof(tutti_backend, native));
    if (backend->name == NULL || !name_is_valid(backend->name))
        return error_set(TUTTI_ERR_BACKEND, "%s has no valid name in its table; use 1 to 32 of a-z, 0-9 and _", path);
    if (!TUTTI_HAS(backend, open) || !TUTTI_HAS(backend, close))
        return error_set(TUTTI_ERR_BACKEND, "%s lacks the mandatory entry %s; implement it", path,
                         TUTTI_HAS(backend, open) ? "close" : "open");
    if (!TUTTI_HAS(backend, send) != !TUTTI_HAS(backend, recv))
        return error_set(TUTTI_ERR_BACKEND, "%s has send or recv but not both; implement both or neither", path);
    bool pending = TUTTI_HAS(backend, send);
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++) pending |= TUTTI_HAS(backend, native[kind]) != 0;
    if (!pending)
        return error_set(TUTTI_ERR_BACKEND,
                         "%s implements no operation; give its table send and recv, or a native entry", path);
    if (!TUTTI_HAS(backend, progress))
        return error_set(TUTTI_ERR_BACKEND, "%s lacks the mandatory entry progress; implement it", path);
    return TUTTI_OK;
}

static int report_no_table(const char *path, bool has_reason)
{
    char why[ERROR_TEXT_MAX / 2];
    snprintf(why, sizeof why, "%s", has_reason ? error_text() : "it gave no reason");
    return error_set(TUTTI_ERR_BACKEND, "%s returned no table: %s", path, why);
}

/* Finds the table to use: the library's own, or the one that its `instead` entry returns. */
static int find_table(const char *path, void *library, const tutti_host *host, const tutti_backend **out)
{
    const tutti_backend *table = dlsym(library, TUTTI_BACKEND_SYMBOL);
    if (table == NULL)
        return error_set(TUTTI_ERR_BACKEND,
                         "%s has no symbol %s; it is not a Tutti plug-in, or one of another major version", path,
                         TUTTI_BACKEND_SYMBOL);
    if (table->abi == TUTTI_BACKEND_ABI && TUTTI_HAS(table, instead)) {
        unsigned errors = error_count();
        table = table->instead(host);
        if (table == NULL) return report_no_table(path, error_count() != errors);
    }
    *out = table;
    return check_table(path, table);
}

static int load_file(const char *path, const char *name, const tutti_host *host, const tutti_backend **out)
{
    const tutti_backend *backend = NULL;
    int status = file_check(path);
    if (status != TUTTI_OK) return status;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return error_set(TUTTI_ERR_BACKEND, "%s cannot be loaded: %s", path, why != NULL ? why : "no reason given");
    }
    status = find_table(path, library, host, &backend);
    if (status == TUTTI_OK && name != NULL && strcmp(name, backend->name) != 0)
        status = error_set(TUTTI_ERR_BACKEND,
                           "%s has the name \"%s\" in its table, not \"%s\"; name the file after its table", path,
                           backend->name, name);
    if (status != TUTTI_OK) return status; /* never dlclose: constructors may have left pointers to the library */
    log_write(LOG_INFO, LOG_PLUGIN, "backend %s from %s (%s)", backend->name, path,
              backend->version != NULL ? backend->version : "no version");
    *out = backend;
    return TUTTI_OK;
}

static void warn_if_missing(const char *folder)
{
    struct stat info;
    if (stat(folder, &info) != 0)
        log_write(LOG_WARN, LOG_PLUGIN, "TUTTI_BACKEND_PATH: %s is skipped: %s", folder, strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        log_write(LOG_WARN, LOG_PLUGIN, "TUTTI_BACKEND_PATH: %s is skipped: it is not a folder", folder);
}

/* Fills the folders in which a name is searched: those of TUTTI_BACKEND_PATH, the one beside libtutti (in a build tree
 * as in an installation), and the install folder. */
static int search_folders(char folders[][PATH_MAX], int most)
{
    static bool warned; /* under registry_lock */
    int n = 0;
    const char *list = env_string("TUTTI_BACKEND_PATH", NULL);
    while (list != NULL && *list != '\0' && n < most - 3) {
        size_t length = strcspn(list, ":");
        if (length > 0 && length < PATH_MAX) {
            snprintf(folders[n], PATH_MAX, "%.*s", (int)length, list);
            if (!warned) warn_if_missing(folders[n]);
            n++;
        }
        list += length + (list[length] == ':');
    }
    warned = true;
    Dl_info self;
    char real[PATH_MAX];
    if (dladdr((void *)(uintptr_t)registry_load, &self) != 0 && realpath(self.dli_fname, real) != NULL) {
        char *slash = strrchr(real, '/');
        if (slash != NULL) {
            *slash = '\0';
            if (snprintf(folders[n], PATH_MAX, "%s/tutti", real) < PATH_MAX) n++;
        }
    }
    snprintf(folders[n++], PATH_MAX, "%s", TUTTI_INSTALL_BACKENDS);
    return n;
}

/* Extracts NAME from "libtutti_NAME.so".  Returns false for any other file name. */
static bool parse_file_name(const char *file, char name[40])
{
    const char *lead = "libtutti_", *end = strrchr(file, '.');
    size_t n = strlen(lead);
    if (strncmp(file, lead, n) != 0 || end == NULL || strcmp(end, ".so") != 0 || end - file - n > 32) return false;
    snprintf(name, 40, "%.*s", (int)(end - file - n), file + n);
    return name_is_valid(name);
}

static void list_folder(const char *path, char *text, size_t capacity)
{
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char name[40];
        if (parse_file_name(entries[i]->d_name, name)) name_list_add(text, capacity, " ", name);
        free(entries[i]);
    }
    free(entries);
}

void registry_list(char *text, size_t capacity)
{
    pthread_mutex_lock(&registry_lock);
    text[0] = '\0';
    int n = search_folders(registry_folders, FOLDERS_MOST);
    for (int i = 0; i < n; i++) list_folder(registry_folders[i], text, capacity);
    pthread_mutex_unlock(&registry_lock);
}

/* Describes the backends in the first n folders, and suggests the one that may have been meant. */
static void describe_others(const char *name, int n, char *text, size_t capacity)
{
    char found[300] = "";
    const char *meant = backend_spec_suggest(name);
    for (int i = 0; i < n; i++) list_folder(registry_folders[i], found, sizeof found);
    if (meant != NULL && !name_list_has(found, meant)) meant = NULL;
    snprintf(text, capacity, "%s%s%savailable: %s", meant != NULL ? "did you mean " : "", meant != NULL ? meant : "",
             meant != NULL ? "? " : "", found[0] != '\0' ? found : "none");
}

static int load_name(const char *name, const tutti_host *host, const tutti_backend **out)
{
    char tried[600] = "";
    int n = search_folders(registry_folders, FOLDERS_MOST);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX + 64];
        snprintf(path, sizeof path, "%s/libtutti_%s.so", registry_folders[i], name);
        if (access(path, F_OK) == 0) return load_file(path, name, host, out);
        size_t used = strlen(tried);
        snprintf(tried + used, sizeof tried - used, "%s%s", used > 0 ? ", " : "", path);
    }
    char others[400];
    describe_others(name, n, others, sizeof others);
    return error_set(TUTTI_ERR_BACKEND,
                     "backend \"%s\" was not found; %s; tried %s (set TUTTI_BACKEND_PATH to add a folder)", name,
                     others, tried);
}

/* True if a plug-in before `end` in the list has the path too. */
static bool is_listed(const struct loaded *end, const tutti_path *path)
{
    for (const struct loaded *i = registry_all; i != end; i = i->next)
        for (const tutti_path *k = TUTTI_HAS(i->backend, paths) ? i->backend->paths : NULL; k && k->name; k++)
            if (k->kind == path->kind && strcmp(k->name, path->name) == 0) return true;
    return false;
}

const char *registry_path(tutti_kind kind, int i)
{
    const char *name = NULL;
    pthread_mutex_lock(&registry_lock);
    for (const struct loaded *entry = registry_all; entry != NULL; entry = entry->next)
        for (const tutti_path *k = TUTTI_HAS(entry->backend, paths) ? entry->backend->paths : NULL; k && k->name; k++)
            if (name == NULL && k->kind == kind && !is_listed(entry, k) && i-- == 0) name = k->name;
    pthread_mutex_unlock(&registry_lock);
    return name;
}

int registry_load(const char *name, const tutti_host *host, const tutti_backend **backend)
{
    if (name[0] != '/' && !name_is_valid(name))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "\"%.64s\" is not a backend name: use 1 to 32 of a-z, 0-9 and _, or an absolute path", name);
    if (strlen(name) >= PATH_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "the backend's path has %zu characters; the limit is %d",
                         strlen(name), PATH_MAX - 1);
    int status = TUTTI_OK;
    pthread_mutex_lock(&registry_lock);
    struct loaded *entry = registry_all;
    while (entry != NULL && strcmp(entry->name, name) != 0) entry = entry->next;
    if (entry == NULL) {
        const tutti_backend *found = NULL;
        status = name[0] == '/' ? load_file(name, NULL, host, &found) : load_name(name, host, &found);
        if (status == TUTTI_OK) entry = calloc(1, sizeof *entry);
        if (entry != NULL) {
            entry->backend = found;
            strcpy(entry->name, name);
            entry->next = registry_all;
            registry_all = entry;
        } else if (status == TUTTI_OK) {
            status = error_set(TUTTI_ERR_NO_MEMORY, "out of memory to load backend %s", name);
        }
    }
    pthread_mutex_unlock(&registry_lock);
    if (status == TUTTI_OK) *backend = entry->backend;
    return status;
}
