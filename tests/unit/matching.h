/* Matchers for tests (include/tutti/match.h), with buckets from malloc. */
#ifndef MATCHING_H
#define MATCHING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <tutti/match.h>

enum { ANY = TUTTI_ANY_SOURCE };

/* Sets a tag's highest bit, in which a message and a receive of any tag must agree. */
#define MESSAGE(tag) (UINT64_C(1) << 63 | (tag))

/* Returns the key of a message or a receive. */
tutti_match_key key_of(uint64_t group, int32_t source, uint64_t tag);

/* Returns the key of a receive of any tag. */
tutti_match_key any_tag_of(uint64_t group, int32_t source, uint64_t tag);

tutti_matcher new_matcher(void);
void post(tutti_matcher *matcher, tutti_match_receive *receive, tutti_match_key key);
void keep(tutti_matcher *matcher, tutti_match_message *message, tutti_match_key key);

#endif
