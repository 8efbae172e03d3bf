/* The layers: which folder may use which, by the includes of its files and the calls of its functions.  No files of the
 * core use each other in a circle. */
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/sources.h"

/* ---- folders ----------------------------------------------------------------------------------------------- */

/* A folder may use itself and the folders that its row names.  Each of these has an earlier row, so there is no circle.
 */
struct layer {
    const char *folder, *below;
};

static const struct layer core_layers[] = {
    {"portable", ""}, /* beside core: the calls of each operating system */
    {"base", "portable"},
    {"store", "base portable"},
    {"op", "base"},
    {"plan", "base"},
    {"coll", "plan op base"},
    {"plugin", "base"},
    {"tool", "plugin base"},
    {"stats", "base portable"},
    {"trace", "tool store base portable"},
    {"bootstrap", "store base portable"},
    {"state", "bootstrap plugin coll plan op base"},
    {"progress", "state tool stats coll plan op base portable"},
    {"diagnose", "progress state plan op base"},
    {"group", "diagnose progress state trace tool stats bootstrap plugin coll plan op store base"},
    {"dispatch", "group diagnose progress state tool stats coll plan op base"},
    {"api",
     "dispatch group diagnose progress state trace tool stats bootstrap plugin coll plan op store base portable"},
};

static const struct layer tcp_layers[] = {
    {"portable", ""},         {"base", ""},       {"net", "base portable"}, {"shm", "base"},
    {"shm/coll", "shm base"}, {"absent", "base"}, {"p2p", "base"},          {".", "p2p shm/coll shm absent net base"},
};

#define N(array) ((int)(sizeof(array) / sizeof *(array)))

static int wrong, seen;

/* ---- modules ----------------------------------------------------------------------------------------------- */

/* A module is a source file and the header of the same name.  It uses the modules whose headers it includes and whose
 * functions it calls.  Modules in a circle can be neither read nor tested one by one. */
enum { MODULES_MOST = 300 };

struct modules {
    const char *root; /* such as "core" */
    int n;
    char *name[MODULES_MOST];              /* path below the root, without its suffix */
    bool uses[MODULES_MOST][MODULES_MOST]; /* [from][to] */
    int towards[MODULES_MOST];             /* in a search: the next module towards its goal, or -1 */
};

static struct modules core_modules = {.root = "core"}, tcp_modules = {.root = "backends/tcp"};

static int find_module(struct modules *modules, const char *path)
{
    char name[256];
    const char *dot = strrchr(path, '.');
    snprintf(name, sizeof name, "%.*s", dot != NULL ? (int)(dot - path) : (int)strlen(path), path);
    for (int i = 0; i < modules->n; i++)
        if (strcmp(modules->name[i], name) == 0) return i;
    assert_true(modules->n < MODULES_MOST);
    modules->name[modules->n] = strdup(name);
    assert_non_null(modules->name[modules->n]);
    return modules->n++;
}

static void add_use(struct modules *modules, const char *from, const char *to)
{
    int user = find_module(modules, from), used = find_module(modules, to);
    if (user != used) modules->uses[user][used] = true;
}

/* Records that a file includes another one of its own folder. */
static void add_own_use(struct modules *modules, const char *path, const char *include)
{
    char target[512];
    const char *name = strrchr(path, '/');
    snprintf(target, sizeof target, "%.*s%s", name != NULL ? (int)(name + 1 - path) : 0, path, include);
    add_use(modules, path, target);
}

/* Finds shortest paths to a module, breadth first.  Returns the module's successor on a circle, or -1. */
static int find_circle(struct modules *modules, int goal)
{
    int queue[MODULES_MOST], n = 1;
    queue[0] = goal;
    for (int i = 0; i < modules->n; i++) modules->towards[i] = -1;
    for (int at = 0; at < n; at++)
        for (int i = 0; i < modules->n; i++) {
            if (!modules->uses[i][queue[at]] || modules->towards[i] >= 0) continue;
            modules->towards[i] = queue[at];
            if (i == goal) return modules->towards[goal];
            queue[n++] = i;
        }
    return -1;
}

static const char *suffix_of(const struct modules *modules, int module)
{
    char path[4096];
    snprintf(path, sizeof path, TUTTI_SOURCE_DIR "/%s/%s.c", modules->root, modules->name[module]);
    return access(path, R_OK) == 0 ? ".c" : ".h";
}

/* Prints a shortest circle through each module that is in one, unless a circle printed before contains it.  Returns
 * their number. */
static int print_circles(struct modules *modules)
{
    bool named[MODULES_MOST] = {false};
    int circles = 0;
    for (int i = 0; i < modules->n; i++) {
        int at = named[i] ? -1 : find_circle(modules, i);
        if (at < 0) continue;
        circles++;
        named[i] = true;
        print_message("%s: %s%s", modules->root, modules->name[i], suffix_of(modules, i));
        for (; at != i; at = modules->towards[at]) {
            named[at] = true;
            print_message(" -> %s%s", modules->name[at], suffix_of(modules, at));
        }
        print_message(" -> %s%s\n", modules->name[i], suffix_of(modules, i));
    }
    return circles;
}

static void free_modules(struct modules *modules)
{
    for (int i = 0; i < modules->n; i++) free(modules->name[i]);
    modules->n = 0;
}

/* ---- layers ------------------------------------------------------------------------------------------------ */

static int find_layer(const struct layer *layers, int n, const char *folder)
{
    for (int i = 0; i < n; i++)
        if (strcmp(layers[i].folder, folder) == 0) return i;
    return -1;
}

/* True if name is one of the words of list. */
static bool has_word(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at++)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

/* Extracts the folder of a path below its root: "shm/coll" from "shm/coll/store.c", "." from "tcp.c". */
static void folder_of(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');
    snprintf(folder, size, "%.*s", slash != NULL ? (int)(slash - path) : 1, slash != NULL ? path : ".");
}

/* Checks that path may use target.  Both are below the root of layers. */
static void check_use(const struct layer *layers, int n, const char *path, const char *target, const char *how)
{
    char from[256], to[256];
    add_use(layers == core_layers ? &core_modules : &tcp_modules, path, target);
    folder_of(path, from, sizeof from);
    folder_of(target, to, sizeof to);
    int layer = find_layer(layers, n, from);
    if (layer < 0) fail_msg("%s is in no layer", path);
    seen++;
    if (strcmp(from, to) == 0 || has_word(layers[layer].below, to)) return;
    print_error("%s %s %s; %s may use: %s\n", path, how, target, from, layers[layer].below);
    wrong++;
}

static void check_rows(const struct layer *layers, int n)
{
    for (int i = 0; i < n; i++) {
        char copy[256], *rest = copy;
        snprintf(copy, sizeof copy, "%s", layers[i].below);
        for (char *word; (word = strsep(&rest, " ")) != NULL;)
            if (word[0] != '\0' && (find_layer(layers, n, word) < 0 || find_layer(layers, n, word) >= i))
                fail_msg("the row of %s names %s, which is not below it", layers[i].folder, word);
    }
}

static void test_rows(void **state)
{
    (void)state;
    check_rows(core_layers, N(core_layers));
    check_rows(tcp_layers, N(tcp_layers));
}

/* ---- includes ---------------------------------------------------------------------------------------------- */

#define PUBLIC "<tutti/tutti.h> <tutti/types.h> <tutti/store.h> <tutti/dlpack.h>"
#define KIT "<tutti/backend.h> <tutti/match.h> <tutti/types.h> <tutti/store.h>" /* for plug-ins */

/* Headers of ours that files may include beyond their layer.  The first row that matches a file applies. */
static const struct rule {
    const char *files, *may;
} rules[] = {
    {"examples/my_backend/*", KIT},
    {"examples/minimal_backend/*", KIT},
    {"examples/*_tool/*", "<tutti/tool.h>"},
    {"examples/*", PUBLIC " <tutti/train/*>"},
    {"train/*", PUBLIC " <tutti/train/*>"}, /* what it lacks there, other programs lack too */
    {"tools/run/*", PUBLIC " common/* run/* portable/environment.h"},
    {"tools/*", PUBLIC " <tutti/stats.h> <tutti/trace.h> common/* bench/* run/* conformance/* info/* trace/*"},
    {"backends/nccl/*", KIT " cuda/*"},
    {"backends/tcp/*", KIT " tcp/* portable/*"},
    {"backends/*/*", KIT},
    /* algorithms are pure */
    {"core/coll/*", "<tutti/types.h> <tutti/backend.h> <tutti/tutti.h> */*"},
    {"core/plan/plan*", "<tutti/types.h> plan/*"},
    {"core/plan/*", "<tutti/types.h> <tutti/backend.h> */*"},
    {"core/op/*", "<tutti/types.h> <tutti/backend.h> <tutti/tutti.h> */*"},
    {"core/store/*", "<tutti/types.h> <tutti/store.h> */*"},
    {"core/*", "<tutti/*> */*"},
    {"portable/*", "portable/*"},
    /* the public headers build on each other */
    {"include/tutti/backend.h", "<tutti/op.h> <tutti/types.h> <tutti/stats.h> <tutti/store.h>"},
    {"include/tutti/match.h", "<tutti/backend.h>"},
    {"include/tutti/store.h", "<tutti/types.h>"},
    {"include/tutti/types.h", "<tutti/dtypes.h> <tutti/kinds.h>"},
    {"include/tutti/dtypes.h", ""},
    {"include/tutti/kinds.h", ""},
    {"include/tutti/tutti.h", "<tutti/types.h> <tutti/stats.h> <tutti/store.h> <tutti/sized.h>"},
    {"include/tutti/train/*", "<tutti/tutti.h> <tutti/train/*>"},
    {"include/tutti/trace.h", ""},
    {"include/tutti/*", "<tutti/types.h> <tutti/stats.h> <tutti/store.h>"},
};

/* True if one of the patterns in list, separated by blanks, matches name. */
static bool fits(const char *list, const char *name)
{
    char copy[512], *rest = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *pattern; (pattern = strsep(&rest, " ")) != NULL;)
        if (fnmatch(pattern, name, 0) == 0) return true;
    return false;
}

static bool exists(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, TUTTI_SOURCE_DIR "/%s/%s", folder, name);
    return stat(path, &info) == 0;
}

static void check_include(const char *path, const struct rule *rule, const char *include, char quote)
{
    char folder[4096], name[512];
    bool ours = quote == '"' || strncmp(include, "tutti/", 6) == 0;
    if (!ours) return; /* of the system, or of a vendor */
    folder_of(path, folder, sizeof folder);
    snprintf(name, sizeof name, quote == '"' ? "%s" : "<%s>", include);
    bool own = quote == '"' && exists(folder, include);
    if (own && strncmp(path, "core/", 5) == 0) add_own_use(&core_modules, path + 5, include);
    if (own && strncmp(path, "backends/tcp/", 13) == 0) add_own_use(&tcp_modules, path + 13, include);
    if (!own && !fits(rule->may, name)) {
        print_error("%s includes %s; it may include: %s\n", path, name, rule->may);
        wrong++;
    }
    if (quote != '"' || own) return;
    if (strncmp(path, "core/", 5) == 0) check_use(core_layers, N(core_layers), path + 5, include, "includes");
    if (strncmp(path, "backends/tcp/", 13) == 0)
        check_use(tcp_layers, N(tcp_layers), path + 13, strncmp(include, "tcp/", 4) == 0 ? include + 4 : include,
                  "includes");
}

static void check_file(const char *path)
{
    char full[4096], line[1024];
    const struct rule *rule = NULL;
    for (size_t i = 0; i < sizeof rules / sizeof *rules && rule == NULL; i++)
        if (fnmatch(rules[i].files, path, 0) == 0) rule = &rules[i];
    if (rule == NULL) fail_msg("no rule for %s", path);
    snprintf(full, sizeof full, TUTTI_SOURCE_DIR "/%s", path);
    FILE *file = fopen(full, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        char quote, include[512];
        if (sscanf(line, " # include %c%511[^\">]", &quote, include) == 2) check_include(path, rule, include, quote);
    }
    fclose(file);
}

static void test_includes(void **state)
{
    (void)state;
    wrong = seen = 0;
    sources_visit(check_file);
    assert_true(seen > 400);
    assert_int_equal(wrong, 0);
}

/* ---- calls ------------------------------------------------------------------------------------------------- */

struct symbol {
    char *name, *file;
};

struct symbols {
    int n;
    struct symbol *all;
};

static void add_symbol(struct symbols *symbols, const char *name, const char *file)
{
    if (symbols->n % 1024 == 0)
        symbols->all = realloc(symbols->all, ((size_t)symbols->n + 1024) * sizeof *symbols->all);
    assert_non_null(symbols->all);
    symbols->all[symbols->n++] = (struct symbol){strdup(name), strdup(file)};
}

static void free_symbols(struct symbols *symbols)
{
    for (int i = 0; i < symbols->n; i++) {
        free(symbols->all[i].name);
        free(symbols->all[i].file);
    }
    free(symbols->all);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct symbol *)a)->name, ((const struct symbol *)b)->name);
}

/* Reads the global symbols that the objects below a folder of the build define and use, as nm lists them: "path.o:
 * address T name", "path.o: U name".  Ignores objects whose source no longer exists. */
static void read_symbols(const char *objects, const char *sources, struct symbols *defined, struct symbols *used)
{
    char command[4096], line[4096];
    snprintf(command, sizeof command, "cd '%s' && find . -name '*.c.o' -exec nm -A -g {} +", objects);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(line, sizeof line, output) != NULL) {
        char name[512], type;
        char *end = strstr(line, ".o:");
        if (end == NULL || strncmp(line, "./", 2) != 0) continue;
        *end = '\0';
        const char *rest = end + 3;
        if (sscanf(rest, " %*x %c %511s", &type, name) != 2 && sscanf(rest, " %c %511s", &type, name) != 2) continue;
        if (exists(sources, line + 2)) add_symbol(type == 'U' ? used : defined, name, line + 2);
    }
    assert_int_equal(pclose(output), 0);
}

/* Checks the calls between folders, given the build's folders of objects, up to NULL. */
static void check_calls(const char *const *objects, const char *sources, const struct layer *layers, int n)
{
    struct symbols defined = {0, NULL}, used = {0, NULL};
    for (; *objects != NULL; objects++) read_symbols(*objects, sources, &defined, &used);
    qsort(defined.all, (size_t)defined.n, sizeof *defined.all, by_name);
    for (int i = 0; i < used.n; i++) {
        const struct symbol *found =
            bsearch(&used.all[i], defined.all, (size_t)defined.n, sizeof *defined.all, by_name);
        if (found != NULL) check_use(layers, n, used.all[i].file, found->file, "calls a function of");
    }
    free_symbols(&defined);
    free_symbols(&used);
}

static void test_calls(void **state)
{
    (void)state;
    wrong = seen = 0;
    const char *const core[] = {TUTTI_BUILD_DIR "/core/CMakeFiles/tutti_objects.dir", NULL};
    const char *const tcp[] = {TUTTI_BUILD_DIR "/backends/CMakeFiles/tutti_shm.dir/tcp",
                               TUTTI_BUILD_DIR "/backends/CMakeFiles/tutti_tcp.dir/tcp", NULL};
    check_calls(core, "core", core_layers, N(core_layers));
    assert_true(seen > 400);
    if (access(tcp[1], R_OK) == 0) /* otherwise the backend was not built */
        check_calls(tcp, "backends/tcp", tcp_layers, N(tcp_layers));
    assert_int_equal(wrong, 0);
}

/* No two modules of the core use each other, directly or through others.  Needs the includes and the calls. */
static void test_circles(void **state)
{
    (void)state;
    print_message("backends/tcp: %d circles of files\n", print_circles(&tcp_modules));
    assert_int_equal(print_circles(&core_modules), 0);
    free_modules(&tcp_modules);
    free_modules(&core_modules);
}

/* The core names no backend, except in the meaning of "auto" and in the device that a name implies. */
static void test_no_names(void **state)
{
    (void)state;
    char line[1024];
    FILE *output = popen("cd '" TUTTI_SOURCE_DIR "' && grep -rnE '\"(tcp|mpi|nccl)\"' core --include=*.c", "r");
    int found = 0;
    assert_non_null(output);
    while (fgets(line, sizeof line, output) != NULL) {
        if (fnmatch("core/plugin/backend_spec.c:*", line, 0) == 0) continue;
        print_error("%s", line);
        found++;
    }
    pclose(output);
    assert_int_equal(found, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_includes),
                                       cmocka_unit_test(test_calls), cmocka_unit_test(test_circles),
                                       cmocka_unit_test(test_no_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
