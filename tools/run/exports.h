/* Variables that the ranks get besides the launcher's own: -x, --env-file, and on other hosts those of Tutti. */
#ifndef RUN_EXPORTS_H
#define RUN_EXPORTS_H

/* A list of "NAME=value", ended by NULL. */
struct exports {
    char **list; /* NULL if it is empty */
    int n;
};

/* Sets "NAME=value", or with "NAME" alone the launcher's value.  A later value replaces an earlier one.  Returns NULL,
 * or what is wrong, which lasts until the next call. */
const char *exports_add(struct exports *exports, const char *text);

/* Adds the lines "NAME=value" of a file.  Empty lines and those that begin with "#" are left out; "export " before a
 * name is, too; a value may stand in quotes.  Returns NULL, or what is wrong. */
const char *exports_read(struct exports *exports, const char *path);

/* Returns the value that the ranks get for a variable: the exported one, or the launcher's.  NULL if it is not set. */
const char *exports_get(const struct exports *exports, const char *name);

void exports_free(struct exports *exports);

/* Returns the variables for ranks on other hosts: TUTTI_* of this environment, except those of this job alone, and then
 * these.  The caller frees the list, not the words. */
char **exports_for_hosts(const struct exports *exports);

#endif
