#include "group/creation_wire.h"

#include <stdio.h>
#include <string.h>

#include "base/little_endian.h"
#include "base/text.h"

enum { LONGS = 5 };

bool creation_wire_is(const void *wire, size_t bytes)
{
    uint32_t type = 0;
    if (bytes < CREATION_HEAD) return false;
    memcpy(&type, wire, sizeof type);
    type = le32(type);
    return type >= CREATION_PROPOSAL && type <= CREATION_CHOICES;
}

size_t creation_wire_encode(const struct creation_message *message, uint8_t wire[CREATION_BYTES])
{
    const struct creation_members *list = &message->list;
    const char *text = message->type == CREATION_PROPOSAL ? list->backend : message->text;
    uint32_t words[2] = {le32(message->type), le32((uint32_t)message->status)}, n = le32(list->n);
    uint64_t longs[LONGS] = {le64(message->key), le64(message->parent), le64(message->number), le64(list->hash),
                             le64(list->backend_hash)};
    uint16_t counts[2] = {le16((uint16_t)list->n_listed), le16((uint16_t)message->n_offers)};
    memcpy(wire, words, sizeof words);
    memcpy(wire + 8, longs, sizeof longs);
    memcpy(wire + 48, &n, sizeof n);
    memcpy(wire + 52, counts, sizeof counts);
    uint32_t split[3] = {le32(list->splits), le32((uint32_t)message->color), le32((uint32_t)message->split_key)};
    memcpy(wire + 56, split, sizeof split);
    size_t at = CREATION_HEAD;
    memcpy(wire + at, message->offer, (size_t)message->n_offers * TUTTI_OFFER_BYTES);
    at += (size_t)message->n_offers * TUTTI_OFFER_BYTES;
    for (uint32_t i = 0; i < list->n_listed; i++, at += sizeof n) {
        uint32_t rank = le32((uint32_t)list->rank[i]);
        memcpy(wire + at, &rank, sizeof rank);
    }
    size_t length = strnlen(text, CREATION_TEXT - 1);
    if (length > CREATION_BYTES - at) length = CREATION_BYTES - at;
    memcpy(wire + at, text, length);
    return at + length;
}

static void parse_text(const uint8_t *wire, size_t length, char text[CREATION_TEXT])
{
    for (size_t i = 0; i < length; i++) text[i] = (char)(wire[i] >= 0x20 && wire[i] != 0x7f ? wire[i] : '?');
    text[length] = '\0';
}

static bool parse_head(const uint8_t *wire, struct creation_message *message)
{
    uint32_t words[2], n;
    uint64_t longs[LONGS];
    uint16_t counts[2];
    uint32_t split[3];
    memcpy(words, wire, sizeof words);
    memcpy(longs, wire + 8, sizeof longs);
    memcpy(&n, wire + 48, sizeof n);
    memcpy(counts, wire + 52, sizeof counts);
    memcpy(split, wire + 56, sizeof split);
    message->type = le32(words[0]);
    message->status = (int32_t)le32(words[1]);
    message->key = le64(longs[0]);
    message->parent = le64(longs[1]);
    message->number = le64(longs[2]);
    message->list.hash = le64(longs[3]);
    message->list.backend_hash = le64(longs[4]);
    message->list.n = le32(n);
    message->list.n_listed = le16(counts[0]);
    message->n_offers = le16(counts[1]);
    message->list.splits = le32(split[0]);
    message->color = (int32_t)le32(split[1]);
    message->split_key = (int32_t)le32(split[2]);
    return message->list.splits <= 1 && message->status <= 0 && message->status >= TUTTI_ERR_NOT_FOUND &&
           message->list.n_listed <= CREATION_RANKS && message->list.n_listed <= message->list.n &&
           message->n_offers <= CREATION_OFFERS;
}

bool creation_wire_parse(const void *bytes_of, size_t bytes, struct creation_message *message)
{
    const uint8_t *wire = bytes_of;
    *message = (struct creation_message){0};
    if (bytes > CREATION_BYTES || !creation_wire_is(wire, bytes) || !parse_head(wire, message)) return false;
    size_t offers = (size_t)message->n_offers * TUTTI_OFFER_BYTES,
           ranks = (size_t)message->list.n_listed * sizeof(uint32_t);
    size_t at = CREATION_HEAD + offers + ranks;
    if (at > bytes || bytes - at >= CREATION_TEXT) return false;
    memcpy(message->offer, wire + CREATION_HEAD, offers);
    for (uint32_t i = 0; i < message->list.n_listed; i++) {
        uint32_t rank;
        memcpy(&rank, wire + CREATION_HEAD + offers + i * sizeof rank, sizeof rank);
        message->list.rank[i] = (int32_t)le32(rank);
    }
    parse_text(wire + at, bytes - at, message->type == CREATION_PROPOSAL ? message->list.backend : message->text);
    return true;
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

/* Writes "[0,1,3,2]", or the beginning and the length of a long list. */
static void describe_list(const struct creation_members *list, char *buffer, size_t size)
{
    enum { TAIL = 24 };
    struct text text = text_in(buffer, size);
    uint32_t i = 0;
    text_add(&text, "[");
    for (; i < list->n_listed && text.end - text.at >= TAIL; i++)
        text_print(&text, i > 0 ? ",%d" : "%d", list->rank[i]);
    if (i < list->n)
        text_print(&text, ",.. %u in total]", list->n);
    else
        text_add(&text, "]");
}

/* Returns the first index at which the known parts differ, or -1. */
static int find_difference(const struct creation_members *a, const struct creation_members *b)
{
    uint32_t n_listed = a->n_listed < b->n_listed ? a->n_listed : b->n_listed;
    for (uint32_t i = 0; i < n_listed; i++)
        if (a->rank[i] != b->rank[i]) return (int)i;
    return -1;
}

bool creation_wire_describe_difference(const struct creation_members *a, int rank_a, const struct creation_members *b,
                                       int rank_b, char *text, size_t size)
{
    enum { LIST = 90, SHORT = 20 };
    char one[LIST], other[LIST];
    if (a->splits != b->splits) {
        int splitter = a->splits ? rank_a : rank_b, maker = a->splits ? rank_b : rank_a;
        describe_list(a->splits ? b : a, one, sizeof one);
        snprintf(text, size, "rank %d called split_group, rank %d new_group of %s", splitter, maker, one);
        return true;
    }
    bool lists = a->n != b->n || a->hash != b->hash;
    if (!lists && a->backend_hash == b->backend_hash) return false;
    int at = find_difference(a, b);
    describe_list(a, one, sizeof one);
    describe_list(b, other, sizeof other);
    if (lists && at >= SHORT)
        snprintf(text, size,
                 "rank %d made this group of %u ranks with %d at index %d, rank %d of %u ranks with %d there", rank_a,
                 a->n, a->rank[at], at, rank_b, b->n, b->rank[at]);
    else if (lists)
        snprintf(text, size, "rank %d made this group of %s, rank %d of %s", rank_a, one, rank_b, other);
    else
        snprintf(text, size, "rank %d made this group with backend \"%.80s\", rank %d with \"%.80s\"", rank_a,
                 a->backend, rank_b, b->backend);
    return true;
}
