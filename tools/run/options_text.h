/* Texts about tutti-run's options: the help, and torchrun's options that tutti-run lacks. */
#ifndef RUN_OPTIONS_TEXT_H
#define RUN_OPTIONS_TEXT_H

#include <stdbool.h>

extern const char options_help[];

/* True if text is `name` up to its '=' or end.  '_' counts as '-', as for torchrun. */
bool options_same_name(const char *text, const char *name);

/* Returns why tutti-run lacks an option of torchrun, or NULL if torchrun has no such option. */
const char *options_why_not(const char *argument);

#endif
