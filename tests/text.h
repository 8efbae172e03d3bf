/* Searches in the output of programs. */
#ifndef TESTS_TEXT_H
#define TESTS_TEXT_H

/* Returns how often a word occurs in a text, which may be NULL. */
int text_count(const char *text, const char *word);

#endif
