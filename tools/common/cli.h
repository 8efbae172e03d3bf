/* Command lines of the tools.  One table of options serves the parser (getopt_long), --help and the completion of
 * shells.  --help, --version and --completion are added to each table. */
#ifndef COMMON_CLI_H
#define COMMON_CLI_H

#include <stdbool.h>

/* What completes a value, instead of a list of words. */
#define CLI_FILE "<file>"
#define CLI_FOLDER "<folder>"
#define CLI_HOST "<host>"

struct cli_option {
    const char *name;  /* without the dashes */
    const char *value; /* what the help calls the value; "[X]": it may be left out; NULL: the option takes none */
    const char *words; /* values to complete, separated by blanks, or one of the above; NULL: any */
    const char *help;  /* its lines; NULL: the option is not listed */
    char letter;       /* 0: none */
    int id;            /* passed to `set` */
};

struct cli {
    const char *program;
    const char *command;               /* a command of the program, such as "merge", or NULL */
    const char *usage;                 /* the lines after "usage: " */
    const char *summary;               /* the lines after it */
    const struct cli_option *options;  /* the last one has no name */
    const char *end;                   /* the lines after the options, or NULL */
    const char *words;                 /* completes other arguments, as for an option */
    const struct cli *const *commands; /* the program's commands, ended by NULL.  NULL: none */
    bool runs_program;                 /* the first argument that is not an option is a program */

    /* Sets an option.  Returns false after a message. */
    bool (*set)(void *target, int id, const char *value);

    /* Returns why the tool lacks an option of torchrun, or NULL.  May be NULL. */
    const char *(*why_not)(const char *argument);
};

enum { CLI_GO_ON = -1, CLI_USAGE = 2 };

/* Parses the options.  An underscore in a name counts as a dash.  Returns CLI_GO_ON, or the exit status: 0 after
 * --help,
 * --version and --completion, CLI_USAGE after a message.  Sets *first to the index of the first argument that is not an
 * option; they are moved to the end of argv. */
int cli_parse(const struct cli *cli, int argc, char **argv, void *target, int *first);

/* Prints the message on stderr.  Returns false. */
bool cli_refuse(const struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parses a number in a range for the option `name`.  Returns false after a message. */
bool cli_int(const struct cli *cli, const char *name, const char *text, long long low, long long high,
             long long *value);
bool cli_real(const struct cli *cli, const char *name, const char *text, double low, double high, double *value);

/* Returns the name in a list of n that is the most like `word`, or NULL if none is like it. */
const char *cli_nearest(const char *word, const char *const *names, int n);

#endif
