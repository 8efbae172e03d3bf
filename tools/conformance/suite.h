/* Shared by all parts of the suite: a case, and the rank that runs it. */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include <tutti/tutti.h>

#include "conformance/lines.h"

enum { RANKS_MAX = 16, LINES_EACH = 14, CASE_NAME_MAX = 112, TEXT_MAX = 400 };

enum verdict { NOT_RUN = 0, PASSED, APART /* the rank is not a member of the case's group */, SKIPPED, FAILED };

/* The groups in which cases run.  They are made once, and again after a failure. */
enum where { WORLD = 0, MEMBERS_ONLY, SPLIT, REVERSED, GROUPS };

extern const char *const where_names[GROUPS];

struct scoreboard;
struct check;

/* One rank of a launch: a process or a thread. */
struct rank {
    struct scoreboard *scoreboard;
    const struct options *options;
    tutti_store *store;          /* shared by all ranks; each group uses a prefix of it */
    tutti_group *groups[GROUPS]; /* in a non-member the handle has rank -1 */
    int rank, size;
    int at;  /* index of the case on the scoreboard */
    int met; /* number of synchronisations within the case */
    uint64_t seed;
    const struct check *check;
};

/* Parameters of a case of a collective: see collective.h. */
struct spec {
    int form, placement, input;
    tutti_dtype dtype;
    tutti_reduce_op op;
    int64_t count;
    enum where where;
    bool async, uneven, refused; /* refused: the op does not reduce the dtype, so the call must fail */
};

typedef enum verdict (*check_fn)(struct rank *rank);

struct check {
    const char *kind; /* kind of the case, for the table in the report */
    check_fn run;
    char name[CASE_NAME_MAX];    /* begins with the kind; --filter searches it */
    enum line lines[LINES_EACH]; /* terminated by 0 */
    int min_ranks;
    bool processes; /* runs only if ranks are processes */
    bool spawned;   /* runs only if the suite has spawned the ranks */
    bool same_bits; /* the results of all ranks must have the same bits */
    struct spec spec;
};

/* End a case early.  They set the reason on the scoreboard and return the verdict. */
enum verdict rank_fail(struct rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum verdict rank_skip(struct rank *rank);
enum verdict rank_status(struct rank *rank, const char *file, int line, const char *what, int status);

/* Adds data of this rank's result to the hash that is compared across ranks. */
void rank_bits(struct rank *rank, const void *data, size_t bytes);

/* Enclose a call from which no rank may return before all have entered it.  rank_left fails if one has not entered. */
void rank_entered(struct rank *rank);
enum verdict rank_left(struct rank *rank);

/* Makes a subgroup of all ranks, for a case that fails its group. */
int rank_own_group(struct rank *rank, int64_t timeout_ms, tutti_group **group);

/* Waits within a case until all ranks that are still in it have arrived, without the backend. */
void rank_meet(struct rank *rank);

#define FAIL_UNLESS(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return rank_fail(rank, "%s:%d: condition is false: %s; last error: %s", strrchr("/" __FILE__, '/') + 1,    \
                             __LINE__, #condition, tutti_last_error());                                                \
    } while (0)

/* Checks a call that must succeed, or be unsupported on all ranks. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        int status_of_call = (call);                                                                                   \
        if (status_of_call != TUTTI_OK) return rank_status(rank, __FILE__, __LINE__, #call, status_of_call);           \
    } while (0)

/* Checks a call that must be refused with this code and a reason. */
#define REFUSED(call, code)                                                                                            \
    do {                                                                                                               \
        int status_of_call = (call);                                                                                   \
        if (status_of_call != (code))                                                                                  \
            return rank_fail(rank, "%s:%d: %s returned %s, not %s", strrchr("/" __FILE__, '/') + 1, __LINE__, #call,   \
                             tutti_status_string(status_of_call), tutti_status_string(code));                          \
        if (tutti_last_error()[0] == '\0')                                                                             \
            return rank_fail(rank, "%s: %s failed without an error text", __FILE__, #call);                            \
    } while (0)

#endif
