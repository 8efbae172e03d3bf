/* Matching of messages and receives. */
#include <time.h>

#include "unit/matching.h"

/* Returns the receive that gets a message. */
static tutti_match_receive *receive_for(const tutti_matcher *matcher, uint64_t group, int32_t source, uint64_t tag)
{
    tutti_match_key key = key_of(group, source, tag);
    return tutti_match_find_receive(matcher, &key);
}

/* Returns the message that a receive gets. */
static tutti_match_message *message_for(const tutti_matcher *matcher, uint64_t group, int32_t source, uint64_t tag)
{
    tutti_match_key key = key_of(group, source, tag);
    return tutti_match_find_message(matcher, &key);
}

static tutti_match_message *message_of_any_tag(const tutti_matcher *matcher, uint64_t group, int32_t source)
{
    tutti_match_key key = any_tag_of(group, source, MESSAGE(0));
    return tutti_match_find_message(matcher, &key);
}

static void test_a_zeroed_matcher_is_empty(void **state)
{
    (void)state;
    tutti_matcher matcher = {0};
    tutti_match_receive receive = {0};
    tutti_match_message message = {0};
    assert_null(receive_for(&matcher, 1, 2, 3));
    assert_null(message_for(&matcher, 1, 2, 3));
    assert_null(message_of_any_tag(&matcher, 1, ANY));
    assert_null(tutti_match_next_receive(&matcher, NULL));
    assert_null(tutti_match_next_message(&matcher, NULL));
    tutti_match_withdraw(&matcher, &receive);
    tutti_match_take(&matcher, &message);
    assert_int_equal(matcher.n_receives + matcher.n_messages, 0);
}

static void test_receives_of_one_key_keep_their_order(void **state)
{
    (void)state;
    tutti_matcher matcher = new_matcher();
    tutti_match_receive a, b, c;
    post(&matcher, &a, key_of(1, 2, 3));
    post(&matcher, &b, key_of(1, 2, 3));
    post(&matcher, &c, key_of(1, 2, 3));
    assert_ptr_equal(receive_for(&matcher, 1, 2, 3), &a);
    tutti_match_withdraw(&matcher, &a);
    assert_ptr_equal(receive_for(&matcher, 1, 2, 3), &b);
    tutti_match_withdraw(&matcher, &c); /* not the first one */
    assert_ptr_equal(receive_for(&matcher, 1, 2, 3), &b);
    tutti_match_withdraw(&matcher, &b);
    tutti_match_withdraw(&matcher, &b); /* twice does no harm */
    assert_false(tutti_match_is_posted(&b));
    assert_null(receive_for(&matcher, 1, 2, 3));
    assert_int_equal(matcher.n_receives, 0);
    free(matcher.links);
}

static void test_all_of_the_key_counts(void **state)
{
    (void)state;
    tutti_matcher matcher = new_matcher();
    tutti_match_receive receive;
    tutti_match_message message;
    post(&matcher, &receive, key_of(1, 2, 3));
    keep(&matcher, &message, key_of(1, 2, 3));
    for (int i = 0; i < 3; i++) {
        uint64_t group = i == 0 ? 9 : 1, tag = i == 1 ? 9 : 3;
        int32_t source = i == 2 ? 9 : 2;
        assert_null(receive_for(&matcher, group, source, tag));
        assert_null(message_for(&matcher, group, source, tag));
    }
    assert_null(message_for(&matcher, 9, ANY, 3));
    assert_null(message_for(&matcher, 1, ANY, 9));
    assert_ptr_equal(message_for(&matcher, 1, ANY, 3), &message);
    assert_ptr_equal(message_for(&matcher, 1, 2, 3), &message);
    assert_ptr_equal(receive_for(&matcher, 1, 2, 3), &receive);
    free(matcher.links);
}

/* Receives of a source and of any source get messages in the order in which they were posted. */
static void test_receives_of_any_source(void **state)
{
    (void)state;
    tutti_matcher matcher = new_matcher();
    tutti_match_receive named, open, later;
    post(&matcher, &named, key_of(1, 5, 3));
    post(&matcher, &open, key_of(1, ANY, 3));
    post(&matcher, &later, key_of(1, 5, 3));
    assert_ptr_equal(receive_for(&matcher, 1, 5, 3), &named);
    assert_ptr_equal(receive_for(&matcher, 1, 6, 3), &open);
    tutti_match_withdraw(&matcher, &named);
    assert_ptr_equal(receive_for(&matcher, 1, 5, 3), &open);
    tutti_match_withdraw(&matcher, &open);
    assert_ptr_equal(receive_for(&matcher, 1, 5, 3), &later);
    assert_null(receive_for(&matcher, 1, 6, 3));
    free(matcher.links);
}

/* A receive of any source gets the message that arrived first. */
static void test_messages_to_any_source(void **state)
{
    (void)state;
    tutti_matcher matcher = new_matcher();
    tutti_match_message x, y;
    keep(&matcher, &x, key_of(1, 8, 4));
    keep(&matcher, &y, key_of(1, 7, 4));
    assert_ptr_equal(message_for(&matcher, 1, ANY, 4), &x);
    assert_ptr_equal(message_for(&matcher, 1, 7, 4), &y);
    tutti_match_take(&matcher, &x);
    tutti_match_take(&matcher, &x); /* twice does no harm */
    assert_ptr_equal(message_for(&matcher, 1, ANY, 4), &y);
    tutti_match_take(&matcher, &y);
    assert_null(message_for(&matcher, 1, ANY, 4));
    assert_int_equal(matcher.n_messages, 0);
    free(matcher.links);
}

/* Receives of any tag and of one tag get messages in the order in which they were posted.  A receive of any tag takes
 * the tags that agree with its own in the highest bit. */
static void test_receives_of_any_tag(void **state)
{
    (void)state;
    tutti_matcher matcher = new_matcher();
    tutti_match_receive named, open, both, last, low;
    post(&matcher, &named, key_of(1, 4, MESSAGE(7)));
    post(&matcher, &open, any_tag_of(1, 4, MESSAGE(0)));
    post(&matcher, &both, any_tag_of(1, ANY, MESSAGE(0)));
    post(&matcher, &last, key_of(1, 4, MESSAGE(7)));
    assert_null(receive_for(&matcher, 1, 4, 7));
    post(&matcher, &low, any_tag_of(1, 4, 0));
    assert_ptr_equal(receive_for(&matcher, 1, 4, 7), &low);
    assert_null(receive_for(&matcher, 2, 4, MESSAGE(7)));
    assert_ptr_equal(receive_for(&matcher, 1, 5, MESSAGE(7)), &both);
    assert_ptr_equal(receive_for(&matcher, 1, 4, MESSAGE(8)), &open);
    assert_ptr_equal(receive_for(&matcher, 1, 4, MESSAGE(7)), &named);
    tutti_match_withdraw(&matcher, &named);
    assert_ptr_equal(receive_for(&matcher, 1, 4, MESSAGE(7)), &open);
    tutti_match_withdraw(&matcher, &open);
    tutti_match_withdraw(&matcher, &both);
    tutti_match_withdraw(&matcher, &low);
    assert_ptr_equal(receive_for(&matcher, 1, 4, MESSAGE(7)), &last);
    assert_int_equal(matcher.n_any_tag + matcher.n_any_source, 0);
    free(matcher.links);
}

static void test_messages_to_any_tag(void **state)
{
    (void)state;
    tutti_matcher matcher = new_matcher();
    tutti_match_message items[300];
    assert_null(message_of_any_tag(&matcher, 1, ANY));
    for (uint64_t i = 0; i < 300; i++) /* the matcher grows meanwhile */
        keep(&matcher, &items[i], key_of(1 + i % 2, (int32_t)(i % 3), i < 9 ? i : MESSAGE(i)));
    assert_ptr_equal(message_of_any_tag(&matcher, 1, ANY), &items[10]);
    assert_ptr_equal(message_of_any_tag(&matcher, 2, 0), &items[9]);
    assert_ptr_equal(message_of_any_tag(&matcher, 2, 2), &items[11]);
    assert_null(message_of_any_tag(&matcher, 3, ANY));
    tutti_match_take(&matcher, &items[10]);
    assert_ptr_equal(message_of_any_tag(&matcher, 1, ANY), &items[12]);
    free(matcher.links);
}

/* A probe does not take a message from a receive, and a message completes all probes that match it. */
static void test_probes(void **state)
{
    (void)state;
    tutti_matcher matcher = new_matcher();
    tutti_request request = {.tag = 3, .flags = TUTTI_REQUEST_PEEK};
    tutti_match_receive exact, open, receive, *probe;
    tutti_match_key key = key_of(1, 2, 3);
    post(&matcher, &exact, tutti_match_receive_key(&request, 1, 2));
    post(&matcher, &open, tutti_match_receive_key(&request, 1, ANY));
    assert_null(receive_for(&matcher, 1, 2, 3));
    assert_int_equal(matcher.n_receives, 0);
    assert_int_equal(matcher.n_probes, 2);
    post(&matcher, &receive, key);
    assert_ptr_equal(receive_for(&matcher, 1, 2, 3), &receive);
    for (int found = 0; found < 2; found++) {
        probe = tutti_match_find_probe(&matcher, &key);
        assert_ptr_equal(probe, found == 0 ? &exact : &open);
        tutti_match_withdraw(&matcher, probe);
    }
    assert_null(tutti_match_find_probe(&matcher, &key));
    assert_int_equal(matcher.n_probes, 0);
    /* a later probe finds the message by its own key */
    tutti_match_message message;
    keep(&matcher, &message, key);
    assert_ptr_equal(tutti_match_find_message(&matcher, &exact.key), &message);
    assert_ptr_equal(tutti_match_find_message(&matcher, &open.key), &message);
    free(matcher.links);
}

/* Removes everything of one peer, as when a peer is lost or a group is closed. */
static void test_removal_of_all_of_a_peer(void **state)
{
    (void)state;
    enum { N = 1000 };
    static tutti_match_receive receives[N];
    static tutti_match_message messages[N];
    tutti_matcher matcher = new_matcher();
    int removed = 0;
    for (int i = 0; i < N; i++) {
        post(&matcher, &receives[i], key_of(1, i % 10 == 9 ? ANY : i % 10, (uint64_t)i));
        keep(&matcher, &messages[i], key_of(1, i % 10, (uint64_t)i));
    }
    for (tutti_match_receive *receive = tutti_match_next_receive(&matcher, NULL), *next; receive; receive = next) {
        next = tutti_match_next_receive(&matcher, receive);
        if (receive->key.source != 3) continue;
        tutti_match_withdraw(&matcher, receive);
        removed++;
    }
    assert_int_equal(removed, N / 10);
    assert_int_equal(matcher.n_receives, N - N / 10);
    for (int i = 0; i < N; i++) assert_int_equal(tutti_match_is_posted(&receives[i]), i % 10 != 3);
    int at = 0;
    for (tutti_match_message *message = tutti_match_next_message(&matcher, NULL), *next; message; message = next) {
        next = tutti_match_next_message(&matcher, message);
        assert_ptr_equal(message, &messages[at++]); /* in order of arrival */
        if (message->key.source == 3) tutti_match_take(&matcher, message);
    }
    assert_int_equal(at, N);
    assert_int_equal(matcher.n_messages, N - N / 10);
    free(matcher.links);
}

/* A closed group's receives and probes leave, also if there are only probes, and another group's stay. */
static void test_removal_of_a_group(void **state)
{
    (void)state;
    tutti_matcher matcher = {0};
    tutti_match_withdraw_group(&matcher, 1); /* has no buckets yet */
    matcher = new_matcher();
    tutti_match_receive receives[2], probes[2];
    tutti_match_key probe = key_of(1, 2, 3);
    probe.flags |= TUTTI_MATCH_PROBE;
    post(&matcher, &probes[0], probe);
    tutti_match_withdraw_group(&matcher, 1);
    assert_false(tutti_match_is_posted(&probes[0]));
    assert_int_equal(matcher.n_probes, 0);
    for (int i = 0; i < 2; i++) {
        probe.group = (uint64_t)i + 1;
        post(&matcher, &probes[i], probe);
        post(&matcher, &receives[i], key_of(probe.group, i == 0 ? 2 : ANY, 3));
    }
    tutti_match_withdraw_group(&matcher, 1);
    assert_false(tutti_match_is_posted(&receives[0]) || tutti_match_is_posted(&probes[0]));
    assert_true(tutti_match_is_posted(&receives[1]) && tutti_match_is_posted(&probes[1]));
    assert_int_equal(matcher.n_receives + matcher.n_probes, 2);
    free(matcher.links);
}

/* A request's priv words have space for an entry. */
static void test_a_receive_fits_its_request(void **state)
{
    (void)state;
    tutti_request request = {.tag = 3};
    assert_true(sizeof(tutti_match_receive) + 2 * sizeof(void *) <= sizeof request.priv);
    assert_ptr_equal(tutti_match_request((tutti_match_receive *)(void *)request.priv), &request);
}

static void *no_memory(size_t bytes)
{
    (void)bytes;
    return NULL;
}

/* Without memory for more buckets a matcher stays right. */
static void test_no_memory(void **state)
{
    (void)state;
    enum { N = 500 };
    static tutti_match_receive receives[N];
    static tutti_match_link links[TUTTI_MATCH_LINKS(4)]; /* the caller's own */
    tutti_matcher matcher = {0};
    assert_false(tutti_match_reserve(&matcher, no_memory, free));
    assert_null(tutti_match_set_buckets(&matcher, links, 4));
    for (int i = 0; i < N; i++) {
        receives[i] = (tutti_match_receive){.key = key_of(1, 2, (uint64_t)i)};
        assert_int_equal(tutti_match_reserve(&matcher, no_memory, free), i < 8);
        tutti_match_post(&matcher, &receives[i]);
    }
    for (int i = 0; i < N; i++) assert_ptr_equal(receive_for(&matcher, 1, 2, (uint64_t)i), &receives[i]);
    static tutti_match_link more[TUTTI_MATCH_LINKS(256)];
    assert_ptr_equal(tutti_match_set_buckets(&matcher, more, 256), links);
    for (int i = 0; i < N; i++) assert_ptr_equal(receive_for(&matcher, 1, 2, (uint64_t)i), &receives[i]);
}

/* ---- cost ------------------------------------------------------------------------------------------------------- */

enum kind { DIFFERENT_TAGS, DIFFERENT_SOURCES, ALL_ALIKE, KINDS };

static tutti_match_key nth_key(enum kind kind, size_t n)
{
    return key_of(1, kind == DIFFERENT_SOURCES ? (int32_t)n : 0, kind == DIFFERENT_TAGS ? n : 0);
}

/* Returns the seconds in which this thread has run: other programs do not count. */
static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Returns the nanoseconds to find and replace one of n receives, or of n messages. */
static double cost(size_t n, enum kind kind, bool is_receive)
{
    enum { ROUNDS = 200000 };
    tutti_matcher matcher = new_matcher();
    tutti_match_receive *receives = calloc(n, sizeof *receives);
    tutti_match_message *messages = calloc(n, sizeof *messages);
    for (size_t i = 0; i < n; i++) {
        if (is_receive)
            post(&matcher, &receives[i], nth_key(kind, i));
        else
            keep(&matcher, &messages[i], nth_key(kind, i));
    }
    double start = cpu_s();
    for (size_t i = 0; i < ROUNDS; i++) {
        tutti_match_key key = nth_key(kind, i * 7919 % n);
        if (is_receive) {
            tutti_match_receive *found = tutti_match_find_receive(&matcher, &key);
            tutti_match_withdraw(&matcher, found);
            tutti_match_post(&matcher, found);
        } else {
            tutti_match_message *found = tutti_match_find_message(&matcher, &key);
            tutti_match_take(&matcher, found);
            tutti_match_keep(&matcher, found);
        }
    }
    double ns = (cpu_s() - start) / ROUNDS * 1e9;
    free(matcher.links);
    free(receives);
    free(messages);
    return ns;
}

static void test_thousands_cost_what_few_do(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * KINDS; i++) {
        double one = cost(1, i / 2, i % 2), few = cost(8, i / 2, i % 2), many = cost(20000, i / 2, i % 2);
        print_message("%s of kind %d: %.0f ns with 1, %.0f ns with 8, %.0f ns with 20,000\n",
                      i % 2 ? "receives" : "messages", i / 2, one, few, many);
        assert_true(many < 50 * few + 1000); /* a walk through the list would take 2,500 times as long */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_zeroed_matcher_is_empty),  cmocka_unit_test(test_receives_of_one_key_keep_their_order),
        cmocka_unit_test(test_all_of_the_key_counts),      cmocka_unit_test(test_receives_of_any_source),
        cmocka_unit_test(test_messages_to_any_source),     cmocka_unit_test(test_receives_of_any_tag),
        cmocka_unit_test(test_messages_to_any_tag),        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_removal_of_all_of_a_peer),   cmocka_unit_test(test_removal_of_a_group),
        cmocka_unit_test(test_a_receive_fits_its_request), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_thousands_cost_what_few_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
