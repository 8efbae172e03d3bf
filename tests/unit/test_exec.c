/* The executor over the test's own point-to-point table: which messages are issued and when, completion in any order, a
 * failure in the middle, cancelling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coll/coll.h"
#include "plan/exec.h"

enum { MOST = 256 };

/* The backend: records its requests. */
struct fake {
    tutti_request *pending[MOST];
    int n, issued, cancelled;
    int answer_send, answer_recv; /* PENDING, DONE or an error */
    int fail_at;                  /* index of the request to refuse; -1: none */
    bool keep;                    /* cancel comes too late */
    float *remote;                /* the data of receives */
    const float *copied;          /* source of the copy */
    float copied_before;          /* value there when a receive was issued */
};

static struct fake fake;

static int take(tutti_request *request, int answer)
{
    assert_true(fake.n < MOST);
    assert_non_null(request->owner);
    for (int i = 0; i < 8; i++) assert_null(request->priv[i]);
    if (fake.issued++ == fake.fail_at) return TUTTI_ERR_PEER_LOST;
    if (answer == TUTTI_REQUEST_PENDING) fake.pending[fake.n++] = request;
    return answer;
}

static int fake_send(void *group, tutti_request *request)
{
    assert_ptr_equal(group, &fake);
    return take(request, fake.answer_send);
}

static int fake_recv(void *group, tutti_request *request)
{
    assert_ptr_equal(group, &fake);
    if (fake.remote != NULL && request->bytes > 0) memcpy(request->data, fake.remote, request->bytes);
    if (fake.copied != NULL) fake.copied_before = *fake.copied;
    return take(request, fake.answer_recv);
}

static int fake_recv_reduce(void *group, tutti_request *request)
{
    assert_ptr_equal(group, &fake);
    float *data = request->data;
    const float *addend = request->addend;
    assert_int_equal(request->op, TUTTI_SUM);
    assert_int_equal(request->dtype, TUTTI_FLOAT32);
    for (size_t i = 0; i < request->bytes / sizeof *data; i++) data[i] = addend[i] + fake.remote[i];
    return take(request, fake.answer_recv);
}

static int fake_cancel(void *group, tutti_request *request)
{
    assert_ptr_equal(group, &fake);
    if (fake.keep) return TUTTI_ERR_NOT_FOUND;
    for (int i = 0; i < fake.n; i++)
        if (fake.pending[i] == request) {
            fake.pending[i] = fake.pending[--fake.n];
            fake.cancelled++;
            return TUTTI_OK;
        }
    fail_msg("cancel of an unknown request");
    return TUTTI_ERR_NOT_FOUND;
}

static const tutti_backend table = {TUTTI_BACKEND_HEADER, .send = fake_send, .recv = fake_recv,
                                    .recv_reduce = fake_recv_reduce, .cancel = fake_cancel};

static int mark; /* the owner of all requests */

static void fresh(void)
{
    fake = (struct fake){.fail_at = -1};
}

/* Completes the i-th pending request. */
static void complete(struct exec *exec, int i, int status)
{
    tutti_request *request = fake.pending[i];
    memmove(&fake.pending[i], &fake.pending[i + 1], (size_t)(--fake.n - i) * sizeof *fake.pending);
    exec_complete(exec, request, status);
}

static void drain(struct exec *exec)
{
    while (exec_advance(exec)) continue;
}

struct setup {
    struct plan *plan;
    struct exec *exec;
    tutti_tensor in, out;
    float in_data[64], out_data[64], remote[64];
};

static struct setup *setup_new(struct plan *plan, tutti_reduce_op op, uint64_t tag)
{
    struct setup *setup = calloc(1, sizeof *setup);
    assert_non_null(setup);
    setup->plan = plan;
    setup->exec = exec_new(plan);
    assert_non_null(setup->exec);
    setup->in = (tutti_tensor){setup->in_data, 64, TUTTI_FLOAT32, {TUTTI_CPU, 0}};
    setup->out = (tutti_tensor){setup->out_data, 64, TUTTI_FLOAT32, {TUTTI_CPU, 0}};
    for (int i = 0; i < 64; i++) {
        setup->in_data[i] = (float)i;
        setup->remote[i] = 100 + (float)i;
    }
    fake.remote = setup->remote;
    struct exec_run run = {.backend = &table,
                           .state = &fake,
                           .in = &setup->in,
                           .out = &setup->out,
                           .n_in = 1,
                           .n_out = 1,
                           .dtype = TUTTI_FLOAT32,
                           .op = op,
                           .factor = 0.5,
                           .tag = tag,
                           .fingerprint = 77,
                           .owner = &mark};
    setup->exec->run = run;
    assert_int_equal(exec_start(setup->exec), TUTTI_OK);
    return setup;
}

static void setup_free(struct setup *setup)
{
    exec_free(setup->exec);
    plan_free(setup->plan);
    free(setup);
}

/* Builds a collective's plan with the named algorithm. */
static struct plan *build(tutti_kind kind, const char *name, int rank, int size, int64_t count)
{
    struct coll_args args = {.kind = kind, .rank = rank, .size = size, .count = count, .even = true, .segment = 4};
    for (const struct coll_algorithm *a = coll_algorithms; a->name != NULL; a++)
        if (a->kind == kind && strcmp(a->name, name) == 0) {
            struct plan *plan = coll_build(a, &args, PLAN_ALWAYS);
            assert_non_null(plan);
            return plan;
        }
    fail_msg("no algorithm %s", name);
    return NULL;
}

/* Checks the fields of requests. */
static void test_requests(void **state)
{
    (void)state;
    fresh();
    struct plan *plan = plan_new(0, 3, PLAN_ALWAYS);
    plan_send(plan, 1, plan_at(PLAN_IN(0), 2), 5);
    plan_send(plan, 1, plan_at(PLAN_IN(0), 9), 0);
    plan_recv(plan, 2, plan_at(PLAN_OUT(0), 3), 4);
    plan_recv_reduce(plan, 1, plan_at(PLAN_OUT(0), 10), plan_at(PLAN_IN(0), 10), 6);
    assert_int_equal(plan_finish(plan), 0);
    struct setup *s = setup_new(plan, TUTTI_AVG, 1000);
    assert_false(exec_advance(s->exec));
    assert_int_equal(fake.n, 4);
    const tutti_request *r = fake.pending[0];
    assert_true(r->peer == 1 && r->tag == 1000 && r->bytes == 20 && r->data == &s->in_data[2] && r->fingerprint == 77);
    assert_true(r->owner == &mark && r->flags == TUTTI_REQUEST_EXPECTED);
    r = fake.pending[1]; /* an empty message counts as well */
    assert_true(r->peer == 1 && r->tag == 1001 && r->bytes == 0 && r->data == NULL);
    r = fake.pending[2];
    assert_true(r->peer == 2 && r->tag == 1000 && r->bytes == 16 && r->data == &s->out_data[3]);
    r = fake.pending[3]; /* AVG sums on the way */
    assert_true(r->peer == 1 && r->data == &s->out_data[10] && r->addend == &s->in_data[10] && r->op == TUTTI_SUM);
    assert_false(exec_ended(s->exec));
    while (fake.n > 0) complete(s->exec, fake.n - 1, TUTTI_OK);
    assert_true(exec_ended(s->exec) && s->exec->status == TUTTI_OK);
    assert_true(s->out_data[3] == 100 && s->out_data[10] == 110 && s->out_data[16] == 0);
    setup_free(s);
}

/* Nothing is issued before its dependencies are done.  Everything else is. */
static void test_order(void **state)
{
    (void)state;
    fresh();
    struct plan *plan = plan_new(0, 4, PLAN_ALWAYS);
    plan_recv(plan, 1, plan_at(PLAN_OUT(0), 0), 4);
    plan_reduce(plan, plan_at(PLAN_OUT(0), 0), plan_at(PLAN_OUT(0), 0), plan_at(PLAN_IN(0), 0), 4);
    plan_send(plan, 2, plan_at(PLAN_OUT(0), 0), 4);
    plan_send(plan, 3, plan_at(PLAN_OUT(0), 0), 4);
    plan_recv(plan, 1, plan_at(PLAN_OUT(0), 0), 4); /* data being sent may not be overwritten */
    assert_int_equal(plan_finish(plan), 0);
    struct setup *s = setup_new(plan, TUTTI_SUM, 0);
    drain(s->exec);
    assert_int_equal(fake.n, 1);
    complete(s->exec, 0, TUTTI_OK);
    assert_int_equal(fake.n, 0); /* completing issues nothing by itself */
    drain(s->exec);
    assert_int_equal(fake.n, 2);
    assert_true(s->out_data[3] == 106);
    complete(s->exec, 1, TUTTI_OK);
    drain(s->exec);
    assert_int_equal(fake.n, 1); /* the other send still reads */
    complete(s->exec, 0, TUTTI_OK);
    drain(s->exec);
    assert_int_equal(fake.n, 1);
    complete(s->exec, 0, TUTTI_OK);
    assert_true(exec_ended(s->exec) && s->exec->left == 0);
    setup_free(s);
}

/* Local steps run in order, with their arithmetic. */
static void test_local(void **state)
{
    (void)state;
    fresh();
    struct plan *plan = plan_new(0, 4, PLAN_ALWAYS);
    struct plan_ref scratch = plan_scratch(plan, 8);
    plan_scale(plan, scratch, plan_at(PLAN_IN(0), 8), 8);
    plan_reduce(plan, plan_at(PLAN_OUT(0), 0), scratch, plan_at(PLAN_IN(0), 16), 8);
    plan_average(plan, plan_at(PLAN_OUT(0), 0), plan_at(PLAN_OUT(0), 0), 8);
    plan_copy(plan, plan_at(PLAN_OUT(0), 20), plan_at(PLAN_OUT(0), 0), 8);
    assert_int_equal(plan_finish(plan), 0);
    struct setup *s = setup_new(plan, TUTTI_PREMUL_SUM, 0);
    int turns = 1;
    while (exec_advance(s->exec)) turns++; /* one local step a turn, with messages in between */
    assert_int_equal(turns, 4);
    assert_int_equal(fake.issued, 0);
    for (int i = 0; i < 8; i++) {
        assert_true(s->out_data[i] == ((float)(8 + i) * 0.5f + (float)(16 + i)) / 4);
        assert_true(s->out_data[20 + i] == s->out_data[i]);
    }
    setup_free(s);
}

/* A receive that a caller waits for is issued after the local steps, if both are small, and is marked as the last one.
 * A backend may then poll for its message.  Otherwise the receive is issued first, and this rank computes meanwhile. */
static void test_last(void **state)
{
    (void)state;
    enum { SMALL = 16 << 10, LARGE = SMALL + 1 }; /* 64 KiB count as small */
    static float in[2 * LARGE], out[2 * LARGE];
    static const struct {
        bool awaited, last;
        int numel;
    } cases[] = {{true, true, SMALL}, {false, false, SMALL}, {true, false, LARGE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fresh();
        struct plan *plan = plan_new(0, 2, PLAN_ALWAYS);
        plan_recv(plan, 1, plan_at(PLAN_OUT(0), LARGE), cases[i].numel);
        plan_copy(plan, plan_at(PLAN_OUT(0), 0), plan_at(PLAN_IN(0), 0), cases[i].numel);
        assert_int_equal(plan_finish(plan), 0);
        struct setup *s = setup_new(plan, TUTTI_SUM, 0);
        fake.remote = NULL;
        fake.answer_recv = TUTTI_REQUEST_PENDING;
        s->in = (tutti_tensor){in, 2 * LARGE, TUTTI_FLOAT32, {TUTTI_CPU, 0}};
        s->out = (tutti_tensor){out, 2 * LARGE, TUTTI_FLOAT32, {TUTTI_CPU, 0}};
        struct exec_run run = s->exec->run;
        run.in = &s->in;
        run.out = &s->out;
        run.awaited = cases[i].awaited;
        s->exec->run = run;
        assert_int_equal(exec_start(s->exec), TUTTI_OK);
        in[0] = (float)i + 1;
        out[0] = 0;
        fake.copied = &out[0];
        assert_false(exec_advance(s->exec));
        assert_int_equal(fake.issued, 1);
        assert_true((fake.copied_before != 0) == cases[i].last);
        assert_true(((fake.pending[0]->flags & TUTTI_REQUEST_AWAITED) != 0) == cases[i].last);
        assert_true(out[0] == (float)i + 1);
        complete(s->exec, 0, TUTTI_OK);
        assert_true(exec_ended(s->exec));
        setup_free(s);
    }
}

/* A plan without steps ends immediately. */
static void test_empty(void **state)
{
    (void)state;
    fresh();
    struct plan *plan = plan_new(0, 1, PLAN_ALWAYS);
    assert_int_equal(plan_finish(plan), 0);
    struct setup *s = setup_new(plan, TUTTI_SUM, 0);
    assert_true(exec_ended(s->exec));
    assert_false(exec_advance(s->exec));
    setup_free(s);
}

static const struct {
    tutti_kind kind;
    const char *name;
    int64_t count;
} algorithms[] = {{TUTTI_ALL_REDUCE, "ring", 60},      {TUTTI_ALL_REDUCE, "recursive_doubling", 60},
                  {TUTTI_BROADCAST, "binomial", 60},   {TUTTI_REDUCE, "binomial", 60},
                  {TUTTI_BARRIER, "dissemination", 0}, {TUTTI_ALL_REDUCE, "recursive_doubling", 0}};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

/* Every order of completion ends the plan, and each step is issued once.  Sends complete at once or later. */
static void test_any_order(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int a = 0; a < ALGORITHMS; a++)
        for (int rank = 0; rank < 6; rank++)
            for (int turn = 0; turn < 40; turn++) {
                fresh();
                fake.answer_send = turn % 4 == 1 || turn % 4 == 3 ? TUTTI_REQUEST_DONE : TUTTI_REQUEST_PENDING;
                fake.answer_recv = turn % 4 >= 2 ? TUTTI_REQUEST_DONE : TUTTI_REQUEST_PENDING;
                struct plan *plan = build(algorithms[a].kind, algorithms[a].name, rank, 6, algorithms[a].count);
                int messages = 0;
                for (uint32_t i = 0; i < plan->n_steps; i++) messages += plan->steps[i].kind <= PLAN_RECV_REDUCE;
                struct setup *s = setup_new(plan, TUTTI_SUM, 0);
                drain(s->exec);
                while (fake.n > 0) {
                    int which = (int)((seed = seed * 1103515245 + 12345) >> 16) % fake.n;
                    assert_false(exec_ended(s->exec));
                    complete(s->exec, which, TUTTI_OK);
                    if (seed >> 28 & 1) drain(s->exec);
                    if (fake.n == 0) drain(s->exec);
                }
                assert_true(exec_ended(s->exec));
                assert_int_equal(s->exec->left, 0);
                assert_int_equal(s->exec->in_flight, 0);
                assert_int_equal(fake.issued, messages);
                setup_free(s);
            }
}

/* An exec runs again, also after a failed run. */
static void test_again(void **state)
{
    (void)state;
    fresh();
    struct setup *s = setup_new(build(TUTTI_ALL_REDUCE, "recursive_doubling", 1, 4, 4), TUTTI_SUM, 0);
    for (int turn = 0; turn < 10; turn++) {
        struct exec_run run = s->exec->run;
        fake.issued = 0;
        fake.fail_at = turn % 3 == 1 ? turn % 4 : -1;
        run.tag = (uint64_t)turn << 28;
        s->exec->run = run;
        assert_int_equal(exec_start(s->exec), TUTTI_OK);
        drain(s->exec);
        while (fake.n > 0) {
            assert_int_equal(fake.pending[0]->tag >> 28, turn);
            complete(s->exec, 0, TUTTI_OK);
            drain(s->exec);
        }
        assert_true(exec_ended(s->exec));
        assert_int_equal(s->exec->status, turn % 3 == 1 ? TUTTI_ERR_PEER_LOST : TUTTI_OK);
    }
    setup_free(s);
}

/* A message fails.  Nothing more is issued, and the run ends with the first failure when pending requests have ended.
 */
static void test_failure(void **state)
{
    (void)state;
    for (int at = 0; at < 3; at++)
        for (int late = 0; late < 2; late++) { /* refused at once, or failed later */
            fresh();
            if (!late) fake.fail_at = at;
            struct plan *plan = plan_new(0, 4, PLAN_ALWAYS);
            for (int i = 0; i < 3; i++) plan_recv(plan, i + 1, plan_at(PLAN_OUT(0), i), 1);
            for (int i = 0; i < 3; i++) plan_send(plan, i + 1, plan_at(PLAN_OUT(0), i), 1);
            assert_int_equal(plan_finish(plan), 0);
            struct setup *s = setup_new(plan, TUTTI_SUM, 0);
            drain(s->exec);
            if (late) {
                tutti_request *bad = fake.pending[at];
                assert_int_equal(fake.n, 3);
                complete(s->exec, at, TUTTI_ERR_PEER_LOST);
                assert_ptr_equal(s->exec->failed, bad);
            } else {
                assert_int_equal(fake.n, at); /* the steps before it */
                assert_int_equal(fake.issued, at + 1);
            }
            assert_int_equal(s->exec->status, TUTTI_ERR_PEER_LOST);
            int issued = fake.issued;
            while (fake.n > 0) {
                assert_false(exec_ended(s->exec));
                complete(s->exec, 0, fake.n == 1 ? TUTTI_ERR_BACKEND : TUTTI_OK);
                drain(s->exec);
            }
            assert_true(exec_ended(s->exec));
            assert_int_equal(fake.issued, issued);
            assert_int_equal(s->exec->status, TUTTI_ERR_PEER_LOST);
            setup_free(s);
        }
}

static void visit(const tutti_request *request, void *argument)
{
    assert_ptr_equal(request->owner, &mark);
    ++*(int *)argument;
}

/* Cancelling: requests that the backend returns end at once, the others when they complete. */
static void test_cancel(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        fresh();
        fake.keep = keep;
        struct plan *plan = plan_new(0, 4, PLAN_ALWAYS);
        for (int i = 0; i < 3; i++) plan_recv(plan, i + 1, plan_at(PLAN_OUT(0), i), 1);
        for (int i = 0; i < 3; i++) plan_send(plan, i + 1, plan_at(PLAN_OUT(0), i), 1);
        assert_int_equal(plan_finish(plan), 0);
        struct setup *s = setup_new(plan, TUTTI_SUM, 0);
        int pending = 0;
        drain(s->exec);
        complete(s->exec, 1, TUTTI_OK); /* its send is queued, and must not be issued any more */
        exec_each_pending(s->exec, visit, &pending);
        assert_int_equal(pending, 2);
        exec_cancel(s->exec, TUTTI_ERR_TIMEOUT);
        assert_int_equal(fake.cancelled, keep ? 0 : 2);
        assert_int_equal(exec_ended(s->exec), !keep);
        drain(s->exec);
        assert_int_equal(fake.issued, 3);
        while (fake.n > 0) complete(s->exec, 0, TUTTI_OK);
        assert_true(exec_ended(s->exec));
        assert_int_equal(s->exec->status, TUTTI_ERR_TIMEOUT);
        assert_null(s->exec->failed);
        setup_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests), cmocka_unit_test(test_order),   cmocka_unit_test(test_local),
        cmocka_unit_test(test_last),     cmocka_unit_test(test_empty),   cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_again),    cmocka_unit_test(test_failure), cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
