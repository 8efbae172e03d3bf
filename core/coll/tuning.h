/* Measured thresholds from the file named by TUTTI_TUNING (docs/algorithms.md has its format).
 *
 * Rank 0 reads the file and distributes its text through the store, so all ranks make the same choices, even if their
 * own disks hold different files. */
#ifndef TUNING_H
#define TUNING_H

#include "coll/coll.h"

enum { TUNING_TEXT_MAX = 256 * 1024 };

struct tuning {
    struct coll_tuned *rows;
    int n;
};

/* Parses the rows for one backend in groups with this number of ranks and hosts; tuning_free frees them.  paths are
 * those of the backend (coll.h), or NULL.  Algorithms of other backends are not checked.  Returns INVALID_ARGUMENT,
 * "line 3: ..", and no rows, if any line of the text is malformed. */
int tuning_parse(const char *text, const char *backend, int ranks, int hosts, const struct coll_path *paths,
                 struct tuning *tuning);
void tuning_free(struct tuning *tuning);

/* Returns the text of a well-formed file.  Returns NULL if path is NULL, and after a warning if the file is
 * malformed. */
char *tuning_read(const char *path);

#endif
