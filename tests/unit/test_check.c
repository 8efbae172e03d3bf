/* Invalid arguments, case by case through the API.  Each call is refused before anything is sent, with an error that
 * names the expected and the actual value.  The group stays usable.
 *
 * One rank of three makes the mistakes.  The others wait in a barrier meanwhile, which a wrongly sent message would
 * break. */
#include "ranks.h"
#include "unit/refusal.h"

enum { SIZE = 3, WRONG = 1 }; /* WRONG: the rank that makes the mistakes */

/* Values for the invalid calls. */
static float f[16];
static double d[16];
static int32_t n[16];
static tutti_group *own; /* group of WRONG alone */

static const tutti_opts *with(tutti_opts opts)
{
    static tutti_opts kept;
    kept = opts;
    return &kept;
}

#define OPTS(...) with((tutti_opts){.group = own, __VA_ARGS__})
#define F(count) tutti_view(f, count)
#define D(count) tutti_view(d, count)
#define N(count) tutti_view(n, count)

static tutti_tensor on_cuda(tutti_tensor tensor)
{
    return tutti_on(tensor, (tutti_device){TUTTI_CUDA, 0});
}

/* Returns a list of three tensors of these sizes. */
static const tutti_tensor *list(int64_t a, int64_t b, int64_t c)
{
    static tutti_tensor kept[2][SIZE];
    static int turn;
    tutti_tensor *made = kept[turn++ % 2];
    made[0] = F(a);
    made[1] = tutti_view(f + 4, b);
    made[2] = tutti_view(f + 8, c);
    return made;
}

static const tutti_tensor *changed(const tutti_tensor *list, int i, tutti_tensor to)
{
    ((tutti_tensor *)(uintptr_t)list)[i] = to;
    return list;
}

static const int64_t *splits(int64_t a, int64_t b, int64_t c)
{
    static int64_t kept[2][SIZE];
    static int turn;
    int64_t *made = kept[turn++ % 2];
    made[0] = a;
    made[1] = b;
    made[2] = c;
    return made;
}

/* ---- the rows ---------------------------------------------------------------------------------------------- */

static int tensors(void)
{
    const tutti_opts *opts = OPTS(.tag = 0);
    tutti_tensor null = {NULL, 4, TUTTI_FLOAT32, {TUTTI_CPU, 0}};
    INVALID(tutti_broadcast(null, 0, opts), "broadcast|data is NULL|4");
    INVALID(tutti_broadcast(F(-1), 0, opts), "broadcast|numel is -1|negative");
    INVALID(tutti_all_reduce(F(INT64_MAX), TUTTI_SUM, opts), "all_reduce|9223372036854775807|float32|2^63 bytes");
    INVALID(tutti_send(F(INT64_MAX / 4 + 1), 0, opts), "send|2^63 bytes");
    INVALID(tutti_broadcast(tutti_tensor_of(f, 1, (tutti_dtype)0x1234), 0, opts), "broadcast|dtype 0x1234");
    INVALID(tutti_all_reduce(tutti_tensor_of(f, 1, (tutti_dtype)0), TUTTI_SUM, opts), "dtype 0x0");
    INVALID(tutti_all_reduce(on_cuda(F(4)), TUTTI_SUM, opts), "all_reduce|CUDA tensor|loop|no backend");
    INVALID(tutti_recv(on_cuda(F(4)), 0, opts), "recv|CUDA tensor");
    INVALID(tutti_all_reduce(tutti_on(F(4), (tutti_device){7, 0}), TUTTI_SUM, opts), "device type 7");
    INVALID(tutti_all_reduce_into(D(4), F(4), TUTTI_SUM, opts), "all_reduce|dtype|float32|float64");
    INVALID(tutti_all_reduce_into(F(3), F(4), TUTTI_SUM, opts), "all_reduce|in has 4|out has 3");
    INVALID(tutti_all_reduce_into(tutti_on(F(4), (tutti_device){TUTTI_CPU, 1}), F(4), TUTTI_SUM, opts),
            "different devices|1:0|1:1");
    INVALID(tutti_reduce_into(N(4), F(4), WRONG, TUTTI_SUM, opts), "reduce|dtype");
    INVALID(tutti_reduce_into(F(5), F(4), WRONG, TUTTI_SUM, opts), "reduce|in has 4|out has 5");
    return 0;
}

static int reduce_ops(void)
{
    const tutti_opts *opts = OPTS(.tag = 0);
    _Complex float c[4];
    INVALID(tutti_all_reduce(F(4), (tutti_reduce_op)99, opts), "all_reduce|reduce op 99");
    INVALID(tutti_reduce(F(4), 0, (tutti_reduce_op)-1, opts), "reduce|reduce op -1");
    REFUSED(tutti_all_reduce(F(4), TUTTI_BAND, opts), UNSUPPORTED, "all_reduce|BAND|float32");
    REFUSED(tutti_reduce(D(4), 0, TUTTI_BXOR, opts), UNSUPPORTED, "reduce|BXOR|float64");
    REFUSED(tutti_reduce_scatter_tensor(F(1), tutti_view(f + 4, 3), TUTTI_BOR, opts), UNSUPPORTED,
            "reduce_scatter|BOR");
    INVALID(tutti_all_reduce(F(4), TUTTI_PREMUL_SUM, opts), "all_reduce|PREMUL_SUM|factor");
    REFUSED(tutti_all_reduce(N(4), TUTTI_PREMUL_SUM, OPTS(.factor = 2)), UNSUPPORTED, "PREMUL_SUM|int32");
    REFUSED(tutti_all_reduce(tutti_view(c, 4), TUTTI_MAX, opts), UNSUPPORTED, "MAX|complex64");
    return 0;
}

static int roots(void)
{
    const tutti_opts *opts = OPTS(.tag = 0), *group_rank = NULL;
    INVALID(tutti_broadcast(F(4), 3, opts), "broadcast|root is 3|3 ranks");
    INVALID(tutti_broadcast(F(4), -1, opts), "broadcast|root is -1");
    INVALID(tutti_reduce(F(4), INT32_MAX, TUTTI_SUM, opts), "reduce|root is 2147483647");
    INVALID(tutti_reduce_into(F(4), F(4), INT32_MIN, TUTTI_SUM, opts), "reduce|root is -2147483648");
    INVALID(tutti_gather(F(1), NULL, 0, 3, opts), "gather|root is 3");
    INVALID(tutti_gather_into_tensor(F(3), F(1), 4, opts), "gather|root is 4");
    INVALID(tutti_scatter(F(1), NULL, 0, 5, opts), "scatter|root is 5");
    INVALID(tutti_scatter_tensor(F(1), F(3), -7, opts), "scatter|root is -7");
    INVALID(tutti_send(F(1), 3, opts), "send|dst is 3");
    INVALID(tutti_send(F(1), WRONG, opts), "send|dst is 1|this rank itself");
    INVALID(tutti_send(F(1), TUTTI_ANY_SOURCE, opts), "send|dst is -1");
    INVALID(tutti_recv(F(1), 3, opts), "recv|src is 3");
    INVALID(tutti_recv(F(1), WRONG, opts), "recv|src is 1|this rank itself");
    INVALID(tutti_recv(F(1), -2, opts), "recv|src is -2");
    group_rank = OPTS(.group_rank = true);
    INVALID(tutti_broadcast(F(4), 3, group_rank), "root is 3|not a rank of group");
    INVALID(tutti_send(F(4), WRONG, group_rank), "this rank itself");
    return 0;
}

static int options(void)
{
    tutti_work *work = NULL;
    INVALID(tutti_broadcast(F(4), 0, OPTS(.timeout_ms = -1)), "broadcast|timeout_ms is -1|negative");
    INVALID(tutti_barrier(OPTS(.timeout_ms = INT64_MIN)), "barrier|timeout_ms is -9223372036854775808");
    INVALID(tutti_monitored_barrier(OPTS(.timeout_ms = -5)), "monitored_barrier|timeout_ms is -5");
    INVALID(tutti_send(F(1), 0, OPTS(.tag = -1)), "send|tag is -1|negative");
    INVALID(tutti_recv(F(1), 0, OPTS(.tag = INT32_MIN)), "recv|tag is -2147483648");
    INVALID(tutti_isend(F(1), 0, OPTS(.tag = -3), &work), "send|tag is -3");
    INVALID(tutti_isend(F(1), 0, OPTS(.tag = 0), NULL), "isend|work is NULL");
    INVALID(tutti_irecv(F(1), 0, OPTS(.tag = 0), NULL), "irecv|work is NULL");
    INVALID(tutti_irecv(F(-1), 0, OPTS(.tag = 0), &work), "recv|numel is -1");
    /* the call itself refuses an async operation, without a Work */
    INVALID(tutti_all_reduce(F(-4), TUTTI_SUM, OPTS(.async_op = &work)), "numel is -4");
    return work == NULL ? 0 : __LINE__;
}

static int lists(void)
{
    const tutti_opts *opts = OPTS(.tag = 0);
    INVALID(tutti_all_gather(NULL, SIZE, F(1), opts), "all_gather|out list is NULL");
    INVALID(tutti_all_gather(list(1, 1, 1), 2, F(1), opts), "all_gather|out list has 2|3 ranks");
    INVALID(tutti_all_gather(list(1, 1, 1), 4, F(1), opts), "all_gather|out list has 4|3 ranks");
    INVALID(tutti_all_gather(list(1, 1, 1), 0, F(1), opts), "all_gather|0 tensors");
    INVALID(tutti_all_gather(list(1, 1, 1), -1, F(1), opts), "all_gather|-1 tensors");
    INVALID(tutti_all_gather(list(1, 2, 1), SIZE, F(1), opts), "all_gather|out[1] has 2|in tensor|has 1");
    INVALID(tutti_all_gather(changed(list(1, 1, 1), 2, N(1)), SIZE, F(1), opts), "all_gather|dtype|float32|int32");
    INVALID(tutti_all_gather(changed(list(1, 1, 1), 0, F(-1)), SIZE, F(1), opts), "all_gather|out[0]|numel is -1");
    INVALID(tutti_all_gather(changed(list(1, 1, 1), 2, on_cuda(F(1))), SIZE, F(1), opts), "out[2]|CUDA");
    INVALID(tutti_all_gather_into_tensor(F(4), F(1), opts), "all_gather|has 4|3 times|1");
    INVALID(tutti_all_gather_into_tensor(F(6), F(INT64_MAX / 4), opts), "all_gather|has 6|3 times");

    INVALID(tutti_gather(F(1), list(1, 1, 1), SIZE, 0, opts), "gather|out list|only the root (rank 0)");
    INVALID(tutti_gather(F(1), list(1, 1, 1), 0, 0, opts), "gather|only the root (rank 0)");
    INVALID(tutti_gather(F(1), NULL, 0, WRONG, opts), "gather|no out list|3 tensors");
    INVALID(tutti_gather(F(1), NULL, SIZE, WRONG, opts), "gather|no out list");
    INVALID(tutti_gather(F(1), list(1, 1, 1), 2, WRONG, opts), "gather|out list has 2|3 ranks");
    INVALID(tutti_gather(F(1), list(1, 1, 1), -2, WRONG, opts), "gather|-2 tensors");
    INVALID(tutti_gather(F(1), list(1, 3, 1), SIZE, WRONG, opts), "gather|out[1] has 3");
    INVALID(tutti_gather_into_tensor(F(2), F(1), WRONG, opts), "gather|has 2|3 times");

    INVALID(tutti_scatter(F(1), list(1, 1, 1), SIZE, 0, opts), "scatter|in list|only the root (rank 0)");
    INVALID(tutti_scatter(F(1), NULL, 0, WRONG, opts), "scatter|no in list|3 tensors");
    INVALID(tutti_scatter(F(1), list(1, 1, 1), 4, WRONG, opts), "scatter|in list has 4|3 ranks");
    INVALID(tutti_scatter(F(1), list(1, 2, 1), SIZE, WRONG, opts), "scatter|in[1] has 2");
    INVALID(tutti_scatter(F(1), NULL, -1, WRONG, opts), "scatter|-1 tensors");
    INVALID(tutti_scatter_tensor(F(1), F(4), WRONG, opts), "scatter|has 4|3 times");

    INVALID(tutti_reduce_scatter(F(1), NULL, SIZE, TUTTI_SUM, opts), "reduce_scatter|in list is NULL");
    INVALID(tutti_reduce_scatter(F(1), list(1, 1, 1), 2, TUTTI_SUM, opts), "reduce_scatter|in list has 2|3 ranks");
    INVALID(tutti_reduce_scatter(F(1), list(1, 2, 1), SIZE, TUTTI_SUM, opts), "reduce_scatter|in[1] has 2");
    INVALID(tutti_reduce_scatter(F(1), NULL, 0, TUTTI_SUM, opts), "reduce_scatter|0 tensors");
    INVALID(tutti_reduce_scatter_tensor(F(1), F(4), TUTTI_SUM, opts), "reduce_scatter|has 4|3 times");
    return 0;
}

static int all_to_all(void)
{
    const tutti_opts *opts = OPTS(.tag = 0);
    INVALID(tutti_all_to_all(NULL, list(1, 1, 1), SIZE, opts), "all_to_all|out list is NULL");
    INVALID(tutti_all_to_all(list(1, 1, 1), NULL, SIZE, opts), "all_to_all|in list is NULL");
    INVALID(tutti_all_to_all(list(1, 1, 1), list(1, 1, 1), 2, opts), "all_to_all|2 tensors|3 ranks");
    INVALID(tutti_all_to_all(list(1, 1, 1), list(1, 1, 1), 0, opts), "all_to_all|0 tensors");
    INVALID(tutti_all_to_all(list(1, 1, 1), list(1, 2, 1), SIZE, opts), "all_to_all|in[1] has 2|out[1] has 1");
    INVALID(tutti_all_to_all_single(F(6), F(6), splits(2, 2, 2), NULL, opts), "all_to_all|both|neither");
    INVALID(tutti_all_to_all_single(F(6), F(6), NULL, splits(2, 2, 2), opts), "all_to_all|both|neither");
    INVALID(tutti_all_to_all_single(F(7), F(7), NULL, NULL, opts), "all_to_all|7 elements|divide by 3");
    INVALID(tutti_all_to_all_single(F(3), F(6), NULL, NULL, opts), "all_to_all|in has 6|out has 3");
    INVALID(tutti_all_to_all_single(F(6), F(6), splits(2, 2, 2), splits(1, 2, 2), opts), "in_splits add up to 5|6");
    INVALID(tutti_all_to_all_single(F(6), F(6), splits(2, 2, 2), splits(3, 2, 2), opts), "in_splits|more than|6");
    INVALID(tutti_all_to_all_single(F(6), F(6), splits(2, 2, 1), splits(2, 2, 2), opts), "out_splits add up to 5|6");
    INVALID(tutti_all_to_all_single(F(6), F(6), splits(2, 2, 2), splits(-1, 5, 2), opts), "in_splits[0] is -1");
    INVALID(tutti_all_to_all_single(F(6), F(6), splits(2, 2, 2), splits(2, INT64_MAX, 2), opts), "more than");
    INVALID(tutti_all_to_all_single(F(6), F(6), splits(3, 2, 1), splits(2, 3, 1), opts),
            "in_splits[1] is 3|out_splits[1] is 2");
    return 0;
}

#define AT(from, count) tutti_view(f + (from), count)

static int overlaps(void)
{
    const tutti_opts *opts = OPTS(.tag = 0);
    INVALID(tutti_all_reduce_into(AT(0, 4), AT(1, 4), TUTTI_SUM, opts), "all_reduce|in and out overlap|the same");
    INVALID(tutti_all_reduce_into(AT(3, 4), AT(0, 4), TUTTI_SUM, opts), "all_reduce|in and out overlap");
    INVALID(tutti_reduce_into(AT(0, 4), AT(1, 4), WRONG, TUTTI_SUM, opts), "reduce|in and out overlap");
    INVALID(tutti_all_gather_into_tensor(AT(0, 6), AT(0, 2), opts), "all_gather|in and out overlap|own block");
    INVALID(tutti_all_gather_into_tensor(AT(0, 6), AT(3, 2), opts), "all_gather|in and out overlap");
    INVALID(tutti_all_gather_into_tensor(AT(0, 6), AT(5, 2), opts), "all_gather|in and out overlap");
    INVALID(tutti_all_gather(list(1, 2, 1), SIZE, AT(5, 2), opts), "all_gather|in and out[1] overlap");
    INVALID(tutti_all_gather(list(2, 2, 2), SIZE, AT(8, 2), opts), "all_gather|in and out[2] overlap|own block");
    INVALID(tutti_gather_into_tensor(AT(0, 6), AT(1, 2), WRONG, opts), "gather|in and out overlap");
    INVALID(tutti_gather(AT(0, 2), list(1, 2, 1), SIZE, WRONG, opts), "gather|in and out[0] overlap");
    INVALID(tutti_scatter_tensor(AT(0, 2), AT(0, 6), WRONG, opts), "scatter|in and out overlap|own block");
    INVALID(tutti_scatter(AT(5, 2), list(1, 2, 1), SIZE, WRONG, opts), "scatter|in[1] and out overlap");
    INVALID(tutti_reduce_scatter_tensor(AT(1, 2), AT(0, 6), TUTTI_SUM, opts), "reduce_scatter|in and out overlap");
    INVALID(tutti_reduce_scatter(AT(8, 2), list(2, 2, 2), SIZE, TUTTI_SUM, opts), "reduce_scatter|in[2] and out");
    INVALID(tutti_all_to_all_single(AT(0, 6), AT(1, 6), NULL, NULL, opts), "all_to_all|in and out overlap|the same");
    INVALID(tutti_all_to_all_single(AT(0, 6), AT(0, 6), splits(1, 2, 3), splits(3, 2, 1), opts),
            "all_to_all|in and out overlap|blocks of the same sizes");
    INVALID(tutti_all_to_all_single(AT(0, 5), AT(0, 6), splits(2, 2, 1), splits(2, 2, 2), opts), "overlap");
    INVALID(tutti_all_to_all(list(1, 1, 2), list(1, 1, 1), SIZE, opts), "all_to_all|in[0] and out[0] overlap");
    INVALID(tutti_all_to_all(list(1, 1, 1), changed(list(1, 1, 1), 2, AT(12, 1)), SIZE, opts), "in[0] and out[0]");
    INVALID(tutti_all_to_all(list(1, 1, 1), changed(list(1, 1, 1), 0, AT(8, 1)), SIZE, opts), "in[0] and out[2]");
    return 0;
}

static int batches(void)
{
    const tutti_opts *opts = OPTS(.tag = 0);
    tutti_work *works[2] = {NULL, NULL};
    tutti_p2p_op ops[2] = {{TUTTI_SEND, F(1), 0, 0, NULL}, {TUTTI_RECV, F(1), 0, 0, NULL}};
    INVALID(tutti_batch_isend_irecv(NULL, 2, opts, works), "batch_isend_irecv|NULL");
    INVALID(tutti_batch_isend_irecv(ops, 2, opts, NULL), "batch_isend_irecv|NULL");
    INVALID(tutti_batch_isend_irecv(ops, -1, opts, works), "batch_isend_irecv|-1");
    /* in each row the first operation is valid, and must not have been started */
    ops[1].kind = TUTTI_ALL_REDUCE;
    INVALID(tutti_batch_isend_irecv(ops, 2, opts, works), "ops[1]|neither a send nor a receive");
    ops[1].kind = TUTTI_RECV;
    ops[1].peer = 3;
    INVALID(tutti_batch_isend_irecv(ops, 2, opts, works), "recv|src is 3");
    ops[1].peer = WRONG;
    INVALID(tutti_batch_isend_irecv(ops, 2, opts, works), "recv|this rank itself");
    ops[1].peer = 0;
    ops[1].tag = -2;
    INVALID(tutti_batch_isend_irecv(ops, 2, opts, works), "recv|tag is -2");
    ops[1].tag = 0;
    ops[1].tensor.numel = -1;
    INVALID(tutti_batch_isend_irecv(ops, 2, opts, works), "recv|numel is -1");
    return works[0] == NULL && works[1] == NULL ? 0 : __LINE__;
}

static int bytes(void)
{
    const tutti_opts *opts = OPTS(.tag = 0);
    tutti_bytes out[4] = {{NULL, 0}}, in[4] = {{f, 1}, {f, 1}, {f, 1}, {f, 1}};
    INVALID(tutti_all_gather_bytes(NULL, SIZE, "x", 1, opts), "all_gather_bytes|3 ranks");
    INVALID(tutti_all_gather_bytes(out, 4, "x", 1, opts), "all_gather_bytes|4 entries|3 ranks");
    INVALID(tutti_all_gather_bytes(out, SIZE, NULL, 1, opts), "all_gather_bytes|data is NULL");
    INVALID(tutti_gather_bytes(out, 2, "x", 1, WRONG, opts), "gather_bytes|2 entries");
    INVALID(tutti_gather_bytes(NULL, SIZE, "x", 1, WRONG, opts), "gather_bytes|3 ranks");
    INVALID(tutti_gather_bytes(out, SIZE, "x", 1, 3, opts), "root is 3");
    INVALID(tutti_all_gather_bytes(out, SIZE, "x", SIZE_MAX, opts), "all_gather_bytes|more than memory can be");
    INVALID(tutti_gather_bytes(out, SIZE, "x", SIZE_MAX, WRONG, opts), "gather_bytes|more than memory can be");
    INVALID(tutti_broadcast_bytes(NULL, 0, opts), "broadcast_bytes|NULL");
    INVALID(tutti_broadcast_bytes(in, 17, opts), "root is 17");
    INVALID(tutti_scatter_bytes(NULL, in, SIZE, WRONG, opts), "scatter_bytes|out is NULL");
    INVALID(tutti_scatter_bytes(out, in, 4, WRONG, opts), "scatter_bytes|4 entries|3 ranks");
    INVALID(tutti_scatter_bytes(out, NULL, SIZE, WRONG, opts), "scatter_bytes|3 ranks");
    INVALID(tutti_scatter_bytes(out, in, SIZE, -1, opts), "root is -1");
    return 0;
}

static int works(void)
{
    tutti_work *none = NULL;
    int index = 5;
    INVALID(tutti_wait(NULL, 0), "wait|NULL");
    INVALID(tutti_wait(&none, 0), "wait|NULL");
    INVALID(tutti_work_wait(NULL, 0), "wait|NULL");
    INVALID(tutti_wait_all(NULL, 1, 0), "wait_all");
    INVALID(tutti_wait_all(&none, -1, 0), "wait_all|-1");
    INVALID(tutti_wait_all(&none, 1, -1), "timeout_ms is -1");
    INVALID(tutti_wait_any(&none, 1, 0, NULL), "wait_any|NULL");
    INVALID(tutti_wait_any(NULL, 1, 0, &index), "wait_any|NULL");
    INVALID(tutti_wait_any(&none, 1, -7, &index), "timeout_ms is -7");
    INVALID(tutti_work_then(NULL, NULL, NULL), "work_then|NULL");
    INVALID(tutti_work_fd(NULL), "work_fd|NULL");
    return 0;
}

static int groups(void)
{
    tutti_group_opts opts = {.parent = own};
    tutti_group *made = NULL;
    int ranks[4] = {0, 1, 2, 3}, twice[2] = {1, 1}, far[2] = {1, 3}, below[2] = {-1, 1};
    INVALID(tutti_new_group(NULL, 2, &opts, &made), "new_group|0 ranks");
    INVALID(tutti_new_group(ranks, 0, &opts, &made), "new_group|0 ranks");
    INVALID(tutti_new_group(ranks, -1, &opts, &made), "new_group|-1 ranks");
    INVALID(tutti_new_group(ranks, 4, &opts, &made), "new_group|4 ranks|group own has 3");
    INVALID(tutti_new_group(twice, 2, &opts, &made), "new_group|rank 1|twice");
    INVALID(tutti_new_group(far, 2, &opts, &made), "new_group|ranks[1] is 3");
    INVALID(tutti_new_group(below, 2, &opts, &made), "new_group|ranks[0] is -1");
    INVALID(tutti_new_group(ranks, 2, &opts, NULL), "new_group|group is NULL");
    INVALID(tutti_split_group(0, 0, &opts, NULL), "split_group|group is NULL");
    INVALID(tutti_shrink_group(own, NULL), "shrink_group|smaller is NULL");
    opts.timeout_ms = -1;
    INVALID(tutti_new_group(ranks, 2, &opts, &made), "new_group|timeout_ms is -1");
    INVALID(tutti_split_group(0, 0, &opts, &made), "split_group|timeout_ms is -1");
    INVALID(tutti_create_group("loop", NULL, 0, 1, NULL, &made), "create_group|store is NULL");
    INVALID(tutti_alloc(own, -1, (void **)&made), "alloc|-1");
    INVALID(tutti_alloc(own, 1, NULL), "alloc|NULL");
    const tutti_group_opts bad = {.parent = own, .members_only = true, .algorithm = "none"};
    tutti_group *single = NULL;
    if (tutti_new_group((int[]){WRONG}, 1, &bad, &single) != TUTTI_OK) return __LINE__;
    INVALID(tutti_barrier(tutti_with(.group = single)), "no algorithm|none");
    INVALID(tutti_recv(F(1), TUTTI_ANY_SOURCE, tutti_with(.group = single)), "recv|src is any rank|no other rank");
    INVALID(tutti_probe(TUTTI_ANY_SOURCE, tutti_with(.group = single), NULL), "probe|src is any rank|no other rank");
    if (tutti_destroy_process_group(single) != TUTTI_OK) return __LINE__;
    return made == NULL ? 0 : __LINE__;
}

static int without_default(void)
{
    tutti_group *made = NULL;
    INVALID(tutti_broadcast(F(4), 0, NULL), "no default group|tutti_init_process_group");
    INVALID(tutti_barrier(NULL), "no default group");
    INVALID(tutti_new_group((int[]){0}, 1, NULL, &made), "no default group");
    INVALID(tutti_split_group(0, 0, NULL, &made), "no default group");
    INVALID(tutti_shrink_group(NULL, &made), "no default group");
    INVALID(tutti_broadcast_bytes(&(tutti_bytes){f, 1}, 0, NULL), "no default group");
    INVALID(tutti_batch_isend_irecv(NULL, 0, NULL, NULL), "no default group");
    INVALID(tutti_abort(NULL, "why"), "no default group");
    INVALID(tutti_destroy_process_group(NULL), "no default group");
    if (tutti_get_rank(NULL) != -1 || tutti_get_world_size(NULL) != -1) return __LINE__;
    if (tutti_get_global_rank(NULL, 0) != -1 || tutti_get_group_rank(NULL, 0) != -1) return __LINE__;
    return 0;
}

/* ---- the ranks --------------------------------------------------------------------------------------------- */

static const struct part {
    const char *name;
    int (*run)(void);
} parts[] = {{"tensors", tensors},
             {"reduce_ops", reduce_ops},
             {"roots", roots},
             {"options", options},
             {"lists", lists},
             {"all_to_all", all_to_all},
             {"batches", batches},
             {"bytes", bytes},
             {"works", works},
             {"groups", groups},
             {"without_default", without_default},
             {"overlaps", overlaps}};

/* Makes the mistakes of the part that argument names. */
static int mistakes(tutti_group *group, int rank, int size, void *argument)
{
    int sum = rank, line = 0;
    (void)size;
    if (rank == WRONG) {
        own = group;
        line = ((const struct part *)argument)->run();
    }
    /* the other ranks wait here meanwhile */
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&sum, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(sum == 3);
    return line;
}

static void test_part(void **state)
{
    ranks_run(SIZE, mistakes, *state);
}

/* In a group that this rank is not in, only its rank can be asked for, and the group can be destroyed. */
static int non_member(tutti_group *group, int rank, int size, void *argument)
{
    tutti_group *pair = NULL;
    tutti_group_opts opts = {.parent = group};
    (void)size;
    (void)argument;
    EXPECT(tutti_new_group((int[]){2, 0}, 2, &opts, &pair) == TUTTI_OK);
    if (rank == WRONG) {
        tutti_group *none = NULL;
        int kept = tutti_get_rank(pair) == -1 && tutti_get_world_size(pair) == -1 ? 0 : __LINE__;
        EXPECT(kept == 0);
        EXPECT(tutti_get_global_rank(pair, 0) == -1 && tutti_get_group_rank(pair, 0) == -1);
        own = pair;
        INVALID(tutti_all_reduce(F(4), TUTTI_SUM, OPTS(.tag = 0)), "all_reduce|not in group");
        INVALID(tutti_broadcast(F(4), 0, OPTS(.tag = 0)), "broadcast|not in group");
        INVALID(tutti_send(F(4), 0, OPTS(.tag = 0)), "send|not in group");
        INVALID(tutti_barrier(OPTS(.tag = 0)), "barrier|not in group");
        INVALID(tutti_all_gather_bytes(&(tutti_bytes){0}, 1, "", 0, OPTS(.tag = 0)), "not in group");
        INVALID(tutti_new_group((int[]){0}, 1, &(tutti_group_opts){.parent = pair}, &none), "not in the parent group");
        INVALID(tutti_abort(pair, "why"), "not in group");
        INVALID(tutti_shrink_group(pair, &(tutti_group *){NULL}), "shrink_group|not in group");
        EXPECT(none == NULL);
    } else {
        /* root is a global rank: 2 is the pair's first */
        int value = rank == 2 ? 7 : 0;
        EXPECT(tutti_get_rank(pair) == (rank == 2 ? 0 : 1));
        EXPECT(tutti_broadcast(tutti_view(&value, 1), 2, tutti_with(.group = pair)) == TUTTI_OK);
        EXPECT(value == 7);
        int code = tutti_broadcast(tutti_view(&value, 1), 1, tutti_with(.group = pair));
        EXPECT(code == TUTTI_ERR_INVALID_ARGUMENT);
        EXPECT(strstr(tutti_last_error(), "root is 1, which is not a global rank of group") != NULL);
        EXPECT(tutti_barrier(tutti_with(.group = pair)) == TUTTI_OK);
    }
    EXPECT(tutti_destroy_process_group(pair) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

static void test_non_member(void **state)
{
    (void)state;
    ranks_run(SIZE, non_member, NULL);
}

/* The root refuses these byte strings.  It must not have sent their sizes before. */
static int late_refusal(tutti_group *group, int rank, int size, void *argument)
{
    tutti_bytes bad = {NULL, 5}, out = {0}, in[SIZE] = {{f, 1}, {NULL, 5}, {f, 1}}, negative = {f, (size_t)-1};
    (void)size;
    (void)argument;
    if (rank == WRONG) {
        own = group;
        INVALID(tutti_broadcast_bytes(&bad, WRONG, OPTS(.tag = 0)), "NULL");
        INVALID(tutti_scatter_bytes(&out, in, SIZE, WRONG, OPTS(.tag = 0)), "NULL");
        INVALID(tutti_broadcast_bytes(&negative, WRONG, OPTS(.tag = 0)), "more than memory can be");
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

static void test_late_refusal(void **state)
{
    (void)state;
    ranks_run_with(SIZE, late_refusal, NULL, (tutti_group_opts){.timeout_ms = 5000});
}

/* ---- calls without a group ---------------------------------------------------------------------------------- */

static int alone(void)
{
    INVALID(tutti_reduce_local(F(4), tutti_view(f + 4, 3), TUTTI_SUM), "reduce_local|4 and 3");
    INVALID(tutti_reduce_local(F(4), D(4), TUTTI_SUM), "reduce_local|float32 and float64");
    INVALID(tutti_reduce_local(F(4), tutti_view(f + 4, 4), (tutti_reduce_op)77), "reduce op 77 does not exist");
    INVALID(tutti_reduce_local(F(4), tutti_view(f + 4, 4), (tutti_reduce_op)-1), "reduce op -1 does not exist");
    REFUSED(tutti_reduce_local(F(4), tutti_view(f + 4, 4), TUTTI_BAND), UNSUPPORTED, "BAND does not reduce float32");
    INVALID(tutti_cast(F(4), tutti_view(d, 3)), "cast|out has 4|in has 3");
    INVALID(tutti_cast(tutti_view(d, 2), tutti_tensor_of(d, 2, TUTTI_FLOAT32)), "cast|float64|float32|overlap");
    INVALID(tutti_cast(tutti_tensor_of(d + 1, 2, TUTTI_FLOAT32), tutti_view(d, 2)), "cast|overlap|disjoint");
    INVALID(tutti_cast(F(-1), D(-1)), "cast|out|numel is -1");
    INVALID(tutti_cast(F(4), tutti_tensor_of(NULL, 4, TUTTI_FLOAT64)), "cast|in|data is NULL|4");
    INVALID(tutti_cast(F(4), tutti_tensor_of(d, 4, (tutti_dtype)0x1234)), "cast|in|dtype 0x1234");
    REFUSED(tutti_cast(F(4), N(4)), UNSUPPORTED, "cast|in is int32|floating");
    REFUSED(tutti_cast(on_cuda(F(4)), D(4)), UNSUPPORTED, "cast|out has device type 2|CPU");
    tutti_init_opts nowhere = {.device = {7, 0}}, below = {.device = {TUTTI_CUDA, -7}};
    INVALID(tutti_init_process_group("loop", &nowhere), "init|device type 7");
    INVALID(tutti_init_process_group("loop", &below), "init|index is -7");
    return 0;
}

static void test_alone(void **state)
{
    (void)state;
    assert_int_equal(alone(), 0);
    assert_string_equal(tutti_status_string(TUTTI_ERR_NOT_FOUND), "TUTTI_ERR_NOT_FOUND");
    assert_string_equal(tutti_status_string(TUTTI_ERR_NOT_FOUND - 1), "unknown status");
    assert_string_equal(tutti_status_string(1), "unknown status");
    assert_string_equal(tutti_status_string(INT32_MIN), "unknown status");
}

int main(void)
{
    enum { PARTS = sizeof parts / sizeof *parts, OTHERS = 3 };
    struct CMUnitTest tests[PARTS + OTHERS] = {cmocka_unit_test(test_non_member), cmocka_unit_test(test_late_refusal),
                                               cmocka_unit_test(test_alone)};
    for (int i = 0; i < PARTS; i++)
        tests[i + OTHERS] = (struct CMUnitTest){parts[i].name, test_part, NULL, NULL, (void *)(uintptr_t)&parts[i]};
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
