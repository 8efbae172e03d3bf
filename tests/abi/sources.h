/* The sources of this repository. */
#ifndef TESTS_SOURCES_H
#define TESTS_SOURCES_H

/* Call visit for each .c and .h file, with its path from the top of the repository.  The first one covers include,
 * core, portable, backends, train, tools and examples, the second one tests. */
void sources_visit(void (*visit)(const char *path));
void sources_visit_tests(void (*visit)(const char *path));

#endif
