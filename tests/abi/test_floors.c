/* Who may include whom.  A row: the files it is for, and what of ours they may include; what a file's own folder holds
 * is always allowed.  The first row that fits a file counts. */
#include <dirent.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define PUBLIC "<tutti/tutti.h> <tutti/types.h> <tutti/store.h> <tutti/dlpack.h>"

static const struct floor {
    const char *files, *may;
    bool own_folder;
} floors[] = {
    /* programs: the public door alone */
    {"examples/*/*", PUBLIC " <tutti/backend.h>", true}, /* an out-of-tree backend among them */
    {"examples/*", PUBLIC, true},
    {"tools/*", PUBLIC " bench/* run/* conformance/*", true},
    /* transports: the plug-in door alone */
    {"backends/nccl/*", "<tutti/backend.h> <tutti/types.h> <tutti/store.h> cuda/*", true},
    {"backends/*/*", "<tutti/backend.h> <tutti/types.h> <tutti/store.h>", true},
    /* algorithms are pure */
    {"core/coll/select.c", "<tutti/types.h> plan.h base/error.h", true},
    {"core/coll/*", "<tutti/types.h> plan.h", true},
    /* the ground floor */
    {"core/base/*", "<tutti/*> base/*", false},
    {"core/plan*", "<tutti/types.h> plan.h plan_ranges.h", false},
    {"core/exec*", "<tutti/types.h> <tutti/backend.h> exec.h plan.h base/*", false},
    {"core/fingerprint*", "<tutti/types.h> <tutti/backend.h> fingerprint.h base/*", false},
    {"core/names*", "<tutti/types.h> names.h base/*", false},
    {"core/registry*", "<tutti/*> registry.h names.h base/*", false},
    {"core/store/*", "<tutti/types.h> <tutti/store.h> base/* store/*", true},
    {"core/host*", "<tutti/*> * base/*", false},
    /* the public headers stand on each other */
    {"include/tutti/backend.h", "<tutti/types.h> <tutti/store.h>", false},
    {"include/tutti/store.h", "<tutti/types.h>", false},
    {"include/tutti/types.h", "", false},
    {"include/tutti/tutti.h", "<tutti/types.h> <tutti/store.h> <tutti/sized.h>", false},
    {"include/tutti/*", "<tutti/types.h> <tutti/store.h>", false},
    /* the upper floors of the core do not go round the store's and the plan's front doors */
    {"core/*", "<tutti/*> *.h base/* coll/coll.h store/store_impl.h store/address.h store/handshake.h", false},
};

static int wrong, seen;

/* Whether one of the patterns in list, separated by blanks, fits name. */
static bool fits(const char *list, const char *name)
{
    char copy[512], *rest = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *pattern; (pattern = strsep(&rest, " ")) != NULL;)
        if (fnmatch(pattern, name, FNM_PATHNAME) == 0) return true;
    return false;
}

static bool exists(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, TUTTI_SOURCE_DIR "/%s/%s", folder, name);
    return stat(path, &info) == 0;
}

static void check_include(const char *path, const struct floor *floor, const char *include, char quote)
{
    char folder[4096], name[512];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    bool ours = quote == '"' || strncmp(include, "tutti/", 6) == 0;
    if (!ours) return; /* the system's, or a vendor's */
    snprintf(name, sizeof name, quote == '"' ? "%s" : "<%s>", include);
    if (quote == '"' && floor->own_folder && strchr(include, '/') == NULL && exists(folder, include)) return;
    if (fits(floor->may, name)) return;
    print_error("%s includes %s; it may include: %s%s\n", path, name, floor->may,
                floor->own_folder ? " and what its folder holds" : "");
    wrong++;
}

static void check_file(const char *path)
{
    char full[4096], line[1024];
    const struct floor *floor = NULL;
    for (size_t i = 0; i < sizeof floors / sizeof *floors && floor == NULL; i++)
        if (fnmatch(floors[i].files, path, 0) == 0) floor = &floors[i];
    if (floor == NULL) fail_msg("no floor for %s", path);
    snprintf(full, sizeof full, TUTTI_SOURCE_DIR "/%s", path);
    FILE *file = fopen(full, "r");
    assert_non_null(file);
    seen++;
    while (fgets(line, sizeof line, file) != NULL) {
        char quote, include[512];
        if (sscanf(line, " # include %c%511[^\">]", &quote, include) == 2) check_include(path, floor, include, quote);
    }
    fclose(file);
}

static void check_folder(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, TUTTI_SOURCE_DIR "/%s", folder);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_type == DT_DIR)
            check_folder(path);
        else if (length > 2 &&
                 (strcmp(entry->d_name + length - 2, ".c") == 0 || strcmp(entry->d_name + length - 2, ".h") == 0))
            check_file(path);
    }
    closedir(directory);
}

static void test_floors(void **state)
{
    (void)state;
    check_folder("include");
    check_folder("core");
    check_folder("backends");
    check_folder("tools");
    check_folder("examples");
    assert_true(seen > 80);
    assert_int_equal(wrong, 0);
}

/* The core knows no backend by its name, but in what "auto" means and in the device that a name implies. */
static void test_no_names(void **state)
{
    (void)state;
    char line[1024];
    FILE *output =
        popen("cd '" TUTTI_SOURCE_DIR "' && grep -nE '\"(tcp|mpi|nccl)\"' core/*.c core/coll/*.c core/base/*.c", "r");
    int found = 0;
    assert_non_null(output);
    while (fgets(line, sizeof line, output) != NULL) {
        if (strncmp(line, "core/names.c:", 13) == 0 || strncmp(line, "core/world.c:", 13) == 0) continue;
        print_error("%s", line);
        found++;
    }
    pclose(output);
    assert_int_equal(found, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floors), cmocka_unit_test(test_no_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
