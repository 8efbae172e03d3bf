/* The default group, the library's one global. */
#ifndef DEFAULT_GROUP_H
#define DEFAULT_GROUP_H

struct tutti_group;

/* Makes group, or none, the default group.  Returns the previous one. */
struct tutti_group *default_group_set(struct tutti_group *group);

/* Returns group, or the default group if it is NULL.  Returns NULL, with the error text set, if there is none. */
struct tutti_group *default_group_or(const struct tutti_group *group);

/* Does the same for queries, without an error text. */
const struct tutti_group *default_group_peek(const struct tutti_group *group);

#endif
