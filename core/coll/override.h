/* What overrides the tables of algorithms and paths: names (TUTTI_ALGO), and measured rows (TUTTI_TUNING).
 *
 * Names are those of algorithms of plans, and those of paths, by which backends do operations themselves.
 */
#ifndef OVERRIDE_H
#define OVERRIDE_H

#include <tutti/backend.h>

#include "coll/coll.h"

/* Finds what text names for a kind: "all_reduce=ring,broadcast=direct", or one name for all kinds that have it. *chosen
 * stays as it is where the text leaves the kind open.  All of the text is checked.  Returns TUTTI_OK, or
 * INVALID_ARGUMENT with a list of what there is. */
int override_find(const char *text, const struct coll_path *paths, tutti_kind wanted,
                  const struct coll_algorithm **chosen);

/* Returns the path of this name, or NULL. */
const struct coll_algorithm *override_path(const struct coll_path *paths, tutti_kind kind, const char *name,
                                           size_t length);

/* Returns at most how many rows override_rows makes. */
int override_rows_max(const struct coll_wish *wish);

/* Makes the rows that a backend is to use before its own table.  Returns their number.  A kind for which the text is
 * malformed is left to plans, whose selection reports the error. */
int override_rows(const struct coll_wish *wish, const void *owner, tutti_path_row *rows);

#endif
