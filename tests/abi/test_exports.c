/* The exports of the shared objects. libtutti.so exports the functions of the public headers as listed in exports.txt.
 * A plug-in exports its table, and uses no symbol of Tutti's. */
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 512, LENGTH = 96 };

struct symbols {
    char name[MOST][LENGTH];
    int n;
};

static void add(struct symbols *symbols, const char *name, size_t length)
{
    assert_true(symbols->n < MOST && length < LENGTH);
    snprintf(symbols->name[symbols->n++], LENGTH, "%.*s", (int)length, name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void sort(struct symbols *symbols)
{
    qsort(symbols->name, (size_t)symbols->n, LENGTH, by_name);
}

/* Prints the symbols that are in one set and not in the other. */
static void equal(const struct symbols *a, const char *in_a, const struct symbols *b, const char *in_b)
{
    int i = 0, k = 0, wrong = 0;
    while (i < a->n || k < b->n) {
        int order = i == a->n ? 1 : k == b->n ? -1 : strcmp(a->name[i], b->name[k]);
        if (order < 0) print_error("%s is %s, but not %s\n", a->name[i], in_a, in_b);
        if (order > 0) print_error("%s is %s, but not %s\n", b->name[k], in_b, in_a);
        wrong += order != 0;
        i += order <= 0;
        k += order >= 0;
    }
    assert_int_equal(wrong, 0);
}

/* Returns the defined, or the undefined, dynamic symbols of an object, without versions. */
static void read_object(const char *path, const char *which, struct symbols *symbols)
{
    char command[4200], line[512];
    symbols->n = 0;
    snprintf(command, sizeof command, "nm -D %s '%s'", which, path);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(line, sizeof line, output) != NULL) {
        char kind = 0, name[256] = "";
        if (sscanf(line, "%*x %c %255s", &kind, name) != 2 && sscanf(line, " %c %255s", &kind, name) != 2) continue;
        if (kind == 'A') continue; /* the name of a version */
        add(symbols, name, strcspn(name, "@"));
    }
    assert_int_equal(pclose(output), 0);
    sort(symbols);
}

/* Returns the names that follow TUTTI_API in a header. */
static void read_header(const char *path, struct symbols *symbols)
{
    static char text[200000];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    for (const char *at = text; (at = strstr(at, "TUTTI_API ")) != NULL; at++) {
        if (at > text && at[-1] != '\n') continue; /* the function's definition */
        const char *end = strchr(at, '(');
        assert_non_null(end);
        const char *begin = end;
        while (isalnum((unsigned char)begin[-1]) || begin[-1] == '_') begin--;
        add(symbols, begin, (size_t)(end - begin));
    }
}

static void read_list(const char *path, struct symbols *symbols)
{
    char line[512];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    symbols->n = 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (line[0] != '#' && line[0] != '\n') add(symbols, line, strcspn(line, "\n"));
    fclose(file);
    sort(symbols);
}

static void test_library(void **state)
{
    static struct symbols object, headers, list;
    (void)state;
    read_object(TUTTI_BUILD_DIR "/lib/libtutti.so", "--defined-only", &object);
    read_header(TUTTI_SOURCE_DIR "/include/tutti/tutti.h", &headers);
    read_header(TUTTI_SOURCE_DIR "/include/tutti/sized.h", &headers);
    read_header(TUTTI_SOURCE_DIR "/include/tutti/store.h", &headers);
    read_header(TUTTI_SOURCE_DIR "/include/tutti/tool.h", &headers);
    sort(&headers);
    read_list(TUTTI_SOURCE_DIR "/tests/abi/exports.txt", &list);
    assert_true(object.n > 50);
    equal(&object, "exported by libtutti.so", &headers, "declared in a public header");
    equal(&headers, "declared in a public header", &list, "in tests/abi/exports.txt");
}

/* Checks that libtutti_train.so exports what the headers in tutti/train declare, as listed. */
static void test_train(void **state)
{
    static struct symbols object, headers, list;
    (void)state;
    DIR *folder = opendir(TUTTI_SOURCE_DIR "/include/tutti/train");
    assert_non_null(folder);
    headers.n = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, TUTTI_SOURCE_DIR "/include/tutti/train/%s", entry->d_name);
        read_header(path, &headers);
    }
    closedir(folder);
    sort(&headers);
    read_object(TUTTI_BUILD_DIR "/lib/libtutti_train.so", "--defined-only", &object);
    read_list(TUTTI_SOURCE_DIR "/tests/abi/exports_train.txt", &list);
    equal(&object, "exported by libtutti_train.so", &headers, "declared in a header of tutti/train");
    equal(&headers, "declared in a header of tutti/train", &list, "in tests/abi/exports_train.txt");
}

/* Checks every plug-in that was built. */
static void test_plugins(void **state)
{
    static struct symbols symbols;
    DIR *folder = opendir(TUTTI_BACKENDS_DIR);
    (void)state;
    if (folder == NULL) skip(); /* no backend could be built here */
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[4096];
        if (strstr(entry->d_name, ".so") == NULL) continue;
        snprintf(path, sizeof path, "%s/%s", TUTTI_BACKENDS_DIR, entry->d_name);
        read_object(path, "--defined-only", &symbols);
        if (symbols.n != 1 || strcmp(symbols.name[0], "tutti_backend_v1") != 0) {
            for (int i = 0; i < symbols.n; i++) print_error("%s exports %s\n", path, symbols.name[i]);
            fail_msg("%s exports other symbols than tutti_backend_v1", path);
        }
        read_object(path, "--undefined-only", &symbols);
        for (int i = 0; i < symbols.n; i++)
            if (strncmp(symbols.name[i], "tutti_", 6) == 0) fail_msg("%s needs %s", path, symbols.name[i]);
        char command[4300];
        snprintf(command, sizeof command, "readelf -d '%s' | grep -q 'NEEDED.*libtutti'", path);
        if (system(command) == 0) fail_msg("%s links to a library of Tutti's", path);
    }
    closedir(folder);
}

/* A language runtime unloads its plug-in, which links to the library.  The library's code must stay, because its
 * threads still run. */
static void test_stays_loaded(void **state)
{
    const char *path = TUTTI_BUILD_DIR "/lib/libtutti.so";
    (void)state;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_msg("%s", dlerror());
    assert_int_equal(dlclose(library), 0);
    assert_non_null(dlopen(path, RTLD_NOW | RTLD_NOLOAD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_library), cmocka_unit_test(test_train),
                                       cmocka_unit_test(test_plugins), cmocka_unit_test(test_stays_loaded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
