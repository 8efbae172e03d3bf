/* Sizes that keep the sources readable: lines of a file, lines of a function, parameters of a function.
 *
 * The scanner relies on the layout of clang-format: the body of a function is between a "{" and a "}" in column 0, and
 * its signature is the lines above, up to a blank line, a comment or the end of a block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "abi/sources.h"

enum { FILE_LINES = 500, FUNCTION_LINES = 60, PARAMETERS = 7, SIGNATURE_MAX = 1024 };

/* Files and functions that may be larger, with the reason. */
static struct exception {
    const char *path, *function; /* function NULL: the file's lines */
    const char *reason;
    bool needed;
} exceptions[] = {
    {"include/tutti/tutti.h", NULL, "the interface for programs is one header", false},
    {"include/tutti/backend.h", NULL, "the interface for plug-ins is one header", false},
    {"core/group/host_store.c", "host_store_gather", "the signature of tutti_host.store_gather", false},
    {"core/store/store.c", "tutti_store_compare_set", "public interface", false},
    {"core/store/store.c", "store_offer", "compare_set with a timeout", false},
    {"core/store/store.c", "call_one_key", "one call to a store, in and out", false},
    {"tests/conformance/shared_store.c", "shared_store_gather", "the signature of tutti_host.store_gather", false},
    {"tests/conformance/test_tcp_backend.c", "gather_nothing", "the signature of tutti_host.store_gather", false},
    {"tests/fakes/fake_calls.c", "ncclReduce", "NCCL's interface", false},
};

static int wrong, files, functions;

static void refuse(const char *path, const char *function, int found, int most, const char *what)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++) {
        struct exception *known = &exceptions[i];
        if (strcmp(known->path, path) != 0 || (known->function == NULL) != (function == NULL)) continue;
        if (function != NULL && strcmp(known->function, function) != 0) continue;
        known->needed = true;
        return;
    }
    print_error("%s%s%s has %d %s; at most %d\n", path, function != NULL ? ": " : "", function != NULL ? function : "",
                found, what, most);
    wrong++;
}

/* Copies the word before the first "(" of a signature.  Returns the parenthesis, or NULL. */
static const char *find_name(const char *signature, char *name, size_t size)
{
    const char *open = strchr(signature, '(');
    const char *start = open;
    if (open == NULL) return NULL;
    while (start > signature && (start[-1] == '_' || (start[-1] >= '0' && start[-1] <= '9') ||
                                 (start[-1] >= 'a' && start[-1] <= 'z') || (start[-1] >= 'A' && start[-1] <= 'Z')))
        start--;
    snprintf(name, size, "%.*s", (int)(open - start), start);
    return open;
}

static int count_parameters(const char *open)
{
    int depth = 0, n = 1;
    if (strncmp(open, "(void)", 6) == 0) return 0;
    for (const char *at = open; *at != '\0'; at++) {
        depth += (*at == '(') - (*at == ')');
        n += *at == ',' && depth == 1;
        if (depth == 0) break;
    }
    return n;
}

static bool ends_signature(const char *line)
{
    return line[0] == '\n' || line[0] == '}' || line[0] == '#' || line[0] == '/' || strncmp(line, " *", 2) == 0;
}

static void check_function(const char *path, const char *signature, int lines)
{
    char name[256];
    const char *open = find_name(signature, name, sizeof name);
    if (open == NULL) return;
    functions++;
    if (lines > FUNCTION_LINES) refuse(path, name, lines, FUNCTION_LINES, "lines");
    if (count_parameters(open) > PARAMETERS) refuse(path, name, count_parameters(open), PARAMETERS, "parameters");
}

static void check_file(const char *path)
{
    char full[4096], line[1024], signature[SIGNATURE_MAX] = "";
    int lines = 0, start = 0;
    bool in_body = false;
    snprintf(full, sizeof full, TUTTI_SOURCE_DIR "/%s", path);
    FILE *file = fopen(full, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        lines++;
        if (in_body) {
            if (line[0] != '}') continue;
            check_function(path, signature, lines - start + 1);
            in_body = false;
            signature[0] = '\0';
        } else if (strcmp(line, "{\n") == 0) {
            in_body = true;
        } else if (ends_signature(line)) {
            signature[0] = '\0';
        } else {
            if (signature[0] == '\0') start = lines;
            strncat(signature, line, sizeof signature - strlen(signature) - 1);
        }
    }
    fclose(file);
    files++;
    if (lines > FILE_LINES) refuse(path, NULL, lines, FILE_LINES, "lines");
}

static void test_sizes(void **state)
{
    (void)state;
    sources_visit(check_file);
    sources_visit_tests(check_file);
    assert_true(files > 400);
    assert_true(functions > 3000);
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++) {
        if (exceptions[i].needed) continue;
        print_error("%s%s%s is small enough: remove it from the exceptions\n", exceptions[i].path,
                    exceptions[i].function != NULL ? ": " : "",
                    exceptions[i].function != NULL ? exceptions[i].function : "");
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
