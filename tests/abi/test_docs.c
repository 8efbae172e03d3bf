/* The documentation names files and tests that exist, its links lead to pages and headings that exist, and its lines
 * are at most 100 columns wide. */
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

enum { COLUMNS_MOST = 100, SPEC_MOST = 4096, LINE_MOST = 4096 };

static struct source {
    char *path;
    const char *name; /* the last part of path */
} sources[SPEC_MOST];
static int n_sources, wrong, pages, cases;

/* Files of other projects, and patterns that stand for any name. */
static const char *const known[] = {"cuda.h", "nccl.h", "rxm_conn.c", "test_NAME.c", "NAME.c"};

static int add_source(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status;
    if (type != FTW_F || n_sources == SPEC_MOST) return 0;
    struct source *source = &sources[n_sources++];
    source->path = strdup(path);
    source->name = source->path + at->base;
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
    for (int i = 0; i < n_sources; i++)
        if (fnmatch(name, sources[i].name, 0) == 0) return true;
    return false;
}

/* True if a file of this name contains the text. */
static bool holds(const char *name, const char *text)
{
    char line[LINE_MOST];
    bool found = false;
    for (int i = 0; i < n_sources && !found; i++) {
        FILE *file = fnmatch(name, sources[i].name, 0) == 0 ? fopen(sources[i].path, "r") : NULL;
        while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) found = strstr(line, text) != NULL;
        if (file != NULL) fclose(file);
    }
    return found;
}

/* Checks words in backquotes that end like a source, such as `board*.c`, `core/progress/engine.c` or `wire.[ch]`. */
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
        if (access(path, F_OK) != 0) complain(page, number, "broken link", target);
    }
}

/* Commands are indented and may be wider. */
static void check_width(const char *page, int number, const char *line)
{
    int columns = 0;
    for (const char *at = line; *at != '\0'; at++) columns += ((unsigned char)*at & 0xC0) != 0x80;
    if (columns > COLUMNS_MOST && strncmp(line, "    ", 4) != 0) complain(page, number, "too wide", line);
}

/* Checks the tests at the end of a row of docs/faults.md: "faults_peers/slow, stopped, hosts/loss".  A star matches any
 * end. */
static void check_tests(const char *page, int number, char *cell)
{
    char program[256] = "";
    for (char *token, *rest = cell; (token = strsep(&rest, ",;")) != NULL;) {
        char file[320], *slash;
        token += strspn(token, " ");
        token[strcspn(token, " *(:|")] = '\0';
        if (token[0] == '\0' || (token[0] >= '0' && token[0] <= '9')) continue;
        if ((slash = strchr(token, '/')) != NULL) *slash = '\0';
        snprintf(file, sizeof file, "test_%s.c", token);
        bool names_program = slash != NULL || is_there(file);
        if (names_program) snprintf(program, sizeof program, "%s", strcmp(token, "hosts") == 0 ? "*.sh" : file);
        if (!is_there(program)) complain(page, number, "no such test", token);
        const char *one = names_program ? (slash != NULL ? slash + 1 : NULL) : token;
        if (one != NULL && !holds(program, one)) complain(page, number, "no such case", one);
        cases++;
    }
}

static void check_row(const char *page, int number, const char *line)
{
    char copy[LINE_MOST];
    if (line[0] != '|' || line[1] != ' ' || line[2] < '0' || line[2] > '9') return;
    snprintf(copy, sizeof copy, "%.*s", (int)strlen(line) - 1, line); /* without the bar at the end */
    char *bar = strrchr(copy, '|');
    if (bar != NULL) check_tests(page, number, bar + 1);
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
        if (strcmp(name, "faults.md") == 0) check_row(page, number, line);
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
    static const char *const folders[] = {"core",  "portable", "backends", "train", "include",
                                          "tools", "examples", "tests",    "docs"};
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[LINE_MOST];
        snprintf(path, sizeof path, "%s/%s", TUTTI_SOURCE_DIR, folders[i]);
        assert_int_equal(nftw(path, add_source, 16, FTW_PHYS), 0);
    }
    check_folder(TUTTI_SOURCE_DIR);
    check_folder(TUTTI_SOURCE_DIR "/docs");
    check_folder(TUTTI_SOURCE_DIR "/docs/benchmarks");
    assert_true(pages > 10 && cases > 40 && n_sources > 300 && n_sources < SPEC_MOST);
    assert_int_equal(wrong, 0);
    while (n_sources > 0) free(sources[--n_sources].path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
