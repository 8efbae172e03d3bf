/* Checks of tutti_explain. */
#ifndef TESTS_EXPLAINED_H
#define TESTS_EXPLAINED_H

#include <stdbool.h>
#include <tutti/tutti.h>

/* True if the explanation of an operation contains the text.  Prints it on stderr otherwise. */
bool explained(tutti_group *group, tutti_kind kind, int64_t bytes, const char *part);

#endif
