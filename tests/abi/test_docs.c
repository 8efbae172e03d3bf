/* The documentation names files that exist, its links lead somewhere, and its lines are at most 110 columns wide. */
#include <dirent.h>
#include <fnmatch.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { COLUMNS_MOST = 110, NAMES_MOST = 4096, LINE_MOST = 4096 };

static char *names[NAMES_MOST]; /* base names of the sources */
static int n_names, wrong, pages;

/* Others' files, and names that stand for any. */
static const char *const known[] = {"cuda.h", "nccl.h", "rxm_conn.c", "test_NAME.c", "NAME.c"};

static int add_name(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status;
    if (type == FTW_F && n_names < NAMES_MOST) names[n_names++] = strdup(path + at->base);
    return 0;
}

static void complain(const char *page, int line, const char *what, const char *about)
{
    fprintf(stderr, "%s:%d: %s: %s\n", page, line, what, about);
    wrong++;
}

static bool is_there(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0) return true;
    for (int i = 0; i < n_names; i++)
        if (fnmatch(name, names[i], 0) == 0) return true;
    return false;
}

/* `board*.c`, `core/engine.c`, `wire.[ch]`: what stands between backquotes and ends as a source does. */
static void check_files(const char *page, int number, const char *line)
{
    char word[LINE_MOST];
    for (const char *at = line; (at = strchr(at, '`')) != NULL; at++) {
        size_t length = strcspn(++at, "`");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        at += length;
        const char *base = strrchr(word, '/') != NULL ? strrchr(word, '/') + 1 : word;
        bool source =
            fnmatch("*.[ch]", base, 0) == 0 || fnmatch("*.sh", base, 0) == 0 || fnmatch("*.\\[ch\\]", base, 0) == 0;
        if (source && strpbrk(base, " <>\"") == NULL && !is_there(base)) complain(page, number, "no such file", word);
        if (*at == '\0') return;
    }
}

static void check_links(const char *folder, const char *page, int number, const char *line)
{
    char target[LINE_MOST], path[2 * LINE_MOST];
    for (const char *at = line; (at = strstr(at, "](")) != NULL;) {
        at += 2;
        snprintf(target, sizeof target, "%.*s", (int)strcspn(at, "#)"), at);
        if (target[0] == '\0' || strncmp(target, "http", 4) == 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, target);
        if (access(path, F_OK) != 0) complain(page, number, "the link leads nowhere", target);
    }
}

/* Commands are indented and stay whole. */
static void check_width(const char *page, int number, const char *line)
{
    int columns = 0;
    for (const char *at = line; *at != '\0'; at++) columns += ((unsigned char)*at & 0xC0) != 0x80;
    if (columns > COLUMNS_MOST && strncmp(line, "    ", 4) != 0) complain(page, number, "too wide", line);
}

static void check_page(const char *folder, const char *name)
{
    char page[LINE_MOST], line[LINE_MOST];
    snprintf(page, sizeof page, "%s/%s", folder, name);
    FILE *file = fopen(page, "r");
    assert_non_null(file);
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        line[strcspn(line, "\n")] = '\0';
        check_files(page, number, line);
        check_links(folder, page, number, line);
        check_width(page, number, line);
    }
    fclose(file);
    pages++;
}

static void check_folder(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    assert_non_null(listing);
    while ((entry = readdir(listing)) != NULL)
        if (fnmatch("*.md", entry->d_name, 0) == 0) check_page(folder, entry->d_name);
    closedir(listing);
}

static void test_pages(void **state)
{
    static const char *const sources[] = {"core", "backends", "include", "tools", "examples", "tests"};
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char path[LINE_MOST];
        snprintf(path, sizeof path, "%s/%s", TUTTI_SOURCE_DIR, sources[i]);
        assert_int_equal(nftw(path, add_name, 16, FTW_PHYS), 0);
    }
    check_folder(TUTTI_SOURCE_DIR);
    check_folder(TUTTI_SOURCE_DIR "/docs");
    check_folder(TUTTI_SOURCE_DIR "/docs/benchmarks");
    assert_true(pages > 10 && n_names > 300 && n_names < NAMES_MOST);
    assert_int_equal(wrong, 0);
    while (n_names > 0) free(names[--n_names]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
