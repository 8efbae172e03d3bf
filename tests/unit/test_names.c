/* Backend strings: their meaning, how they are printed, and the reasons why some are refused.  base/text.h: texts are
 * cut where their memory ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/text.h"
#include "plugin/backend_spec.h"

/* Formats names as "cpu:a|b,cuda:c". */
static const char *written(const struct backend_spec *names)
{
    static char text[4096];
    text[0] = '\0';
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < names->n[device]; i++) {
            strcat(text, i > 0 ? "|" : device == 0 ? "cpu:" : text[0] != '\0' ? ",cuda:" : "cuda:");
            strcat(text, names->name[device][i]);
        }
    return text;
}

static void test_meaning(void **state)
{
    static const struct {
        const char *text, *meaning;
        bool by_device, automatic;
    } rows[] = {
        {NULL, "cpu:tcp|mpi", false, true},
        {"auto", "cpu:tcp|mpi", false, true},
        {"AUTO", "cpu:tcp|mpi", false, true},
        {"tcp", "cpu:tcp", false, false},
        {"TCP", "cpu:tcp", false, false},
        {"tcp|mpi", "cpu:tcp|mpi", false, false},
        {"a|b|c", "cpu:a|b|c", false, false},
        {"cpu:tcp", "cpu:tcp", true, false},
        {"CPU:Tcp,Cuda:NCCL", "cpu:tcp,cuda:nccl", true, false},
        {"cuda:nccl,cpu:tcp", "cpu:tcp,cuda:nccl", true, false},
        {"cuda:nccl", "cuda:nccl", true, false},
        {"cpu:tcp|mpi,cuda:nccl|tcp", "cpu:tcp|mpi,cuda:nccl|tcp", true, false},
        {"cpu:x,cuda:x", "cpu:x,cuda:x", true, false},
        {"/Some/Path/libtutti_X.so", "cpu:/Some/Path/libtutti_X.so", false, false},
        {"cpu:/A/B.so|TCP", "cpu:/A/B.so|tcp", true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct backend_spec names;
        memset(&names, 0x55, sizeof names);
        assert_int_equal(backend_spec_parse(rows[i].text, &names), TUTTI_OK);
        assert_string_equal(written(&names), rows[i].meaning);
        assert_int_equal(names.by_device, rows[i].by_device);
        assert_int_equal(names.automatic, rows[i].automatic);
    }
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"", "a name is empty"},
        {"tcp|", "a name is empty"},
        {"|tcp", "a name is empty"},
        {"tcp||mpi", "a name is empty"},
        {"cpu:", "a name is empty"},
        {"cpu:tcp,cuda:", "a name is empty"},
        {"tcp,nccl", "\"tcp\" has no device"},
        {"cpu:tcp,nccl", "\"nccl\" has no device"},
        {"cpu:tcp,", "has no device"},
        {",", "has no device"},
        {"tpu:tcp", "unknown device \"tpu\""},
        {":tcp", "unknown device \"\""},
        {"cpuu:tcp", "unknown device \"cpuu\""},
        {"cpu:tcp,cpu:mpi", "device \"cpu\" is listed twice"},
        {"tcp|tcp", "\"tcp\" is listed twice"},
        {"tcp|TCP", "\"tcp\" is listed twice"},
        {"a|b|c|d", "more than 3 names"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct backend_spec names;
        assert_int_equal(backend_spec_parse(rows[i].text, &names), TUTTI_ERR_INVALID_ARGUMENT);
        if (strstr(error_text(), rows[i].reason) == NULL)
            fail_msg("\"%s\": \"%s\" is not in: %s", rows[i].text, rows[i].reason, error_text());
        if (strstr(error_text(), rows[i].text) == NULL) fail_msg("\"%s\" is not in: %s", rows[i].text, error_text());
    }
}

/* Names at their limit and beyond.  Nothing is written beyond the struct. */
static void test_lengths(void **state)
{
    struct {
        struct backend_spec names;
        char after[16];
    } guarded;
    char text[SPEC_TEXT_MAX + 8];
    (void)state;
    memset(guarded.after, 0x55, sizeof guarded.after);
    for (size_t length = SPEC_NAME_MAX - 2; length < SPEC_NAME_MAX + 2; length++) {
        memset(text, 'a', length);
        text[length] = '\0';
        bool fits = length < SPEC_NAME_MAX;
        assert_int_equal(backend_spec_parse(text, &guarded.names), fits ? TUTTI_OK : TUTTI_ERR_INVALID_ARGUMENT);
        if (fits)
            assert_string_equal(guarded.names.name[0][0], text);
        else
            assert_non_null(strstr(error_text(), "longer than 255"));
    }
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(backend_spec_parse(text, &guarded.names), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text(), "longer than 1023"));
    for (size_t i = 0; i < sizeof guarded.after; i++) assert_int_equal(guarded.after[i], 0x55);
}

static void test_prints(void **state)
{
    static const char *const texts[] = {"auto", "tcp", "tcp|mpi", "cpu:tcp", "cuda:nccl|tcp", "cpu:tcp|mpi,cuda:nccl"};
    struct backend_spec names;
    char text[SPEC_TEXT_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(backend_spec_parse(texts[i], &names), TUTTI_OK);
        backend_spec_print(&names, text, sizeof text);
        assert_string_equal(text, texts[i]);
    }
    backend_spec_print(&names, text, 10);
    assert_string_equal(text, "cpu:tcp|m");
}

static void test_texts(void **state)
{
    char text[12];
    (void)state;
    for (size_t size = 1; size <= sizeof text; size++) {
        memset(text, 'x', sizeof text);
        struct text made = text_in(text, size);
        text_add_some(&made, "abcdef", 3);
        text_add(&made, "/");
        text_add_hex(&made, 0x1a2b3c, 4);
        text_add(&made, "fgh");
        assert_int_equal(strlen(text), size - 1);
        assert_memory_equal(text, "abc/2b3cfgh", size - 1);
        for (size_t i = size; i < sizeof text; i++) assert_int_equal(text[i], 'x');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meaning), cmocka_unit_test(test_refusals), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_prints),  cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
