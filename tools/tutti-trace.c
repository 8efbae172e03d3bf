/* tutti-trace: reads what the ranks of a job have recorded.
 *
 *     tutti-trace stuck FOLDER    where each rank stands, by the flight recorder's files (TUTTI_RECORD_DIR)
 *
 * Exit status: 0; 1 if there was nothing to report on; 2 if the command line was refused.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#include "trace/trace.h"

static const struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* the arguments and the effect, one line */
} subcommands[] = {
    {"stuck", trace_stuck, "stuck FOLDER    where each rank stands, by the files of TUTTI_RECORD_DIR"},
};

enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static int print_help(void)
{
    printf("usage: tutti-trace SUBCOMMAND [OPTIONS] ARGUMENTS\n"
           "Reads what the ranks of a job have recorded.\n\n");
    for (int i = 0; i < SUBCOMMANDS; i++) printf("  %s\n", subcommands[i].help);
    printf("\n  --help, --version\n"
           "tutti-trace SUBCOMMAND --help lists the options of a subcommand.\n");
    return 0;
}

static int refuse(const char *what, const char *word)
{
    fprintf(stderr, "tutti-trace: %s%s; see --help\n", word, what);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'v'}, {NULL, 0, NULL, 0}};
    int letter = getopt_long(argc, argv, "+h", options, NULL); /* +: the subcommand's options are its own */
    if (letter == 'h') return print_help();
    if (letter == 'v') return printf("tutti-trace %s\n", tutti_version()) < 0;
    if (letter != -1) return 2; /* getopt_long has said why */
    if (optind == argc) return refuse("name a subcommand", "");
    char **rest = argv + optind;
    int n = argc - optind;
    optind = 0; /* the subcommand starts anew */
    for (int i = 0; i < SUBCOMMANDS; i++)
        if (strcmp(subcommands[i].name, rest[0]) == 0) return subcommands[i].run(n, rest);
    return refuse(" is not a subcommand", rest[0]);
}
