/* The sources of the product: include, core, backends, tools and examples. */
#ifndef TESTS_SOURCES_H
#define TESTS_SOURCES_H

/* Calls visit for each .c and .h file, with its path from the top of the repository. */
void sources_visit(void (*visit)(const char *path));

#endif
