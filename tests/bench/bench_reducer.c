/* Measures a reducer's iteration against the same buckets by hand, and with compression.
 *
 *     tutti-run -n 2 --no-prefix build/tests/bench_reducer [MIB [TENSORS [ITERATIONS [COMPUTE_MS [BUCKET_KIB]]]]]
 *
 * The gradients together have MIB (32) and are in TENSORS (50) equal tensors.  Forms alternate in each iteration, and
 * rank 0 prints the median of the slowest rank's times.
 * With COMPUTE_MS the ranks also compute for that long in an iteration, a part before each bucket or report, and
 * `hidden` is the share of the time without computation that this hides. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/train/reducer.h>

enum { FORMS = 8, BUCKETS_MOST = 512, ITERATIONS_MOST = 1000 };

struct bench {
    int n, iterations;
    int64_t numel; /* of each tensor */
    float *gradient;
    tutti_parameter *list;
    tutti_reducer *reducer[FORMS];
    float *hand[2][BUCKETS_MOST]; /* buckets by hand, copied to or not */
    int first[BUCKETS_MOST + 1];
    int buckets;
    int compute_us;
    int64_t bucket_bytes, first_bytes;
    double us[FORMS][ITERATIONS_MOST], both_us[FORMS][ITERATIONS_MOST]; /* alone, and beside computation */
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
    int64_t bytes = 0, limit = bench->first_bytes, tensor_bytes = bench->numel * (int64_t)sizeof(float);
    for (int i = 1; i <= bench->n; i++) {
        bytes += tensor_bytes;
        if (bytes < limit && i < bench->n) continue;
        if (bench->buckets == BUCKETS_MOST) abort();
        for (int k = 0; k < 2; k++) {
            TUTTI_CHECK(tutti_alloc(NULL, bytes, (void **)&bench->hand[k][bench->buckets]));
            memset(bench->hand[k][bench->buckets], 0, (size_t)bytes);
        }
        bench->first[++bench->buckets] = i;
        limit = bench->bucket_bytes;
        bytes = 0;
    }
}

/* Sleeps, as a host does that waits for a GPU, or spins if SPIN is set. */
static void compute(double us)
{
    double start = now_us();
    if (getenv("SPIN") == NULL)
        nanosleep(&(struct timespec){0, (long)(us * 1000)}, NULL);
    else
        while (now_us() - start < us) continue;
}

/* An iteration with buckets by hand, with or without copies. */
static void reduce_by_hand(struct bench *bench, bool in_place, double compute_us)
{
    tutti_work *work[BUCKETS_MOST] = {NULL};
    size_t bytes = (size_t)bench->numel * sizeof(float);
    for (int b = 0; b < bench->buckets; b++) {
        int n = bench->first[b + 1] - bench->first[b];
        if (compute_us > 0) compute(compute_us * n / bench->n);
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

static void reduce(const struct bench *bench, tutti_reducer *reducer, double compute_us)
{
    for (int i = bench->n - 1; i >= 0; i--) {
        if (compute_us > 0) compute(compute_us / bench->n);
        TUTTI_CHECK(tutti_reducer_ready(reducer, i));
    }
    TUTTI_CHECK(tutti_reducer_wait(reducer));
}

static double time_form(struct bench *bench, int form, double compute_us)
{
    TUTTI_CHECK(tutti_barrier(NULL));
    double start = now_us();
    if (forms[form].by_hand)
        reduce_by_hand(bench, forms[form].has_views, compute_us);
    else
        reduce(bench, bench->reducer[form], compute_us);
    double us = now_us() - start;
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&us, 1), TUTTI_MAX, NULL));
    return us;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *us, int n)
{
    qsort(us, (size_t)n, sizeof *us, compare);
    return us[n / 2];
}

static void print(struct bench *bench)
{
    printf("%-32s %10s %14s\n", "form", "median us", "bytes");
    for (int form = 0; form < FORMS; form++) {
        int64_t bytes = bench->n * bench->numel * (int64_t)sizeof(float);
        if (!forms[form].by_hand)
            bytes =
                tutti_reducer_bytes(bench->reducer[form]) / (bench->iterations + 2) / (bench->compute_us > 0 ? 2 : 1);
        double us = median(bench->us[form], bench->iterations), both = median(bench->both_us[form], bench->iterations);
        printf("%-32s %10.0f %14lld", forms[form].name, us, (long long)bytes);
        if (bench->compute_us > 0) printf(" %10.0f %5.0f %% hidden", both, 100 * (us + bench->compute_us - both) / us);
        putchar('\n');
    }
}

static int argument(int argc, char **argv, int i, int otherwise, int most)
{
    int value = i < argc ? atoi(argv[i]) : otherwise;
    if (value >= (i == 4 ? 0 : 1) && value <= most) return value;
    fprintf(stderr, "usage: bench_reducer [MIB [TENSORS [ITERATIONS [COMPUTE_MS [BUCKET_KIB]]]]]\n");
    exit(2);
}

static void make_reducer(struct bench *bench, int form)
{
    tutti_reducer_opts opts = forms[form].opts;
    opts.bucket_bytes = bench->bucket_bytes;
    opts.first_bucket_bytes = bench->first_bytes;
    TUTTI_CHECK(tutti_reducer_create(bench->list, bench->n, &opts, &bench->reducer[form]));
}

int main(int argc, char **argv)
{
    static struct bench bench;
    int64_t total = (int64_t)argument(argc, argv, 1, 32, 4096) << 18;
    bench.n = argument(argc, argv, 2, 50, 100000);
    bench.iterations = argument(argc, argv, 3, 50, ITERATIONS_MOST);
    bench.compute_us = 1000 * argument(argc, argv, 4, 0, 100000);
    bench.bucket_bytes = (int64_t)argument(argc, argv, 5, 25 << 10, 1 << 20) << 10;
    bench.first_bytes = bench.bucket_bytes < 1 << 20 ? bench.bucket_bytes : 1 << 20;
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
        if (!forms[form].by_hand) make_reducer(&bench, form);
    for (int i = -2; i < bench.iterations; i++)
        for (int form = 0; form < FORMS; form++) {
            double us = time_form(&bench, form, 0);
            double both_us = bench.compute_us > 0 ? time_form(&bench, form, bench.compute_us) : 0;
            if (i < 0) continue;
            bench.us[form][i] = us;
            bench.both_us[form][i] = both_us;
        }
    if (tutti_get_rank(NULL) == 0) print(&bench);
    for (int form = 0; form < FORMS; form++) tutti_reducer_destroy(bench.reducer[form]);
    for (int b = 0; b < 2 * bench.buckets; b++) TUTTI_CHECK(tutti_free(NULL, bench.hand[b % 2][b / 2]));
    free(bench.gradient);
    free(bench.list);
    return tutti_destroy_process_group(NULL);
}
