/* Stores of the program's own functions: what they return is checked, and groups meet through them. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "ranks.h"
#include "store/store_impl.h"
#include "unit/store_fixture.h"

/* ---- functions with a fault each --------------------------------------------------------------------------------- */

/* What the functions do: return a status, with or without a message, or a value that does not fit. */
struct faulty {
    int status;
    const char *message;
    tutti_bytes value;
    int multi_gets, multi_sets, appends, closed;
};

static int answer(struct faulty *faulty)
{
    return faulty->message != NULL ? tutti_set_error(faulty->status, "%s", faulty->message) : faulty->status;
}

static int faulty_set(void *self, const char *key, const void *value, size_t bytes)
{
    (void)key, (void)value, (void)bytes;
    return answer(self);
}

static int faulty_get(void *self, const char *key, tutti_bytes *value, int64_t timeout_ms)
{
    (void)key, (void)timeout_ms;
    *value = ((struct faulty *)self)->value;
    return answer(self);
}

static int faulty_wait(void *self, const char *const *keys, int n, int64_t timeout_ms)
{
    (void)keys, (void)n, (void)timeout_ms;
    return answer(self);
}

static int faulty_check(void *self, const char *const *keys, int n, bool *present)
{
    (void)keys, (void)n, (void)present;
    return answer(self);
}

static int faulty_add(void *self, const char *key, int64_t delta, int64_t *value)
{
    (void)key, (void)delta, (void)value;
    return answer(self);
}

/* Another value than the caller's is there each time. */
static int faulty_compare_set(void *self, const char *key, tutti_bytes expected, tutti_bytes desired,
                              tutti_bytes *value)
{
    (void)key, (void)desired;
    value->bytes = expected.bytes == 1 ? 2 : 1;
    value->data = calloc(1, value->bytes);
    return answer(self);
}

static int faulty_remove(void *self, const char *key, bool *existed)
{
    (void)key, (void)existed;
    return answer(self);
}

static int counted_append(void *self, const char *key, const void *value, size_t bytes)
{
    ((struct faulty *)self)->appends++;
    return faulty_set(self, key, value, bytes);
}

static int counted_multi_get(void *self, const char *const *keys, int n, tutti_bytes *values, int64_t timeout_ms)
{
    (void)keys, (void)n, (void)values, (void)timeout_ms;
    ((struct faulty *)self)->multi_gets++;
    return answer(self);
}

static int counted_multi_set(void *self, const char *const *keys, const tutti_bytes *values, int n)
{
    (void)keys, (void)n, (void)values;
    ((struct faulty *)self)->multi_sets++;
    return answer(self);
}

static void counted_close(void *self)
{
    ((struct faulty *)self)->closed++;
}

static const tutti_store_calls least = {.set = faulty_set,
                                        .get = faulty_get,
                                        .wait = faulty_wait,
                                        .check = faulty_check,
                                        .add = faulty_add,
                                        .compare_set = faulty_compare_set,
                                        .remove = faulty_remove};

static tutti_store *open_faulty(struct faulty *faulty, tutti_store_calls calls, int64_t timeout_ms)
{
    tutti_store *store = NULL;
    calls.close = counted_close;
    assert_int_equal(tutti_store_custom("the runtime's store", &calls, faulty,
                                        &(tutti_store_opts){.timeout_ms = timeout_ms}, &store),
                     TUTTI_OK);
    return store;
}

static void assert_fails(int status, int expected, const char *words)
{
    assert_int_equal(status, expected);
    if (strstr(tutti_last_error(), words) == NULL) fail_msg("\"%s\" lacks \"%s\"", tutti_last_error(), words);
}

static void test_statuses(void **state)
{
    struct faulty faulty = {.status = TUTTI_ERR_TIMEOUT};
    size_t bytes;
    (void)state;
    tutti_store *store = open_faulty(&faulty, least, 0);
    assert_fails(tutti_store_set(store, "k", "v", 1), TUTTI_ERR_TIMEOUT,
                 "the runtime's store: set \"k\": the program's function returned TUTTI_ERR_TIMEOUT");
    faulty.message = "the interpreter is ending";
    assert_fails(tutti_store_set(store, "k", "v", 1), TUTTI_ERR_TIMEOUT, "set \"k\": the interpreter is ending");
    faulty.message = NULL;
    faulty.status = 1;
    assert_fails(tutti_store_add(store, "k", 1, NULL), TUTTI_ERR_STORE, "returned 1, which is no tutti_status");
    faulty.status = -99;
    assert_fails(tutti_store_add(store, "k", 1, NULL), TUTTI_ERR_STORE, "returned -99, which is no tutti_status");
    faulty.status = TUTTI_OK;
    faulty.value = (tutti_bytes){NULL, 3};
    assert_fails(tutti_store_get(store, "k", NULL, 0, &bytes, 0), TUTTI_ERR_STORE, "a value of 3 bytes at");
    assert_int_equal(faulty.closed, 0);
    tutti_store_free(store);
    assert_int_equal(faulty.closed, 1);
}

/* An append by compare_set ends when others change the value for ever. */
static void test_append_is_bounded(void **state)
{
    struct faulty faulty = {0};
    (void)state;
    tutti_store *store = open_faulty(&faulty, least, 50);
    assert_fails(tutti_store_append(store, "k", "v", 1), TUTTI_ERR_TIMEOUT, "others changed the value");
    tutti_store_free(store);
}

static void test_optional_functions(void **state)
{
    struct faulty faulty = {0};
    const char *keys[] = {"a", "b"};
    tutti_bytes values[2] = {{NULL, 0}, {NULL, 0}};
    int64_t count;
    tutti_store_calls calls = least;
    (void)state;
    calls.append = counted_append;
    calls.multi_get = counted_multi_get;
    calls.multi_set = counted_multi_set;
    tutti_store *store = open_faulty(&faulty, calls, 0), *part;
    assert_int_equal(tutti_store_append(store, "k", "v", 1), TUTTI_OK);
    assert_int_equal(tutti_store_multi_get(store, keys, 2, values, 0), TUTTI_OK);
    assert_int_equal(tutti_store_multi_set(store, keys, values, 2), TUTTI_OK);
    assert_true(faulty.appends == 1 && faulty.multi_gets == 1 && faulty.multi_sets == 1);
    assert_fails(tutti_store_num_keys(store, &count), TUTTI_ERR_UNSUPPORTED, "the store has no function num_keys");
    assert_int_equal(tutti_store_prefix(store, "part", &part), TUTTI_OK);
    tutti_store_free(store);
    assert_int_equal(faulty.closed, 0); /* the prefix store holds it */
    tutti_store_free(part);
    assert_int_equal(faulty.closed, 1);
}

static void test_refusals(void **state)
{
    tutti_store *store;
    tutti_store_calls calls = least;
    (void)state;
    calls.remove = NULL;
    assert_fails(tutti_store_custom("s", &calls, NULL, NULL, &store), TUTTI_ERR_INVALID_ARGUMENT, "no function remove");
    assert_fails(tutti_store_custom(NULL, &least, NULL, NULL, &store), TUTTI_ERR_INVALID_ARGUMENT, "name is NULL");
    assert_fails(tutti_store_custom("s", NULL, NULL, NULL, &store), TUTTI_ERR_INVALID_ARGUMENT, "calls is NULL");
    assert_fails(tutti_store_custom("s", &least, NULL, NULL, NULL), TUTTI_ERR_INVALID_ARGUMENT, "store is NULL");
}

/* ---- a group over a store of the program's ----------------------------------------------------------------------- */

enum { SIZE = 3 };

struct member {
    pthread_t thread;
    tutti_store *memory;
    int rank, result;
};

/* Each rank has a custom store of its own over the shared memory store, as each process of a runtime would. */
static int run_member(struct member *member)
{
    const char *name = getenv("TUTTI_TEST_BACKEND");
    tutti_store *store = NULL;
    tutti_group *group = NULL, *part = NULL;
    int64_t x = member->rank;
    EXPECT(tutti_store_custom("the runtime's store", &store_fixture_calls, store_retain(member->memory), NULL,
                              &store) == TUTTI_OK);
    EXPECT(tutti_create_group(name != NULL ? name : "loop", store, member->rank, SIZE, NULL, &group) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(x == 3);
    EXPECT(tutti_split_group(member->rank > 0, 0, &(tutti_group_opts){.parent = group}, &part) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = part)) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    tutti_store_free(store);
    return 0;
}

static void *start_member(void *argument)
{
    struct member *member = argument;
    member->result = run_member(member);
    return NULL;
}

static void test_group(void **state)
{
    struct member members[SIZE];
    tutti_store *memory;
    (void)state;
    assert_int_equal(tutti_store_memory(NULL, &memory), TUTTI_OK);
    for (int i = 0; i < SIZE; i++) {
        members[i] = (struct member){.memory = memory, .rank = i};
        assert_int_equal(pthread_create(&members[i].thread, NULL, start_member, &members[i]), 0);
    }
    for (int i = 0; i < SIZE; i++) pthread_join(members[i].thread, NULL);
    for (int i = 0; i < SIZE; i++) assert_int_equal(members[i].result, 0);
    tutti_store_free(memory);
}

/* ---- equal values appended at the same time ------------------------------------------------------------------- */

enum { PAIR = 2 };

/* The first compare_set of a group's offers waits for that of the other rank, so that both expect the same value. */
static struct {
    pthread_barrier_t both;
    atomic_int n_calls;
    char key[256];
    tutti_store *memory;
} crossing;

static int crossing_compare_set(void *self, const char *key, tutti_bytes expected, tutti_bytes desired,
                                tutti_bytes *value)
{
    if (strstr(key, "transports/") != NULL && atomic_fetch_add(&crossing.n_calls, 1) < PAIR) {
        if (pthread_barrier_wait(&crossing.both) != 0) snprintf(crossing.key, sizeof crossing.key, "%s", key);
    }
    return store_fixture_calls.compare_set(self, key, expected, desired, value);
}

static int create_two(struct member *member)
{
    const char *name = getenv("TUTTI_TEST_BACKEND");
    tutti_store_calls calls = store_fixture_calls;
    tutti_store *store = NULL;
    tutti_group *group[2];
    calls.compare_set = crossing_compare_set;
    if (tutti_store_custom("s", &calls, store_retain(member->memory), NULL, &store) != TUTTI_OK) return __LINE__;
    for (int i = 0; i < 2; i++)
        if (tutti_create_group(name != NULL ? name : "loop", store, member->rank, PAIR, NULL, &group[i]) != TUTTI_OK)
            return __LINE__;
    for (int i = 0; i < 2; i++)
        if (tutti_destroy_process_group(group[i]) != TUTTI_OK) return __LINE__;
    tutti_store_free(store);
    return 0;
}

static void *start_two(void *argument)
{
    struct member *member = argument;
    member->result = create_two(member);
    return NULL;
}

/* The offers of both ranks are in the store, though the ranks offer the same transport at the same time. */
static void test_equal_offers(void **state)
{
    struct member members[PAIR];
    char value[256] = "";
    size_t bytes;
    int n_offers = 0;
    (void)state;
    assert_int_equal(pthread_barrier_init(&crossing.both, NULL, PAIR), 0);
    assert_int_equal(tutti_store_memory(NULL, &crossing.memory), TUTTI_OK);
    for (int i = 0; i < PAIR; i++) {
        members[i] = (struct member){.memory = crossing.memory, .rank = i};
        assert_int_equal(pthread_create(&members[i].thread, NULL, start_two, &members[i]), 0);
    }
    for (int i = 0; i < PAIR; i++) pthread_join(members[i].thread, NULL);
    for (int i = 0; i < PAIR; i++) assert_int_equal(members[i].result, 0);
    assert_int_equal(tutti_store_get(crossing.memory, crossing.key, value, sizeof value - 1, &bytes, 0), TUTTI_OK);
    for (size_t i = 0; i < bytes; i++) n_offers += value[i] == ' ';
    assert_int_equal(n_offers, PAIR);
    tutti_store_free(crossing.memory);
    pthread_barrier_destroy(&crossing.both);
}

int main(void)
{
    ranks_setup();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_statuses),
                                       cmocka_unit_test(test_append_is_bounded),
                                       cmocka_unit_test(test_optional_functions),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_group),
                                       cmocka_unit_test(test_equal_offers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
