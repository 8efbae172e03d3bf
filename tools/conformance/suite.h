/* What all parts of the suite share: a case, and the rank that runs it. */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include <tutti/tutti.h>

#include "conformance/lines.h"

enum { RANKS_MOST = 16, LINES_EACH = 14, NAME_MOST = 112, TEXT_MOST = 400 };

enum verdict { NOT_RUN = 0, PASSED, APART /* the rank is not in the case's group */, SKIPPED, FAILED };

/* The groups in which cases run, made once and again after a failure. */
enum where { WORLD = 0, MEMBERS_ONLY, SPLIT, REVERSED, GROUPS };

extern const char *const where_names[GROUPS];

struct scoreboard;
struct check;

/* One rank of a launch: a process or a thread. */
struct rank {
    struct scoreboard *scoreboard;
    const struct options *options;
    tutti_store *store;          /* all ranks' store; groups of their own are made from prefixes of it */
    tutti_group *groups[GROUPS]; /* the world's first ranks; the handle of a non-member has rank -1 */
    int rank, size;
    int at;  /* the case's place on the scoreboard */
    int met; /* how often it has synchronised within the case */
    uint64_t seed;
    const struct check *check;
};

/* What varies in a case of a collective; see collective.h. */
struct spec {
    int form, placement, input;
    tutti_dtype dtype;
    tutti_reduce_op op;
    int64_t count;
    enum where where;
    bool async, uneven, refused; /* refused: the op does not reduce the dtype, and the call must say so */
};

typedef enum verdict (*check_fn)(struct rank *rank);

struct check {
    const char *kind; /* the index of the table's row */
    check_fn run;
    char name[NAME_MOST];        /* with the kind; --filter searches it */
    enum line lines[LINES_EACH]; /* terminated by 0 */
    int min_ranks;
    bool processes; /* only if ranks are processes */
    bool spawned;   /* only if the suite started them itself */
    bool same_bits; /* the results of all ranks have the same bits */
    struct spec spec;
};

/* End a case early: they write the reason on the scoreboard and return the verdict. */
enum verdict rank_fail(struct rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum verdict rank_skip(struct rank *rank);
enum verdict rank_status(struct rank *rank, const char *file, int line, const char *what, int status);

/* Adds bits of this rank's result to those that are compared across ranks. */
void rank_bits(struct rank *rank, const void *data, size_t bytes);

/* Enclose a call from which no rank may return before all have entered it.  The second one fails if a rank has not. */
void rank_entered(struct rank *rank);
enum verdict rank_left(struct rank *rank);

/* Makes a group of all ranks, a subgroup of the world, for a case that fails it. */
int rank_own_group(struct rank *rank, int64_t timeout_ms, tutti_group **group);

/* Within a case: waits until all ranks that are still in it have arrived, by the suite's own means. */
void rank_meet(struct rank *rank);

#define FAIL_UNLESS(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return rank_fail(rank, "%s:%d: not so: %s; last error: %s", strrchr("/" __FILE__, '/') + 1, __LINE__,      \
                             #condition, tutti_last_error());                                                          \
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
            return rank_fail(rank, "%s:%d: %s answers %s, it should be %s", strrchr("/" __FILE__, '/') + 1, __LINE__,  \
                             #call, tutti_status_string(status_of_call), tutti_status_string(code));                   \
        if (tutti_last_error()[0] == '\0') return rank_fail(rank, "%s: %s gives no sentence", __FILE__, #call);        \
    } while (0)

#endif
