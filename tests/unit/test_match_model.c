/* Matching of messages and receives: random calls, compared with a simple model. */
#include "unit/matching.h"

enum { MOST = 3000 };

/* Lists in order, walked from the front. */
struct model {
    tutti_matcher matcher;
    tutti_match_receive *receive[MOST]; /* receives and probes */
    tutti_match_message *message[MOST];
    int n_receives, n_messages;
    bool is_fixed; /* its buckets are the caller's */
};

/* True if a receive or probe with this key takes a message. */
static bool takes(const tutti_match_key *key, const tutti_match_key *message)
{
    if (key->group != message->group) return false;
    if (key->source != ANY && key->source != message->source) return false;
    return key->flags & TUTTI_MATCH_ANY_TAG ? (key->tag ^ message->tag) >> 63 == 0 : key->tag == message->tag;
}

/* Returns the index of the first receive, or the first probe, that takes the message, or n_receives if there is none.
 */
static int first_receive(const struct model *model, const tutti_match_key *message, bool probes)
{
    int i = 0;
    for (; i < model->n_receives; i++) {
        const tutti_match_key *key = &model->receive[i]->key;
        if (((key->flags & TUTTI_MATCH_PROBE) != 0) == probes && takes(key, message)) break;
    }
    return i;
}

static int first_message(const struct model *model, const tutti_match_key *key)
{
    int i = 0;
    while (i < model->n_messages && !takes(key, &model->message[i]->key)) i++;
    return i;
}

static void withdraw_at(struct model *model, int at)
{
    tutti_match_withdraw(&model->matcher, model->receive[at]);
    free(model->receive[at]);
    for (int i = at; i + 1 < model->n_receives; i++) model->receive[i] = model->receive[i + 1];
    model->n_receives--;
}

static void take_at(struct model *model, int at)
{
    tutti_match_take(&model->matcher, model->message[at]);
    free(model->message[at]);
    for (int i = at; i + 1 < model->n_messages; i++) model->message[i] = model->message[i + 1];
    model->n_messages--;
}

static tutti_match_key random_key(bool is_message)
{
    tutti_match_key key = {.group = (uint64_t)(rand() % 3),
                           .tag = (uint64_t)(rand() % 20) | (uint64_t)(rand() % 2) << 63,
                           .source = rand() % 6};
    if (is_message) return key;
    tutti_request request = {.tag = key.tag};
    if (rand() % 4 == 0) request.flags |= TUTTI_REQUEST_ANY_TAG;
    if (rand() % 4 == 0) request.flags |= TUTTI_REQUEST_PEEK;
    return tutti_match_receive_key(&request, key.group, rand() % 3 == 0 ? ANY : key.source);
}

/* Delivers a message.  It completes probes and goes to a receive, or is kept. */
static void arrive(struct model *model)
{
    tutti_match_key key = random_key(true);
    int at;
    while ((at = first_receive(model, &key, true)) < model->n_receives) {
        assert_ptr_equal(tutti_match_find_probe(&model->matcher, &key), model->receive[at]);
        withdraw_at(model, at);
    }
    assert_null(tutti_match_find_probe(&model->matcher, &key));
    at = first_receive(model, &key, false);
    tutti_match_receive *expected = at < model->n_receives ? model->receive[at] : NULL;
    assert_ptr_equal(tutti_match_find_receive(&model->matcher, &key), expected);
    if (expected != NULL) {
        withdraw_at(model, at);
    } else if (model->n_messages < MOST) {
        tutti_match_message *message = malloc(sizeof *message);
        assert_non_null(message);
        *message = (tutti_match_message){.key = key};
        if (!model->is_fixed) tutti_match_reserve(&model->matcher, malloc, free);
        tutti_match_keep(&model->matcher, message);
        model->message[model->n_messages++] = message;
    }
}

/* Calls a receive or probe, which gets a message or is posted. */
static void call(struct model *model)
{
    tutti_match_key key = random_key(false);
    int at = first_message(model, &key);
    tutti_match_message *expected = at < model->n_messages ? model->message[at] : NULL;
    assert_ptr_equal(tutti_match_find_message(&model->matcher, &key), expected);
    if (expected != NULL && (key.flags & TUTTI_MATCH_PROBE) == 0) {
        take_at(model, at);
    } else if (expected == NULL && model->n_receives < MOST) {
        tutti_match_receive *receive = malloc(sizeof *receive);
        assert_non_null(receive);
        *receive = (tutti_match_receive){.key = key};
        if (!model->is_fixed) tutti_match_reserve(&model->matcher, malloc, free);
        tutti_match_post(&model->matcher, receive);
        model->receive[model->n_receives++] = receive;
    }
}

/* Cancels a receive or discards a message. */
static void remove_one(struct model *model)
{
    if (rand() % 2 && model->n_receives > 0) withdraw_at(model, rand() % model->n_receives);
    if (rand() % 2 && model->n_messages > 0) take_at(model, rand() % model->n_messages);
}

/* Makes calls of both sides in bursts, so that each queue becomes long while the other one is empty. */
static void run_model(struct model *model, int rounds)
{
    srand(2);
    for (int round = 0; round < rounds; round++) {
        int arrivals = round / 5000 % 2 ? 7 : 2; /* arrivals in ten calls */
        if (rand() % 20 == 0) remove_one(model);
        if (rand() % 10 < arrivals)
            arrive(model);
        else
            call(model);
        assert_int_equal(model->matcher.n_receives + model->matcher.n_probes, model->n_receives);
        assert_int_equal(model->matcher.n_messages, model->n_messages);
    }
    while (model->n_receives > 0) withdraw_at(model, model->n_receives - 1);
    while (model->n_messages > 0) take_at(model, 0);
    assert_null(tutti_match_next_receive(&model->matcher, NULL));
    assert_null(tutti_match_next_message(&model->matcher, NULL));
    assert_int_equal(model->matcher.n_any_source + model->matcher.n_any_tag, 0);
}

static void test_against_a_model(void **state)
{
    (void)state;
    static struct model model;
    model.matcher = new_matcher();
    run_model(&model, 60000);
    free(model.matcher.links);
}

/* In two buckets all keys collide. */
static void test_against_a_model_in_two_buckets(void **state)
{
    (void)state;
    static struct model model;
    static tutti_match_link links[TUTTI_MATCH_LINKS(2)];
    model.is_fixed = true;
    tutti_match_set_buckets(&model.matcher, links, 2);
    run_model(&model, 10000);
}

/* Messages of one source and tag are received in the order in which they were sent.  The message or its receive may
 * come first, and the receives may name it in any way. */
static void test_messages_do_not_overtake(void **state)
{
    (void)state;
    enum { N = 2000 };
    static struct {
        tutti_match_message match; /* first: cast below */
        int number;
    } messages[N];
    static tutti_match_receive receives[N];
    for (unsigned seed = 1; seed <= 20; seed++) {
        tutti_matcher matcher = new_matcher();
        int sent = 0, called = 0, got = 0;
        srand(seed);
        while (sent < N || called < N) {
            bool sends = called == N || (sent < N && rand() % 2);
            if (sends) {
                tutti_match_key key = key_of(1, 2, MESSAGE(3));
                tutti_match_receive *receive = tutti_match_find_receive(&matcher, &key);
                messages[sent].number = sent;
                if (receive == NULL) {
                    keep(&matcher, &messages[sent].match, key);
                } else {
                    assert_ptr_equal(receive, &receives[sent]); /* the receive of the same number */
                    tutti_match_withdraw(&matcher, receive);
                    got++;
                }
                sent++;
                continue;
            }
            int32_t source = rand() % 2 ? 2 : ANY;
            tutti_match_key key = rand() % 2 ? any_tag_of(1, source, MESSAGE(0)) : key_of(1, source, MESSAGE(3));
            tutti_match_message *message = tutti_match_find_message(&matcher, &key);
            if (message == NULL) {
                post(&matcher, &receives[called], key);
            } else {
                assert_int_equal(messages[called].number, called);
                assert_ptr_equal(message, &messages[called].match);
                tutti_match_take(&matcher, message);
                got++;
            }
            called++;
        }
        assert_int_equal(got, N);
        assert_int_equal(matcher.n_receives + matcher.n_messages, 0);
        free(matcher.links);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_a_model),
        cmocka_unit_test(test_against_a_model_in_two_buckets),
        cmocka_unit_test(test_messages_do_not_overtake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
