/* Measures a reducer's iteration against the same buckets by hand, and with compression.
 *
 *     tutti-run -n 2 --no-prefix build/tests/bench_reducer [MIB [TENSORS [ITERATIONS]]]
 *
 * The gradients together have MIB (32) and are in TENSORS (50) equal tensors.  Forms alternate in each iteration, and
 * rank 0 prints the median of the slowest rank's times. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/train/reducer.h>

enum { FORMS = 8, BUCKETS_MOST = 512, ITERATIONS_MOST = 1000, BUCKET = 25 << 20, FIRST = 1 << 20 };

struct bench {
    int n, iterations;
    int64_t numel; /* of each tensor */
    float *gradient;
    tutti_parameter *list;
    tutti_reducer *reducer[FORMS];
    float *hand[2][BUCKETS_MOST]; /* buckets by hand, copied to or not */
    int first[BUCKETS_MOST + 1];
    int buckets;
    double us[FORMS][ITERATIONS_MOST];
};

static const struct form {
    const char *name;
    tutti_reducer_opts opts; /* unused by the first two */
    bool by_hand, has_views;
} forms[FORMS] = {
    {.name = "by hand", .by_hand = true},
    {.name = "by hand, in place", .by_hand = true, .has_views = true},
    {.name = "reducer"},
    {.name = "reducer, views", .opts = {.gradient_as_bucket_view = true}, .has_views = true},
    {.name = "bfloat16", .opts = {.compress = TUTTI_BFLOAT16}},
    {.name = "float16", .opts = {.compress = TUTTI_FLOAT16}},
    {.name = "float8_e4m3fn", .opts = {.compress = TUTTI_FLOAT8_E4M3FN}},
    {.name = "float8_e4m3fn, error feedback", .opts = {.compress = TUTTI_FLOAT8_E4M3FN, .error_feedback = true}},
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Cuts the tensors into the reducer's buckets, last tensor first. */
static void make_buckets(struct bench *bench)
{
    int64_t bytes = 0, limit = FIRST, tensor_bytes = bench->numel * (int64_t)sizeof(float);
    for (int i = 1; i <= bench->n; i++) {
        bytes += tensor_bytes;
        if (bytes < limit && i < bench->n) continue;
        if (bench->buckets == BUCKETS_MOST) abort();
        for (int k = 0; k < 2; k++) {
            TUTTI_CHECK(tutti_alloc(NULL, bytes, (void **)&bench->hand[k][bench->buckets]));
            memset(bench->hand[k][bench->buckets], 0, (size_t)bytes);
        }
        bench->first[++bench->buckets] = i;
        limit = BUCKET;
        bytes = 0;
    }
}

/* An iteration with buckets by hand, with or without copies. */
static void reduce_by_hand(struct bench *bench, bool in_place)
{
    tutti_work *work[BUCKETS_MOST] = {NULL};
    size_t bytes = (size_t)bench->numel * sizeof(float);
    for (int b = 0; b < bench->buckets; b++) {
        int n = bench->first[b + 1] - bench->first[b];
        for (int k = 0; k < n && !in_place; k++)
            memcpy((char *)bench->hand[in_place][b] + (size_t)k * bytes,
                   bench->list[bench->n - 1 - bench->first[b] - k].gradient.data, bytes);
        TUTTI_CHECK(tutti_all_reduce(tutti_view(bench->hand[in_place][b], n * bench->numel), TUTTI_AVG,
                                     tutti_with(.async_op = &work[b])));
    }
    for (int b = 0; b < bench->buckets; b++) {
        int n = bench->first[b + 1] - bench->first[b];
        TUTTI_CHECK(tutti_wait(&work[b], TUTTI_DEFAULT_TIMEOUT));
        for (int k = 0; k < n && !in_place; k++)
            memcpy(bench->list[bench->n - 1 - bench->first[b] - k].gradient.data,
                   (char *)bench->hand[in_place][b] + (size_t)k * bytes, bytes);
    }
}

static void reduce(const struct bench *bench, tutti_reducer *reducer)
{
    for (int i = bench->n - 1; i >= 0; i--) TUTTI_CHECK(tutti_reducer_ready(reducer, i));
    TUTTI_CHECK(tutti_reducer_wait(reducer));
}

static double time_form(struct bench *bench, int form)
{
    TUTTI_CHECK(tutti_barrier(NULL));
    double start = now_us();
    if (forms[form].by_hand)
        reduce_by_hand(bench, forms[form].has_views);
    else
        reduce(bench, bench->reducer[form]);
    double us = now_us() - start;
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&us, 1), TUTTI_MAX, NULL));
    return us;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(struct bench *bench)
{
    printf("%-32s %10s %14s\n", "form", "median us", "bytes");
    for (int form = 0; form < FORMS; form++) {
        int64_t bytes = bench->n * bench->numel * (int64_t)sizeof(float);
        if (!forms[form].by_hand) bytes = tutti_reducer_bytes(bench->reducer[form]) / (bench->iterations + 2);
        qsort(bench->us[form], (size_t)bench->iterations, sizeof(double), compare);
        printf("%-32s %10.0f %14lld\n", forms[form].name, bench->us[form][bench->iterations / 2], (long long)bytes);
    }
}

static int argument(int argc, char **argv, int i, int otherwise, int most)
{
    int value = i < argc ? atoi(argv[i]) : otherwise;
    if (value >= 1 && value <= most) return value;
    fprintf(stderr, "usage: bench_reducer [MIB [TENSORS [ITERATIONS]]]\n");
    exit(2);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    int64_t total = (int64_t)argument(argc, argv, 1, 32, 4096) << 18;
    bench.n = argument(argc, argv, 2, 50, 100000);
    bench.iterations = argument(argc, argv, 3, 50, ITERATIONS_MOST);
    bench.numel = total / bench.n;
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    bench.gradient = calloc((size_t)total, sizeof *bench.gradient);
    bench.list = calloc((size_t)bench.n, sizeof *bench.list);
    if (bench.gradient == NULL || bench.list == NULL) return 1;
    for (int64_t i = 0; i < total; i++) bench.gradient[i] = (float)(i % 1000 + 1) / 1000;
    for (int i = 0; i < bench.n; i++)
        bench.list[i].gradient = tutti_view(bench.gradient + i * bench.numel, bench.numel);
    make_buckets(&bench);
    for (int form = 0; form < FORMS; form++)
        if (!forms[form].by_hand)
            TUTTI_CHECK(tutti_reducer_create(bench.list, bench.n, &forms[form].opts, &bench.reducer[form]));
    for (int i = -2; i < bench.iterations; i++)
        for (int form = 0; form < FORMS; form++) {
            double us = time_form(&bench, form);
            if (i >= 0) bench.us[form][i] = us;
        }
    if (tutti_get_rank(NULL) == 0) print(&bench);
    for (int form = 0; form < FORMS; form++) tutti_reducer_destroy(bench.reducer[form]);
    for (int b = 0; b < 2 * bench.buckets; b++) TUTTI_CHECK(tutti_free(NULL, bench.hand[b % 2][b / 2]));
    free(bench.gradient);
    free(bench.list);
    return tutti_destroy_process_group(NULL);
}
