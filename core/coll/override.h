/* Overrides of the tables of algorithms and paths: names (TUTTI_ALGO) and measured rows (TUTTI_TUNING).
 *
 * A name is that of a plan's algorithm, or of a path by which a backend does an operation itself. */
#ifndef OVERRIDE_H
#define OVERRIDE_H

#include <tutti/backend.h>

#include "coll/coll.h"

/* Finds what the text selects for a kind: "all_reduce=ring,broadcast=direct", or one name for all kinds that have it.
 * *chosen is unchanged if the text does not mention the kind.  The whole text is checked.  Returns TUTTI_OK, or
 * INVALID_ARGUMENT with a list of the known names. */
int override_find(const char *text, const struct coll_path *paths, tutti_kind wanted,
                  const struct coll_algorithm **chosen);

/* Returns the path of this name, or NULL. */
const struct coll_algorithm *override_path(const struct coll_path *paths, tutti_kind kind, const char *name,
                                           size_t length);

/* Returns the maximum number of rows that override_rows writes. */
int override_rows_max(const struct coll_override *override);

/* Writes the rows that a backend uses before its own table, and returns their number.  A kind for which the text is
 * malformed is left to plans, whose selection reports the error. */
int override_rows(const struct coll_override *override, const void *owner, tutti_path_row *rows);

#endif
