/* The command lines of all tools: --help, --version, errors, and completion in shells. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <tutti/tutti.h>

#include "text.h"

static const char *const tools[] = {"tutti-run",         "tutti-bench",       "tutti-info",
                                    "tutti-conformance", "tutti-store-bench", "tutti-trace"};

enum { TOOLS = sizeof tools / sizeof *tools };

static char text[1 << 16];

/* Runs a shell command on the built tools.  Returns its exit status, with stdout and stderr in `text`. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int run(const char *format, ...)
{
    char command[4096];
    int used = snprintf(command, sizeof command, "{ PATH=%s/bin:$PATH; unset RANK; ", TUTTI_BUILD_DIR);
    va_list args;
    va_start(args, format);
    used += vsnprintf(command + used, sizeof command - (size_t)used, format, args);
    va_end(args);
    snprintf(command + used, sizeof command - (size_t)used, "; } 2>&1");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void has(const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("no \"%s\" in: %s", part, text);
}

static void test_help(void **state)
{
    (void)state;
    for (int i = 0; i < TOOLS; i++) {
        assert_int_equal(run("%s --help", tools[i]), 0);
        assert_memory_equal(text, "usage: tutti-", 13);
        has("-h, --help ");
        has("--version ");
        has("--completion SHELL ");
        assert_int_equal(run("%s -h | grep -E '^.{121}'", tools[i]), 1); /* no line is longer */
        assert_int_equal(run("%s --version", tools[i]), 0);
        char version[64];
        snprintf(version, sizeof version, "%s %s\n", tools[i], tutti_version());
        assert_string_equal(text, version);
    }
}

static void test_errors(void **state)
{
    (void)state;
    for (int i = 0; i < TOOLS; i++) {
        assert_int_equal(run("%s --versoin", tools[i]), 2);
        has("unknown option --versoin; did you mean --version?");
        assert_int_equal(text_count(text, "\n"), 1);
        assert_int_equal(run("%s --frobnicate", tools[i]), 2);
        has("unknown option --frobnicate (");
        assert_int_equal(run("%s -Z", tools[i]), 2);
        has("unknown option -Z (");
        assert_int_equal(run("%s --version=3", tools[i]), 2);
        has("--version takes no value");
        assert_int_equal(run("%s --completion", tools[i]), 2);
        has("--completion needs a value");
        assert_int_equal(run("%s --completion csh", tools[i]), 2);
        has("--completion takes bash, zsh or fish, not \"csh\"");
    }
    assert_int_equal(run("tutti-run --m true"), 2);
    has("--m is the beginning of several options: ");
    has("--mpi");
    assert_int_equal(run("tutti-run --bnid core true"), 2);
    has("did you mean --bind?");
    assert_int_equal(run("tutti-trace reprot x"), 2);
    has("did you mean report?");
    assert_int_equal(run("tutti-trace report --sgv x y"), 2);
    has("did you mean --svg?");
    assert_int_equal(run("tutti-info --json=x"), 2);
    assert_int_equal(run("tutti-store-bench 3 x"), 2);
    has("--processes takes a number from 1 to 64, not \"x\"");
    assert_int_equal(run("tutti-store-bench 3 4"), 2);
    has("there are fewer clients (3) than processes (4)");
    assert_int_equal(run("tutti-bench x --reduce_op"), 2); /* an underscore, also after other arguments */
    has("--reduce-op needs a value");
    assert_int_equal(run("tutti-info --watch 1 --interval 0"), 2);
    has("--interval takes a number from 0.01 to 3600, not \"0\"");
}

/* Colours are for terminals alone, and NO_COLOR switches them off. */
static void test_colours(void **state)
{
    static const char tool[] = "TERM=xterm script -qec 'tutti-info' /dev/null";
    (void)state;
    if (run("command -v script >/dev/null") != 0) skip(); /* nothing here makes a terminal */
    assert_int_equal(run("%s </dev/null", tool), 0);
    has("backend tcp: \033[32mfound\033[0m");
    assert_int_equal(run("NO_COLOR=1 %s </dev/null", tool), 0);
    has("backend tcp: found");
    assert_null(strchr(text, '\033'));
    assert_int_equal(run("TERM=xterm tutti-info"), 0);
    assert_null(strchr(text, '\033'));
}

/* Progress is shown on a terminal, where it is removed again, or if it is asked for. */
static void test_progress(void **state)
{
    static const char tool[] = "tutti-store-bench --clients 2";
    (void)state;
    assert_int_equal(run("%s", tool), 0);
    assert_null(strstr(text, "left"));
    assert_int_equal(run("%s --progress", tool), 0);
    has("1 of 4, time left unknown: join\n");
    if (run("command -v script >/dev/null") != 0) skip(); /* nothing here makes a terminal */
    assert_int_equal(run("script -qec '%s' /dev/null </dev/null", tool), 0);
    has("\r1 of 4, time left unknown: join\033[K");
    has("\r\033[K");
}

/* ---- completion ------------------------------------------------------------------------------------------------- */

/* True if the text has the option as a word: "--log-dir" is not in "--log-dirs". */
static bool has_option(const char *script, const char *before, const char *option)
{
    char word[96];
    int length = snprintf(word, sizeof word, "%s%s", before, option);
    for (const char *at = script; (at = strstr(at, word)) != NULL; at++)
        if (!isalnum((unsigned char)at[length]) && at[length] != '-') return true;
    return false;
}

/* Checks that each "--option" in the help is in the script, written after `before`. */
static void check_options(const char *tool, const char *shell, const char *help, const char *before)
{
    char option[64];
    int options = 0;
    assert_int_equal(run("%s --completion %s", tool, shell), 0);
    for (const char *line = help; (line = strchr(line, '\n')) != NULL;) {
        line++;
        if (sscanf(line, "%*1[ ]%*[ ]-%*c, --%63[a-z-]", option) != 1 && sscanf(line, "      --%63[a-z-]", option) != 1)
            continue;
        options++;
        if (!has_option(text, before, option)) fail_msg("--%s of %s is not completed by %s", option, tool, shell);
    }
    assert_true(options >= 3);
}

static void test_all_options(void **state)
{
    static char help[sizeof text];
    (void)state;
    for (int i = 0; i < TOOLS; i++) {
        assert_int_equal(run("%s --help", tools[i]), 0);
        memcpy(help, text, sizeof text);
        check_options(tools[i], "bash", help, "--");
        check_options(tools[i], "zsh", help, "--");
        check_options(tools[i], "fish", help, "-l ");
    }
}

/* Shells that are not there are skipped. */
static void test_syntax(void **state)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    (void)state;
    for (int i = 0; i < TOOLS; i++)
        for (size_t k = 0; k < sizeof shells / sizeof *shells; k++)
            if (run("! command -v %s >/dev/null || %s --completion %s | %s -n", shells[k], tools[i], shells[k],
                    shells[k]) != 0)
                fail_msg("%s does not parse its script: %s", shells[k], text);
}

/* Completes the last word of a command line in bash. */
static const char *complete(const char *tool, const char *words)
{
    char function[64];
    snprintf(function, sizeof function, "_%s", tool);
    for (char *c = function; *c; c++)
        if (*c == '-') *c = '_';
    assert_int_equal(run("bash -c 'eval \"$(%s --completion bash)\"; COMP_WORDS=(%s %s)\n"
                         "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); %s; echo \" ${COMPREPLY[*]} \"'",
                         tool, tool, words, function),
                     0);
    return text;
}

static void test_bash(void **state)
{
    (void)state;
    assert_string_equal(complete("tutti-run", "--bi"), " --bind \n");
    assert_string_equal(complete("tutti-run", "--bind \"\""), " none core socket \n");
    assert_string_equal(complete("tutti-run", "--bind = s"), " socket \n"); /* bash makes three words of it */
    assert_string_equal(complete("tutti-run", "--mpi = \"\""), " openmpi mpich \n");
    assert_string_equal(complete("tutti-run", "-n 4 --on-failure r"), " restart \n");
    assert_string_equal(complete("tutti-run", "-n 4 sh --bi"), "  \n"); /* the program's own options */
    assert_string_equal(complete("tutti-conformance", "--dev"), " --device \n");
    assert_string_equal(complete("tutti-conformance", "--device c"), " cpu cuda \n");
    assert_string_equal(complete("tutti-bench", "--dtype float8_e4"), " float8_e4m3fn \n");
    assert_string_equal(complete("tutti-trace", "m"), " merge \n");
    assert_string_equal(complete("tutti-trace", "report --s"), " --svg \n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_help),        cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_colours),     cmocka_unit_test(test_progress),
                                       cmocka_unit_test(test_all_options), cmocka_unit_test(test_syntax),
                                       cmocka_unit_test(test_bash)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
