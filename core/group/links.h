/* How fast the backends' messages are: rank 0's figures, which all ranks use.
 *
 * The choice of algorithms follows from them, so they travel as text with the rest of what rank 0 publishes, and are
 * rounded: nearly equal measurements then lead to equal choices. */
#ifndef LINKS_H
#define LINKS_H

#include <stddef.h>
#include <tutti/backend.h>

struct tutti_group;
struct backend_entry;

enum { LINKS_TEXT_MAX = 2048 };

/* Asks the backends of a tree's first group for their figures, on all ranks.  Stores those of rank 0 in its entries. */
int links_find(struct tutti_group *group);

/* Rounds the figures to powers of the square root of 2, within what a network can have. */
void links_round(tutti_link *link);

/* Writes one line for each backend of this rank that knows its figures.  Returns the number of bytes. */
size_t links_print(const struct tutti_group *group, char text[LINKS_TEXT_MAX]);

/* Reads the lines that begin the text into the entries.  Returns the rest of the text, or NULL if a line is malformed.
 * The text comes from the store. */
const char *links_read(struct tutti_group *group, const char *text);

/* Logs the figures that this rank uses. */
void links_log(const struct tutti_group *group);

/* Parses a line "link BACKEND", five numbers between hosts, five within one, and the cores, "\n".  Returns the end of
 * the line, or NULL if it is malformed. */
const char *links_parse(const char *line, char backend[33], tutti_links *links);

#endif
