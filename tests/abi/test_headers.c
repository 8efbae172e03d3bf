/* The headers compile alone and together, twice, as C11 to C23, GNU C11 and C++11 to C++20, with each installed
 * compiler and without pedantic warnings.  So do the shorthands tutti_view, tutti_with and TUTTI_CHECK, whose static
 * checks give a readable message. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *compiler, *language, *flags;
} ways[] = {
    {"gcc", "c", "-std=c11 -Wpedantic -Wstrict-prototypes"},
    {"gcc", "c", "-std=c17 -Wpedantic"},
    {"gcc", "c", "-std=c2x -Wpedantic"},
    {"gcc", "c", "-std=gnu11 -Wpedantic -Wmissing-prototypes"},
    {"g++", "c++", "-std=c++11 -Wpedantic"},
    {"g++", "c++", "-std=c++17 -Wpedantic"},
    {"g++", "c++", "-std=c++20 -Wpedantic"},
    {"clang", "c", "-std=c11 -Wpedantic"},
    {"clang", "c", "-std=c17 -Wpedantic"},
    {"clang", "c", "-std=c2x -Wpedantic"},
    {"clang", "c", "-std=gnu11 -Wpedantic"},
    {"clang++", "c++", "-std=c++11 -Wpedantic"},
    {"clang++", "c++", "-std=c++17 -Wpedantic"},
    {"clang++", "c++", "-std=c++20 -Wpedantic"},
};

/* True if text compiles, as far as `step` says.  Shows the compiler's messages. */
static bool compiles(const char *compiler, const char *language, const char *flags, const char *step, const char *text)
{
    char command[1024];
    snprintf(command, sizeof command,
             "%s -x %s %s -Wall -Wextra -Wconversion -Wshadow -Werror %s -I '" TUTTI_SOURCE_DIR "/include' -", compiler,
             language, flags, step);
    FILE *input = popen(command, "w");
    assert_non_null(input);
    fputs(text, input);
    int status = pclose(input);
    if (status != 0) print_error("%s\n%s\n", command, text);
    return status == 0;
}

static bool is_there(const char *program)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %s >/dev/null", program);
    return system(command) == 0;
}

/* Compiles text in each standard, in those of one language, or in those whose flags contain `standard`. */
static void everywhere_with(const char *language, const char *standard, const char *step, const char *text)
{
    int tried = 0, wrong = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (language != NULL && strcmp(ways[i].language, language) != 0) continue;
        if (strstr(ways[i].flags, standard) == NULL) continue;
        if (!is_there(ways[i].compiler)) continue;
        tried++;
        wrong += !compiles(ways[i].compiler, ways[i].language, ways[i].flags, step, text);
    }
    assert_int_equal(wrong, 0);
    assert_true(tried > 0);
}

static void everywhere(const char *language, const char *text)
{
    everywhere_with(language, "", "-fsyntax-only", text);
}

/* Checks that text does not compile, and that each compiler's message contains this part. */
static void nowhere(const char *language, const char *text, const char *part)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        static char said[65536];
        char command[2048];
        if (strcmp(ways[i].language, language) != 0 || !is_there(ways[i].compiler)) continue;
        snprintf(command, sizeof command, "printf '%s' | %s -x %s %s -fsyntax-only -I '%s/include' - 2>&1", text,
                 ways[i].compiler, language, ways[i].flags, TUTTI_SOURCE_DIR);
        FILE *output = popen(command, "r");
        assert_non_null(output);
        said[fread(said, 1, sizeof said - 1, output)] = '\0';
        if (pclose(output) == 0 || strstr(said, part) == NULL)
            fail_msg("%s %s: %s", ways[i].compiler, ways[i].flags, said);
    }
}

/* Compiles each header of a folder below include alone.  Appends to text a program that includes them.  Returns their
 * number. */
static int compile_each(const char *name, char *text, size_t size)
{
    char path[4096], one[512];
    int n = 0;
    snprintf(path, sizeof path, TUTTI_SOURCE_DIR "/include/%s", name);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *ending = strrchr(entry->d_name, '.'); /* test_wrapper compiles tutti.hpp */
        if (ending == NULL || strcmp(ending, ".h") != 0) continue;
        snprintf(one, sizeof one, "#include <%s/%s>\nextern int something;\n", name, entry->d_name);
#ifndef TUTTI_TEST_DLPACK
        if (strcmp(entry->d_name, "dlpack.h") == 0) continue; /* needs dmlc's header */
#endif
        everywhere(NULL, one);
        assert_true(strlen(text) + strlen(one) < size);
        strcat(text, one);
        n++;
    }
    closedir(folder);
    return n;
}

static void test_alone(void **state)
{
    char all[4096] = "", twice[8192];
    (void)state;
    assert_true(compile_each("tutti", all, sizeof all) >= 4);
    assert_true(compile_each("tutti/train", all, sizeof all) >= 1);
    snprintf(twice, sizeof twice, "%s%s", all, all);
    everywhere(NULL, twice);
}

static void test_c(void **state)
{
    (void)state;
    everywhere("c",
               "#include <tutti/tutti.h>\n"
               "#include <complex.h>\n"
               "int all(float *f, const double *d, long *l, const unsigned char *u, float _Complex *c, bool *b);\n"
               "int all(float *f, const double *d, long *l, const unsigned char *u, float _Complex *c, bool *b)\n"
               "{\n"
               "    tutti_work *work = NULL;\n"
               "    TUTTI_CHECK(tutti_all_reduce(tutti_view(f, 4), TUTTI_SUM, NULL));\n"
               "    TUTTI_CHECK(tutti_broadcast(tutti_view(d, 4), 0, tutti_with(.tag = 1)));\n"
               "    TUTTI_CHECK(tutti_all_reduce(tutti_view(l, 1), TUTTI_MAX, tutti_with(.async_op = &work)));\n"
               "    TUTTI_CHECK(tutti_send(tutti_view(u, 1), 0, tutti_with(.group_rank = true, .timeout_ms = 5)));\n"
               "    TUTTI_CHECK(tutti_all_reduce(tutti_view(c, 1), TUTTI_SUM, tutti_with(.factor = 0.5)));\n"
               "    TUTTI_CHECK(tutti_recv(tutti_view(b, 1), TUTTI_ANY_SOURCE, NULL));\n"
               "    _Static_assert(TUTTI_DTYPE_OF((short *)0) == TUTTI_INT16, \"\");\n"
               "    _Static_assert(TUTTI_DTYPE_OF((long *)0) == TUTTI_INT64, \"\");\n"
               "    _Static_assert(TUTTI_DTYPE_OF((const long long *)0) == TUTTI_INT64, \"\");\n"
               "    _Static_assert(TUTTI_DTYPE_OF((unsigned long *)0) == TUTTI_UINT64, \"\");\n"
               "    return tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);\n"
               "}\n");
    everywhere("c",
               "#include <tutti/tutti.h>\n"
               "int all(char *c, const char *k);\n"
               "int all(char *c, const char *k)\n"
               "{\n"
               "    char text[] = \"text\";\n"
               "    tutti_group *group = NULL;\n"
               "    TUTTI_CHECK(tutti_broadcast(tutti_view(c, 4), 0, tutti_with(.tag = 1, .group = NULL)));\n"
               "    TUTTI_CHECK(tutti_broadcast(tutti_view(text, 4), 0, &(tutti_opts){.tag = 1, .group = NULL}));\n"
               "    TUTTI_CHECK(tutti_new_group((int[]){0, 1}, 2, NULL, &group));\n"
               "    TUTTI_CHECK(tutti_init_process_group(\"tcp\", &(tutti_init_opts){.rank = 1, .world_size = 2}));\n"
               "    return tutti_send(tutti_view(k, 4), 0, NULL);\n"
               "}\n");
}

static void test_refused(void **state)
{
    (void)state;
    nowhere("c", "#include <tutti/tutti.h>\nint f(void *x) { return tutti_send(tutti_view(x, 1), 0, NULL); }\n",
            "tutti_view_knows_no_dtype_for_this_pointer_use_tutti_tensor_of");
    nowhere("c",
            "#include <tutti/tutti.h>\nstruct s { int i; };\n"
            "int f(struct s *x) { return tutti_send(tutti_view(x, 1), 0, NULL); }\n",
            "tutti_view_knows_no_dtype_for_this_pointer_use_tutti_tensor_of");
    nowhere("c++",
            "#include <tutti/tutti.h>\nstruct s { int i; };\n"
            "int f(struct s *x) { return tutti_send(tutti_view(x, 1), 0, nullptr); }\n",
            "tutti_view takes arithmetic types; use tutti_tensor_of");
    nowhere("c++", "#include <tutti/tutti.h>\nint f(void *x) { return tutti_send(tutti_view(x, 1), 0, nullptr); }\n",
            "tutti_view takes arithmetic types; use tutti_tensor_of");
}

/* A tensor of a buffer without values, which a call will fill, gives no warning.  GCC looks for these in the code that
 * it generates. */
static void test_new_buffers(void **state)
{
    (void)state;
    everywhere_with(
        NULL, "", "-O0 -S -o /dev/null",
        "#include <tutti/tutti.h>\n"
        "int all(int n);\n"
        "int all(int n)\n"
        "{\n"
        "    float f[4], *other = (float *)malloc((size_t)n * sizeof *other);\n"
        "    unsigned short half[2];\n"
        "    int result = tutti_recv(tutti_view(f, 4), 0, NULL) + tutti_recv(tutti_view(other, n), 0, NULL);\n"
        "    free(other);\n"
        "    return result + tutti_recv(tutti_tensor_of(half, 2, TUTTI_FLOAT16), 0, NULL);\n"
        "}\n");
}

/* C++ has options in place since it has designated initializers. */
static void test_cxx20(void **state)
{
    (void)state;
    everywhere_with("c++", "c++20", "-fsyntax-only",
                    "#include <tutti/tutti.h>\n"
                    "int all(float *f, char *c, tutti_group *group);\n"
                    "int all(float *f, char *c, tutti_group *group)\n"
                    "{\n"
                    "    tutti_work *work = nullptr;\n"
                    "    TUTTI_CHECK(tutti_all_reduce(tutti_view(f, 4), TUTTI_SUM, tutti_with(.group = group, "
                    ".async_op = &work)));\n"
                    "    TUTTI_CHECK(tutti_send(tutti_view(c, 4), 0, tutti_with(.tag = 1)));\n"
                    "    return tutti_barrier(tutti_with());\n"
                    "}\n");
}

static void test_cxx(void **state)
{
    (void)state;
    everywhere("c++", "#include <tutti/tutti.h>\n"
                      "int all(float *f, const double *d, long *l, const unsigned char *u, bool *b);\n"
                      "int all(float *f, const double *d, long *l, const unsigned char *u, bool *b)\n"
                      "{\n"
                      "    tutti_opts opts{};\n"
                      "    tutti_work *work = nullptr;\n"
                      "    opts.async_op = &work;\n"
                      "    TUTTI_CHECK(tutti_all_reduce(tutti_view(f, 4), TUTTI_SUM, &opts));\n"
                      "    TUTTI_CHECK(tutti_broadcast(tutti_view(d, 4), 0, nullptr));\n"
                      "    TUTTI_CHECK(tutti_send(tutti_view(u, 4), 0, nullptr));\n"
                      "    TUTTI_CHECK(tutti_send(tutti_view(b, 4), 0, nullptr));\n"
                      "    return tutti_all_reduce(tutti_view(l, 1), TUTTI_MAX, nullptr);\n"
                      "}\n");
}

/* A minimal plug-in, also compiled as C++. */
static void test_plugin(void **state)
{
    (void)state;
    everywhere("c",
               "#include <tutti/backend.h>\n"
               "extern const tutti_backend tutti_backend_v1;\n"
               "TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER, .name = \"x\"};\n"
               "int has(const tutti_backend *backend);\n"
               "int has(const tutti_backend *backend) { return TUTTI_HAS(backend, cancel) != 0; }\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone),      cmocka_unit_test(test_c),
                                       cmocka_unit_test(test_cxx),        cmocka_unit_test(test_plugin),
                                       cmocka_unit_test(test_refused),    cmocka_unit_test(test_cxx20),
                                       cmocka_unit_test(test_new_buffers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
