#include "unit/matching.h"

tutti_match_key key_of(uint64_t group, int32_t source, uint64_t tag)
{
    return tutti_match_message_key(group, source, tag);
}

tutti_match_key any_tag_of(uint64_t group, int32_t source, uint64_t tag)
{
    tutti_request request = {.tag = tag, .flags = TUTTI_REQUEST_ANY_TAG};
    return tutti_match_receive_key(&request, group, source);
}

tutti_matcher new_matcher(void)
{
    tutti_matcher matcher = {0};
    assert_true(tutti_match_reserve(&matcher, malloc, free));
    return matcher;
}

void post(tutti_matcher *matcher, tutti_match_receive *receive, tutti_match_key key)
{
    *receive = (tutti_match_receive){.key = key};
    tutti_match_reserve(matcher, malloc, free);
    tutti_match_post(matcher, receive);
}

void keep(tutti_matcher *matcher, tutti_match_message *message, tutti_match_key key)
{
    *message = (tutti_match_message){.key = key};
    tutti_match_reserve(matcher, malloc, free);
    tutti_match_keep(matcher, message);
}
