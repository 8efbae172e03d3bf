/* Shared by the training examples: their command line, "PROGRAM [BACKEND] [--option VALUE] ..". */
#ifndef EXAMPLE_OPTIONS_H
#define EXAMPLE_OPTIONS_H

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

/* An option with a value, which goes to one of the three. */
struct example_option {
    const char *name;                               /* without the dashes */
    const char **text;                              /* the value as it is */
    int *integer;                                   /* a positive multiple of `unit` (0: of 1) up to `most` */
    int unit, most;                                 /* of the integer */
    void (*set)(const char *value, void *argument); /* parses the value */
    void *argument;
};

enum { EXAMPLE_OPTIONS_MAX = 16 };

/* The line after "usage: ", whose first word is the program's name. */
static const char *example_usage = "";

/* Prints the reason and the usage, and ends the program. */
_Noreturn static inline void __attribute__((format(printf, 1, 2))) example_refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%.*s: ", (int)strcspn(example_usage, " "), example_usage);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nusage: %s\n", example_usage);
    exit(2);
}

static inline int example_integer(const char *name, const char *text, int unit, int most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < unit || value > most || value % unit != 0)
        example_refuse("--%s needs %s %d %s %d, not \"%s\"", name, unit == 1 ? "an integer of" : "a multiple of", unit,
                       unit == 1 ? "to" : "up to", most, text);
    return (int)value;
}

static inline void example_set(const struct example_option *option, const char *value)
{
    if (option->text)
        *option->text = value;
    else if (option->integer)
        *option->integer = example_integer(option->name, value, option->unit ? option->unit : 1, option->most);
    else
        option->set(value, option->argument);
}

/* Sets the options, which end with one without a name.  Returns the backend, or "tcp". */
static inline const char *example_parse(const char *usage, const struct example_option *options, int argc, char **argv)
{
    struct option longs[EXAMPLE_OPTIONS_MAX + 3] = {{"help", no_argument, NULL, 'h'},
                                                    {"version", no_argument, NULL, 'v'}};
    for (int i = 0; i < EXAMPLE_OPTIONS_MAX && options[i].name; i++)
        longs[2 + i] = (struct option){options[i].name, required_argument, NULL, 256 + i};
    example_usage = usage;
    opterr = 0;
    for (int found; (found = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        if (found == 'h') exit(printf("usage: %s\n", example_usage) < 0);
        if (found == 'v')
            exit(printf("%.*s %s\n", (int)strcspn(example_usage, " "), example_usage, tutti_version()) < 0);
        if (found == ':') example_refuse("%s needs a value", argv[optind - 1]);
        if (found < 256) example_refuse("unknown option %s", argv[optind - 1]);
        example_set(&options[found - 256], optarg);
    }
    if (optind + 1 < argc) example_refuse("unexpected argument %s", argv[optind + 1]);
    return optind < argc ? argv[optind] : "tcp";
}

#endif
