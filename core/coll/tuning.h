/* Measured thresholds: what the file named by TUTTI_TUNING says (docs/algorithms.md has its format).
 *
 * Rank 0 reads it, and the others get its text through the store: so all ranks choose alike whatever lies on their own
 * disks. */
#ifndef TUNING_H
#define TUNING_H

#include "coll/coll.h"

enum { TUNING_TEXT_MAX = 256 * 1024 };

struct tuning {
    struct coll_tuned *rows;
    int n;
};

/* paths: of the backend (coll.h), or NULL.  Algorithms of other backends are not checked.
 *
 * The rows for one backend in groups of so many ranks on so many hosts.  INVALID_ARGUMENT, "line 3: ..": the text, any
 * line of it, is malformed; then there are no rows.  tuning_free gives them back. */
int tuning_parse(const char *text, const char *backend, int ranks, int hosts, const struct coll_path *paths,
                 struct tuning *tuning);
void tuning_free(struct tuning *tuning);

/* The text of a file that is well formed; NULL after a warning where it is not, or where path is NULL. */
char *tuning_read(const char *path);

#endif
