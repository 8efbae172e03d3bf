/* --json of the tools: Python's parser reads the documents, and they have the fields that docs/json.md lists.  Where
 * the tools were built without jansson, they say so. */
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

#include "text.h"

static char text[1 << 16], folder[] = "/tmp/tutti-json-XXXXXX";

/* Runs a shell command with the built tools in PATH.  Returns its exit status, with its output in `text`. */
static int run(const char *command)
{
    char all[4096];
    snprintf(all, sizeof all, "cd %s && PATH=%s/bin:$PATH && unset RANK && { %s\n} 2>&1", folder, TUTTI_BUILD_DIR,
             command);
    FILE *pipe = popen(all, "r");
    assert_non_null(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs a tool, and checks its document `d` with conditions in Python. */
static void check(const char *tool, const char *conditions)
{
    char command[3000];
    snprintf(command, sizeof command,
             "%s >out.json && python3 -c 'import json\nd = json.load(open(\"out.json\"))\n"
             "def keys(o, *names): assert set(names) <= set(o), (names, o)\n%s'",
             tool, conditions);
    if (run(command) != 0) fail_msg("%s: %s", tool, text);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* Skips the test without Python, or if the tools were built without jansson. */
static void needs_json(void)
{
    if (run("command -v python3 >/dev/null") != 0) skip(); /* no parser is installed */
    if (run("tutti-bench --compare /dev/null /dev/null") != 2) return;
    assert_non_null(strstr(text, "--compare is left out of this build, because jansson was not found"));
    assert_int_equal(text_count(text, "\n"), 1);
    skip();
}

static void test_info(void **state)
{
    (void)state;
    needs_json();
    check("tutti-info --json", "assert d[\"tool\"] == \"tutti-info\" and d[\"format\"] == 1 and \"world\" not in d\n"
                               "keys(d[\"host\"], \"name\", \"cores_allowed\", \"cores_online\")\n"
                               "b = {x[\"name\"]: x for x in d[\"backends\"]}\n"
                               "assert b[\"tcp\"][\"found\"] is True and len(b[\"tcp\"][\"lines\"]) > 1\n"
                               "assert \"mpi\" in b and \"nccl\" in b");
    check("tutti-run -n 2 tutti-info --json",
          "w = d[\"world\"]\n"
          "assert w[\"ranks\"] == 2 and w[\"backend\"] == \"cpu:tcp\" and len(w[\"members\"]) == 2\n"
          "for i, m in enumerate(w[\"members\"]):\n"
          "    keys(m, \"host\", \"host_name\", \"process\", \"cores_allowed\", \"lines\")\n"
          "    assert m[\"rank\"] == i and m[\"process\"] > 1\n"
          "for c in w[\"choices\"]: keys(c, \"op\", \"from_bytes\", \"line\")");
}

static void test_store_bench(void **state)
{
    (void)state;
    needs_json();
    check("tutti-store-bench --clients 6 --processes 2 --json",
          "assert d[\"clients\"] == 6 and d[\"processes\"] == 2 and d[\"cores_online\"] > 0\n"
          "assert set(d[\"seconds\"]) == {\"join\", \"exchange\", \"barrier\"} and d[\"requests_per_client\"] > 2\n"
          "assert all(v > 0 for v in d[\"us\"].values()) and set(d[\"us\"]) == {\"set\", \"get\", \"add\"}");
}

static void test_conformance(void **state)
{
    (void)state;
    needs_json();
    check(
        "tutti-conformance --quick --ranks 2 --filter barrier --json",
        "assert d[\"backend\"] == \"tcp\" and d[\"ranks_are\"] == \"processes\" and d[\"failures\"] == []\n"
        "assert d[\"passed\"] > 0 and d[\"failed\"] == 0 and d[\"broken\"] == [] and d[\"quick\"] is True\n"
        "assert d[\"passed\"] == sum(k[\"passed\"] for k in d[\"kinds\"]) and 0 < d[\"rules_passed\"] <= d[\"rules\"]\n"
        "keys(d, \"from_ranks\", \"to_ranks\", \"seed\", \"huge\", \"skipped\", \"seconds\", \"skips\", "
        "\"rules_not_passed\")");
    /* a backend that cannot be loaded fails, and the document says so */
    assert_int_equal(run("tutti-conformance --quick --ranks 2 --backend /no/libtutti_x.so --json >out.json"), 1);
    if (run("python3 -c 'import json\nd = json.load(open(\"out.json\"))\n"
            "assert \"/no/libtutti_x.so\" in d[\"broken\"][0][\"reason\"]'") != 0)
        fail_msg("%s", text);
}

/* ---- tutti-bench ------------------------------------------------------------------------------------------------ */

static void test_bench(void **state)
{
    (void)state;
    needs_json();
    check("tutti-run -n 2 tutti-bench --ops barrier,all_reduce --sizes 4,64K --ms 1 --json",
          "assert (d[\"ranks\"], d[\"dtype\"], d[\"reduce_op\"], d[\"async\"], d[\"alloc\"]) == "
          "(2, \"float32\", \"SUM\", False, \"system\")\n"
          "assert [(r[\"op\"], r[\"bytes\"]) for r in d[\"results\"]] == "
          "[(\"barrier\", 0), (\"all_reduce\", 4), (\"all_reduce\", 65536)]\n"
          "for r in d[\"results\"]:\n"
          "    keys(r, \"backend\", \"count\", \"us_mean\", \"iterations\", \"algbw\", \"busbw\")\n"
          "    assert 0 <= r[\"us_min\"] <= r[\"us\"] <= r[\"us_p95\"] and r[\"wrong\"] == 0");
    assert_int_equal(run("tutti-bench --json --csv"), 2);
    assert_int_equal(run("tutti-bench --json --tune x"), 2);
    assert_int_equal(run("tutti-run -n 2 tutti-bench --ops barrier --ms 1 --csv --progress"), 0);
    assert_non_null(strstr(text, "1 of 1, time left unknown: barrier of 0 bytes\n"));
}

/* Writes a document whose times are all `us`. */
static void write_results(const char *name, double us, int ranks)
{
    char command[1024];
    snprintf(
        command, sizeof command,
        "cat >%s <<'END'\n{\"tool\": \"tutti-bench\", \"version\": \"0.1\", \"format\": 1, \"ranks\": %d,\n"
        "\"dtype\": \"float32\", \"reduce_op\": \"SUM\", \"alloc\": \"system\", \"results\": [\n"
        "{\"backend\": \"tcp\", \"op\": \"all_reduce\", \"bytes\": 4, \"us\": %g, \"us_p95\": %g, \"busbw\": 1},\n"
        "{\"backend\": \"tcp\", \"op\": \"all_reduce\", \"bytes\": 64, \"us\": %g, \"us_p95\": %g, \"busbw\": 2},\n"
        "{\"backend\": \"tcp\", \"op\": \"scan\", \"bytes\": %d, \"us\": 1, \"us_p95\": 1, \"busbw\": 2},\n"
        "{\"backend\": \"tcp\", \"op\": \"gather\", \"bytes\": 4, \"unsupported\": \"no\"}]}\nEND",
        name, ranks, us, us * 2, us, us * 2, ranks);
    assert_int_equal(run(command), 0);
}

static void has(const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("no \"%s\" in: %s", part, text);
}

static void test_compare(void **state)
{
    (void)state;
    needs_json();
    write_results("old.json", 10, 2);
    write_results("new.json", 5, 4);
    assert_int_equal(run("tutti-bench --compare old.json new.json"), 0);
    has("# A: old.json: tutti 0.1, 2 ranks, float32, SUM\n");
    has("# beware: 2 ranks and 4 ranks\n");
    has("  all_reduce                   64       10.00        5.00     0.500       20.00       10.00\n");
    has("# 2 cases: geometric mean of B / A 0.500\n");
    has("# left out: 1 of A and 1 of B, which the other does not have\n");
    assert_int_equal(run("sed s/tcp/mpi/ new.json >mpi.json; tutti-bench --compare old.json mpi.json"), 0);
    has("# beware: backend is tcp and mpi\n");
    /* whatever the order of the backends */
    assert_int_equal(
        run("sed '/: 64/s/tcp/mpi/' old.json >a.json; sed '/: 64/s/tcp/mpi/; 3{h;d}; 4G' new.json >b.json; "
            "tutti-bench --compare a.json b.json"),
        0);
    has("# backend mpi\n");
    has("  all_reduce                    4       10.00        5.00     0.500       20.00       10.00\n");
    has("  all_reduce                   64       10.00        5.00     0.500       20.00       10.00\n");
    assert_int_equal(run("tutti-bench --compare a.json new.json"), 0);
    has("# backend mpi: left out, because only A has it\n");
    assert_int_equal(run("tutti-bench --compare old.json"), 2);
    has("--compare takes two files");
    assert_int_equal(run("tutti-bench --compare old.json none.json"), 1);
    has("cannot read none.json: ");
    assert_int_equal(run("echo '{\"a\": 1}' >other.json; tutti-bench --compare old.json other.json"), 1);
    has("other.json: it is not a document of tutti-bench --json");
    assert_int_equal(run("echo '{\"a\": ' >other.json; tutti-bench --compare old.json other.json"), 1);
    has("(line ");
    if (access("/usr/bin/gnuplot", X_OK) != 0) return;
    assert_int_equal(run("tutti-bench --compare old.json new.json --plot both.svg && cat both.svg"), 0);
    has("<title>old</title>");
    has("<title>new</title>");
    has("message size (bytes)");
    has("bus bandwidth (GB/s)");
    /* gnuplot runs no command that is in a file or its name */
    assert_int_equal(run("sed \"s/all_reduce/it's \\`touch x\\`/\" old.json >new.json; cp new.json '`touch y`.json'; "
                         "tutti-bench --compare new.json '`touch y`.json' --plot both.svg && cat both.svg; ls"),
                     0);
    has("it's `touch x`");
    assert_null(strstr(text, "\nx\n"));
    assert_null(strstr(text, "\ny\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_info), cmocka_unit_test(test_store_bench),
                                       cmocka_unit_test(test_conformance), cmocka_unit_test(test_bench),
                                       cmocka_unit_test(test_compare)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
