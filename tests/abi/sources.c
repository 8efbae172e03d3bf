#include "abi/sources.h"

#include <dirent.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void visit_folder(const char *folder, void (*visit)(const char *path))
{
    char path[4096];
    snprintf(path, sizeof path, TUTTI_SOURCE_DIR "/%s", folder);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_type == DT_DIR)
            visit_folder(path, visit);
        else if (fnmatch("*.[ch]", entry->d_name, 0) == 0)
            visit(path);
    }
    closedir(directory);
}

void sources_visit(void (*visit)(const char *path))
{
    static const char *const folders[] = {"include", "core", "portable", "backends", "train", "tools", "examples"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) visit_folder(folders[i], visit);
}

void sources_visit_tests(void (*visit)(const char *path))
{
    visit_folder("tests", visit);
}
