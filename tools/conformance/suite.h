/* What every part of the suite shares: a case, and the rank that runs it. */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include <tutti/tutti.h>

#include "conformance/lines.h"

enum { RANKS_MOST = 16, LINES_EACH = 14, NAME_MOST = 112, TEXT_MOST = 400 };

enum verdict { NOT_RUN = 0, PASSED, APART /* the rank is not in the case's group */, SKIPPED, FAILED };

/* The groups in which cases run, made once and again after a failure. */
enum where { WORLD = 0, MEMBERS_ONLY, SPLIT, REVERSED, GROUPS };

extern const char *const where_names[GROUPS];

struct board;
struct check;

/* One rank of a launch: a process or a thread. */
struct rank {
    struct board *board;
    const struct options *options;
    tutti_store *store;          /* all ranks': groups of their own are made from prefixes of it */
    tutti_group *groups[GROUPS]; /* the world's first; a handle with rank -1 where this rank is none of it */
    int rank, size;
    int at;  /* the case's place on the board */
    int met; /* how often it has met the others within the case */
    uint64_t seed;
    const struct check *check;
};

/* What a collective's case varies; see collective.h. */
struct spec {
    int form, placement, input;
    tutti_dtype dtype;
    tutti_reduce_op op;
    int64_t count;
    enum where where;
    bool async, uneven, refused; /* refused: the op does not reduce the dtype, and must say so */
};

typedef enum verdict (*check_fn)(struct rank *rank);

struct check {
    const char *kind; /* the row of the table at the end */
    check_fn run;
    char name[NAME_MOST];        /* with the kind; what --filter looks at */
    enum line lines[LINES_EACH]; /* ends with 0 */
    int min_ranks;
    bool processes; /* only where ranks are processes */
    bool spawned;   /* only where the suite started them itself */
    bool same_bits; /* every rank's result has the same bits */
    struct spec spec;
};

/* How a case ends early.  They write the reason on the board and give the verdict. */
enum verdict rank_fail(struct rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum verdict rank_skip(struct rank *rank);
enum verdict rank_status(struct rank *rank, const char *file, int line, const char *what, int status);

/* For the fold: the bits of this rank's result. */
void rank_bits(struct rank *rank, const void *data, size_t bytes);

/* Around a call from which none may come back before all have entered it: the second fails where one has not. */
void rank_entered(struct rank *rank);
enum verdict rank_left(struct rank *rank);

/* A group with all ranks for a case that fails it; a child of the world. */
int rank_own_group(struct rank *rank, int64_t timeout_ms, tutti_group **group);

/* Within a case: holds until all ranks that are still in it are here, by the suite's own means and not by the
 * backend's. */
void rank_meet(struct rank *rank);

#define FAIL_UNLESS(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return rank_fail(rank, "%s:%d: not so: %s; last error: %s", strrchr("/" __FILE__, '/') + 1, __LINE__,      \
                             #condition, tutti_last_error());                                                          \
    } while (0)

/* A call that has to succeed, or be unsupported on all ranks. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        int status_of_call = (call);                                                                                   \
        if (status_of_call != TUTTI_OK) return rank_status(rank, __FILE__, __LINE__, #call, status_of_call);           \
    } while (0)

/* A call that has to be refused with this code, and say why. */
#define REFUSED(call, code)                                                                                            \
    do {                                                                                                               \
        int status_of_call = (call);                                                                                   \
        if (status_of_call != (code))                                                                                  \
            return rank_fail(rank, "%s:%d: %s answers %s, it should be %s", strrchr("/" __FILE__, '/') + 1, __LINE__,  \
                             #call, tutti_status_string(status_of_call), tutti_status_string(code));                   \
        if (tutti_last_error()[0] == '\0') return rank_fail(rank, "%s: %s gives no sentence", __FILE__, #call);        \
    } while (0)

#endif
