/* Each example under tutti-run, on the backend of TUTTI_TEST_BACKEND (tcp).  Its output equals the tutorials', or says
 * that the result is one rank's. */
#include "tools/launch.h"

#include <ctype.h>
#include <math.h>
#include <unistd.h>

enum { RANKS = 4, LINES_MAX = 4 * RANKS };

/* The output of 4 ranks, in any order.  A line with @ stands for one line a rank, and @ for the rank. # stands for any
 * number. */
static const struct example {
    const char *name;
    const char *line[LINES_MAX];
} examples[] = {
    {"hello", {"Hello from rank @ out of 4 processes!"}},
    {"send_recv", {"Rank 1 has 0.0 before", "Rank 1 has 42.0 after"}},
    {"isend_irecv",
     {"Rank 0 started sending", "Rank 0 has 42.0 after", "Rank 1 has 0.0 before", "Rank 1 started receiving",
      "Rank 1 has 42.0 after", "Rank 0 exchanged 4 bytes: right", "Rank 0 exchanged 67108864 bytes: right",
      "Rank 1 exchanged 4 bytes: right", "Rank 1 exchanged 67108864 bytes: right"}},
    {"broadcast", {"Rank @ has floats [1, 2, 3, 4, 5]", "Rank @ has integers [1, 2, 3]"}},
    {"gather", {"Rank 0 has [[0], [1], [2], [3]]", "Rank 1 sent [1]", "Rank 2 sent [2]", "Rank 3 sent [3]"}},
    {"all_gather", {"Rank @ has [[0], [1], [2], [3]]"}},
    {"scatter", {"Rank @ has [@]"}},
    {"reduce_scatter", {"Rank @ has [6]"}},
    {"reduce", {"Rank 0 has [6]", "Rank 1 has [1]", "Rank 2 has [2]", "Rank 3 has [3]"}},
    {"all_reduce",
     {"Rank @ has the sum of the ranks [6]", "Rank @ has the sum, counted from 1 [10]",
      "Rank @ has the average, counted from 1 [2.5]"}},
    {"minloc", {"Rank @ knows that rank 1 has the smallest loss, 0.25"}},
    {"timed", {"reduce and all_reduce of 1048576 floats took # seconds"}},
    {"all_to_all_single",
     {"Rank 0 sent [0, 1, 2, 3]", "Rank 1 sent [4, 5, 6, 7]", "Rank 2 sent [8, 9, 10, 11]",
      "Rank 3 sent [12, 13, 14, 15]", "Rank 0 has [0, 4, 8, 12]", "Rank 1 has [1, 5, 9, 13]",
      "Rank 2 has [2, 6, 10, 14]", "Rank 3 has [3, 7, 11, 15]"}},
    {"async_all_reduce",
     {"Rank @ has [6] in each of 4194304 elements", "all_reduce # s, compute # s, both # s: overlap # %"}},
    {"stencil",
     {"step 100: the largest change is 0.002686", "step 200: the largest change is 0.001341",
      "step 300: the largest change is 0.000896", "step 400: the largest change is 0.000672",
      "2 x 2 ranks: # million cells a second, # % of the time waiting for edges",
      "0 of 75000 cells differ from one rank's"}},
    {"pipeline",
     {"Rank @: 3 layers, # micro-batches in flight, waited # % of the time",
      "bubble of 4 stages and 12 micro-batches: 20 % of the schedule",
      "gradients differ by at most 0 from one rank's"}},
    {"tensor_parallel",
     {"Rank @ has 4608 of 18432 weights; Y and gradients differ from the unsplit block's by at most #: right"}},
    {"moe",
     {"Rank 0 sent 512 copies of 256 tokens, its experts got 367: right",
      "Rank 1 sent 412 copies of 206 tokens, its experts got 341: right",
      "Rank 2 sent 312 copies of 156 tokens, its experts got 414: right",
      "Rank 3 sent 212 copies of 106 tokens, its experts got 326: right",
      "the busiest rank has 1.14 times the average load"}},
    {"parameter_server",
     {"Rank 1 sent 150 gradients of 33.7 entries, each late by # gradients of others",
      "Rank 2 sent 150 gradients of 34.0 entries, each late by # gradients of others",
      "Rank 3 sent 150 gradients of 34.2 entries, each late by # gradients of others",
      "Rank 0 applied 450 gradients: mean error of the weights 0.43 before, # after"}},
    {"spawn", {"Rank @ of 4 has [6]", "All 4 ranks are done"}},
};

enum { EXAMPLES = sizeof examples / sizeof *examples };

static const char *backend(void)
{
    const char *name = getenv("TUTTI_TEST_BACKEND");
    return name && *name ? name : "tcp";
}

static void path_of(const char *name, char *path, size_t capacity)
{
    snprintf(path, capacity, "%s/%s", TUTTI_EXAMPLES_DIR, name);
}

/* True if line, up to its end, matches the pattern. rank replaces @. */
static bool matches(const char *pattern, int rank, const char *line)
{
    for (; *pattern; pattern++) {
        if (*pattern == '#') {
            char *end;
            if (!isdigit((unsigned char)*line)) return false;
            strtod(line, &end);
            line = end;
        } else if (*line++ != (*pattern == '@' ? '0' + rank : *pattern)) {
            return false;
        }
    }
    return *line == '\0';
}

/* Removes the first line that matches from out. */
static void take(char **line, int lines, const char *pattern, int rank, const char *all)
{
    for (int i = 0; i < lines; i++) {
        if (!line[i] || !matches(pattern, rank, line[i])) continue;
        line[i] = NULL;
        return;
    }
    fail_msg("no line \"%s\" (of rank %d) in:\n%s", pattern, rank, all);
}

static int split_lines(char *text, char **line, int most)
{
    int lines = 0;
    char *rest = NULL;
    for (char *at = strtok_r(text, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
        if (lines == most) fail_msg("too many lines; the last: %s", at);
        line[lines++] = at;
    }
    return lines;
}

static void assert_lines(const struct example *example, char *text)
{
    char *line[LINES_MAX], *all = strdup(text);
    int lines = split_lines(text, line, LINES_MAX);
    for (int i = 0; i < LINES_MAX && example->line[i]; i++) {
        bool each_rank = strchr(example->line[i], '@');
        for (int rank = 0; rank < (each_rank ? RANKS : 1); rank++) take(line, lines, example->line[i], rank, all);
    }
    for (int i = 0; i < lines; i++)
        if (line[i]) fail_msg("an unexpected line: %s", line[i]);
    free(all);
}

static void prints_what_the_tutorial_says(void **state)
{
    const struct example *example = *state;
    char path[4096];
    path_of(example->name, path, sizeof path);
    bool starts_ranks = !strcmp(example->name, "spawn"); /* without a launcher */
    struct launch launch = RUN("-n", starts_ranks ? "1" : "4", "--no-prefix", path, backend());
    if (launch.status != 0) fail_msg("%s ended with %d: %s", example->name, launch.status, launch.err.data);
    assert_lines(example, launch.out.data);
    launch_free(&launch);
}

/* ---- train ------------------------------------------------------------------------------------------------- */

enum { EPOCHS = 20 };

struct curve {
    double loss[EPOCHS], accuracy;
};

/* Reads the epochs from `first` to `last`, counted from 1. */
static void read_epochs(const char *path, int first, int last, struct curve *curve)
{
    FILE *file = fopen(path, "r");
    char line[128];
    int epochs = first - 1;
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "epoch,loss,accuracy\n");
    while (epochs < last && fgets(line, sizeof line, file)) {
        int epoch;
        assert_int_equal(sscanf(line, "%d,%lf,%lf", &epoch, &curve->loss[epochs], &curve->accuracy), 3);
        assert_int_equal(epoch, ++epochs);
    }
    assert_int_equal(epochs, last);
    fclose(file);
}

static void read_curve(const char *path, struct curve *curve)
{
    read_epochs(path, 1, EPOCHS, curve);
}

/* Trains on this many ranks and returns the loss curve. */
static struct curve train(const char *ranks, const char *batch, const char *bucket_kib, const char *const *more)
{
    char path[4096], log[] = "/tmp/tutti-train-XXXXXX";
    struct curve curve;
    int fd = mkstemp(log);
    assert_true(fd >= 0);
    close(fd);
    path_of("train", path, sizeof path);
    struct launch launch =
        RUN("-n", ranks, "--no-prefix", path, backend(), "--epochs", "20", "--batch", batch, "--bucket", bucket_kib,
            "--csv-log", log, more != NULL ? more[0] : NULL, more != NULL ? more[1] : NULL);
    if (launch.status != 0) fail_msg("train on %s ended with %d: %s", ranks, launch.status, launch.err.data);
    assert_has(&launch.out, "epoch 20  loss 0.0");
    assert_has(&launch.out, "% on 357 held-out rows, ");
    launch_free(&launch);
    read_curve(log, &curve);
    unlink(log);
    if (curve.accuracy <= 95) fail_msg("accuracy %g on %s ranks", curve.accuracy, ranks);
    return curve;
}

static void assert_same_curve(const struct curve *curve, const struct curve *one, const char *ranks)
{
    for (int i = 0; i < EPOCHS; i++) {
        if (fabs(curve->loss[i] - one->loss[i]) <= 1e-3 * one->loss[i]) continue;
        fail_msg("epoch %d on %s ranks: loss %.9g, on one %.9g", i + 1, ranks, curve->loss[i], one->loss[i]);
    }
}

/* On 2 and 8 ranks to rounding.  On 2 and 4 bit for bit, if the order of sums is fixed. */
static void training_is_that_of_one_rank(void **state)
{
    static const char *const ranks[] = {"2", "8"}, *const exact[] = {"2", "4"};
    (void)state;
    struct curve one = train("1", "64", "32", NULL);
    for (int i = 0; i < 2; i++) {
        struct curve curve = train(ranks[i], "64", "32", NULL);
        assert_same_curve(&curve, &one, ranks[i]);
    }
    if (strcmp(backend(), "tcp") != 0) return;
    setenv("TUTTI_DETERMINISTIC", "1", 1);
    for (int i = 0; i < 2; i++) {
        struct curve curve = train(exact[i], "64", "32", NULL);
        assert_memory_equal(curve.loss, one.loss, sizeof one.loss);
    }
    unsetenv("TUTTI_DETERMINISTIC");
}

/* 3 ranks share batches of 50 as 16, 17 and 17, with one bucket per layer. */
static void uneven_shares_weigh_right(void **state)
{
    (void)state;
    struct curve one = train("1", "50", "32", NULL), three = train("3", "50", "1", NULL);
    assert_same_curve(&three, &one, "3");
}

/* Compressed gradients train as well: the loss ends near that of float32. */
static void training_with_compression(void **state)
{
    static const char *const forms[][2] = {
        {"--compress", "bfloat16"}, {"--compress", "float16"}, {"--compress", "float8_e4m3fn"}, {"--powersgd", "4"}};
    (void)state;
    struct curve one = train("1", "64", "32", NULL);
    for (int i = 0; i < 4; i++) {
        struct curve curve = train("2", "64", "32", forms[i]);
        double ratio = curve.loss[EPOCHS - 1] / one.loss[EPOCHS - 1];
        if (ratio < 0.9 || ratio > 1.1) fail_msg("%s: the last loss is %g times that of float32", forms[i][1], ratio);
    }
}

/* Trains over a provider's datagram endpoints. */
static void training_over_datagrams(void **state)
{
    (void)state;
    if (strcmp(backend(), "tcp") != 0) skip();
    setenv("TUTTI_SHM", "0", 1);
    struct curve one = train("1", "64", "32", NULL);
    setenv("TUTTI_FABRIC_PROVIDER", "tcp;ofi_rxm", 1);
    struct curve four = train("4", "64", "32", NULL);
    unsetenv("TUTTI_FABRIC_PROVIDER");
    unsetenv("TUTTI_SHM");
    assert_same_curve(&four, &one, "4");
}

/* ---- train_zero -------------------------------------------------------------------------------------------- */

/* Trains up to an epoch and adds these epochs' losses to the curve. */
static void train_zero(const char *ranks, int first, int last, const char *option, const char *folder,
                       struct curve *curve)
{
    char path[4096], log[64], epochs[16];
    path_of("train_zero", path, sizeof path);
    snprintf(log, sizeof log, "%s.csv", folder);
    snprintf(epochs, sizeof epochs, "%d", last);
    struct launch launch =
        RUN("-n", ranks, "--no-prefix", path, backend(), "--epochs", epochs, "--csv-log", log, option, folder);
    if (launch.status != 0) fail_msg("train_zero on %s ended with %d: %s", ranks, launch.status, launch.err.data);
    assert_has(&launch.out, " of 17226 parameters");
    launch_free(&launch);
    read_epochs(log, first, last, curve);
    unlink(log);
}

/* Three ranks train with sharded state and end; two continue from the checkpoint.  Together they make train's curve. */
static void sharded_training_continues_elsewhere(void **state)
{
    char folder[] = "/tmp/tutti-train-XXXXXX", command[64], path[4096];
    struct curve one = train("1", "64", "32", NULL), zero;
    (void)state;
    assert_non_null(mkdtemp(folder));
    train_zero("3", 1, 8, "--checkpoint", folder, &zero);
    train_zero("2", 9, EPOCHS, "--resume", folder, &zero);
    assert_same_curve(&zero, &one, "3 and 2");
    path_of("train_zero", path, sizeof path);
    launch_assert_refused(ARGS(path, backend(), "--resume", folder, "--epochs", "8"), 2,
                          "checkpoint 8 has 8 epochs already; pass --epochs above that");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void train_zero_refuses_other_folders(void **state)
{
    char path[4096];
    (void)state;
    path_of("train_zero", path, sizeof path);
    launch_assert_refused(ARGS("-n", "2", path, backend(), "--resume", "/nowhere"), 1,
                          "/nowhere has no complete checkpoint");
    launch_assert_refused(ARGS(path, "--epochs", "none"), 2, "--epochs needs an integer of 1 to 100000, not \"none\"");
}

static void train_refuses_what_it_does_not_know(void **state)
{
    char path[4096];
    (void)state;
    path_of("train", path, sizeof path);
    launch_assert_refused(ARGS(path, "--epochs", "none"), 2, "--epochs needs an integer of 1 to 100000, not \"none\"");
    launch_assert_refused(ARGS(path, "--speed", "9"), 2, "unknown option --speed");
    launch_assert_refused(ARGS(path, "--data", "/nowhere.csv"), 1, "/nowhere.csv: No such file");
}

/* ---- transformer ------------------------------------------------------------------------------------------- */

enum { LOSSES = 3 };

/* Trains on this many ranks and reads the losses. */
static void transform(const char *ranks, const char *dtype, double *loss)
{
    static const int steps[LOSSES] = {1, 10, 20};
    char path[4096], start[32];
    path_of("transformer", path, sizeof path);
    struct launch launch = RUN("-n", ranks, "--no-prefix", path, backend(), "--steps", "20", "--batch", "7", "--dtype",
                               dtype, "--bucket", "32");
    if (launch.status != 0) fail_msg("transformer on %s ended with %d: %s", ranks, launch.status, launch.err.data);
    for (int i = 0; i < LOSSES; i++) {
        snprintf(start, sizeof start, "step %4d  loss ", steps[i]);
        const char *at = strstr(launch.out.data, start);
        if (!at) fail_msg("no \"%s\" in:\n%s", start, launch.out.data);
        loss[i] = strtod(at + strlen(start), NULL);
    }
    assert_has(&launch.out, strcmp(dtype, "bf16") ? "; a step reduces 0.433 MB, " : "; a step reduces 0.217 MB, ");
    assert_has(&launch.out, "scaling efficiency ");
    launch_free(&launch);
}

/* The losses fall and do not depend on the number of ranks; with 16-bit gradients they differ a little. */
static void transformer_is_that_of_one_rank(void **state)
{
    static const char *const ranks[] = {"2", "4", "2"}, *const dtype[] = {"float32", "float32", "bf16"};
    static const double tolerance[] = {1e-4, 1e-4, 2e-2};
    double one[LOSSES], many[LOSSES];
    (void)state;
    transform("1", "float32", one);
    if (one[LOSSES - 1] > 0.75 * one[0]) fail_msg("the loss falls from %g to %g only", one[0], one[LOSSES - 1]);
    for (int run = 0; run < 3; run++) {
        transform(ranks[run], dtype[run], many);
        for (int i = 0; i < LOSSES; i++)
            if (fabs(many[i] - one[i]) > tolerance[run] * one[i])
                fail_msg("%s ranks, %s: loss %g, on one %g", ranks[run], dtype[run], many[i], one[i]);
    }
}

static void transformer_refuses_what_it_does_not_know(void **state)
{
    char path[4096];
    (void)state;
    path_of("transformer", path, sizeof path);
    launch_assert_refused(ARGS(path, "--width", "65"), 2, "--width needs a multiple of 64 up to 1024");
    launch_assert_refused(ARGS(path, "--dtype", "fp9"), 2, "--dtype needs float32, bf16, fp16 or fp8");
    launch_assert_refused(ARGS(path, "--speed", "9"), 2, "unknown option --speed");
    launch_assert_refused(ARGS(path, "--text", "/nowhere.txt"), 1, "/nowhere.txt: No such file");
    launch_assert_refused(ARGS(path, "--text", "/dev/null"), 1, "/dev/null has 0 bytes, but 65 are needed");
    path_of("parameter_server", path, sizeof path);
    launch_assert_refused(ARGS(path), 1, "parameter_server needs 2 ranks or more");
}

int main(void)
{
    const struct CMUnitTest others[] = {cmocka_unit_test(training_is_that_of_one_rank),
                                        cmocka_unit_test(uneven_shares_weigh_right),
                                        cmocka_unit_test(train_refuses_what_it_does_not_know),
                                        cmocka_unit_test(training_over_datagrams),
                                        cmocka_unit_test(training_with_compression),
                                        cmocka_unit_test(sharded_training_continues_elsewhere),
                                        cmocka_unit_test(train_zero_refuses_other_folders),
                                        cmocka_unit_test(transformer_is_that_of_one_rank),
                                        cmocka_unit_test(transformer_refuses_what_it_does_not_know)};
    struct CMUnitTest tests[EXAMPLES + sizeof others / sizeof *others];
    for (int i = 0; i < EXAMPLES; i++)
        tests[i] = (struct CMUnitTest)cmocka_unit_test_prestate(prints_what_the_tutorial_says,
                                                                (void *)(uintptr_t)&examples[i]);
    for (int i = 0; i < EXAMPLES; i++) tests[i].name = examples[i].name;
    memcpy(tests + EXAMPLES, others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
