#include "group/launcher_members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static struct launcher_member *find(const struct launcher_members *members, int64_t number)
{
    for (int i = 0; i < members->n; i++)
        if (members->member[i].number == number) return &members->member[i];
    return NULL;
}

static struct launcher_member *find_or_add(struct launcher_members *members, int64_t number)
{
    struct launcher_member *found = find(members, number);
    if (found != NULL) return found;
    if (members->n == members->capacity) {
        int wanted = members->capacity > 0 ? 2 * members->capacity : 16;
        struct launcher_member *grown = realloc(members->member, (size_t)wanted * sizeof *grown);
        if (grown == NULL) return NULL;
        members->member = grown;
        members->capacity = wanted;
    }
    members->member[members->n] = (struct launcher_member){.number = number};
    return &members->member[members->n++];
}

/* Ignores lines that are malformed.  Returns false if out of memory. */
static bool read_lines(struct launcher_members *members, const char *text)
{
    for (const char *at = text; *at != '\0'; at += *at == '\n') {
        long long number = -1;
        bool ends = strncmp(at, "end ", 4) == 0;
        if (ends || strncmp(at, "start ", 6) == 0) sscanf(at + (ends ? 4 : 6), "%18lld", &number);
        struct launcher_member *member = number >= 0 ? find_or_add(members, number) : NULL;
        if (member == NULL && number >= 0) return false;
        if (member != NULL) member->ended |= ends;
        at += strcspn(at, "\n");
    }
    return true;
}

int launcher_members_read(struct launcher_members *members, tutti_store *store)
{
    tutti_bytes bytes = {0};
    members->n = 0;
    members->present = false;
    if (store == NULL) return TUTTI_OK;
    int status = tutti_store_multi_get(store, (const char *[]){"members/log"}, 1, &bytes, 0);
    if (status != TUTTI_OK) return status == TUTTI_ERR_TIMEOUT ? TUTTI_OK : status;
    char *text = strndup(bytes.bytes > 0 ? bytes.data : "", bytes.bytes);
    tutti_bytes_free(&bytes, 1);
    members->present = true;
    if (text == NULL || !read_lines(members, text))
        status = error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the launcher's list of %d members", members->n);
    free(text);
    return status;
}

void launcher_members_free(struct launcher_members *members)
{
    free(members->member);
    *members = (struct launcher_members){0};
}

bool launcher_members_ended(const struct launcher_members *members, int64_t number)
{
    const struct launcher_member *member = find(members, number);
    return member != NULL && member->ended;
}
