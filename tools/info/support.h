/* What a group's backends support, found by trying it. */
#ifndef INFO_SUPPORT_H
#define INFO_SUPPORT_H

/* Tries each operation with each dtype and reduce op in the default group, which all of its ranks call.  Rank 0 prints
 * the result as a section of docs/support.md.  Returns 0, or 1 after an unexpected error, which it prints. */
int print_support(void);

#endif
