#include "common/cli.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "common/cli_table.h"

/* Names of up to this length are compared for a suggestion. */
enum { NAME_MAX_ = 40 };

static const struct cli_option common[] = {
    {"help", NULL, NULL, "this text", 'h', CLI_HELP},
    {"version", NULL, NULL, "the version", 0, CLI_VERSION},
    {"completion", "SHELL", "bash zsh fish", "print a script that completes this command line: bash, zsh or fish", 0,
     CLI_COMPLETION},
};

enum { COMMON = sizeof common / sizeof *common };

const struct cli_option *cli_at(const struct cli *cli, int i)
{
    int n = 0;
    while (cli->options && cli->options[n].name) n++;
    if (i < n) return &cli->options[i];
    return i - n < (cli->command ? 1 : COMMON) ? &common[i - n] : NULL; /* a command has --help alone */
}

bool cli_value_is_optional(const struct cli_option *option)
{
    return option->value && option->value[0] == '[';
}

bool cli_refuse(const struct cli *cli, const char *format, ...)
{
    const char *blank = cli->command ? " " : "", *command = cli->command ? cli->command : "";
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s%s%s: ", cli->program, blank, command);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (%s%s%s --help lists the options)\n", cli->program, blank, command);
    va_end(args);
    return false;
}

bool cli_int(const struct cli *cli, const char *name, const char *text, long long low, long long high, long long *value)
{
    char *end;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || number < low || number > high)
        return cli_refuse(cli, "--%s takes a number from %lld to %lld, not \"%s\"", name, low, high, text);
    *value = number;
    return true;
}

bool cli_real(const struct cli *cli, const char *name, const char *text, double low, double high, double *value)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= low && number <= high))
        return cli_refuse(cli, "--%s takes a number from %g to %g, not \"%s\"", name, low, high, text);
    *value = number;
    return true;
}

/* ---- suggestions ------------------------------------------------------------------------------------------------ */

static int least(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Returns the number of letters to insert, remove, replace or swap to make one word of the other. */
static int distance(const char *a, const char *b)
{
    static int to[NAME_MAX_ + 1][NAME_MAX_ + 1]; /* [i][k]: between the first i letters of a and the first k of b */
    int m = (int)strlen(a), n = (int)strlen(b);
    if (m > NAME_MAX_ || n > NAME_MAX_) return NAME_MAX_;
    for (int i = 0; i <= m; i++) {
        for (int k = 0; k <= n; k++) {
            if (i == 0 || k == 0) {
                to[i][k] = i + k;
                continue;
            }
            to[i][k] = least(to[i - 1][k] + 1, to[i][k - 1] + 1, to[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            bool swapped = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
            if (swapped && to[i - 2][k - 2] + 1 < to[i][k]) to[i][k] = to[i - 2][k - 2] + 1;
        }
    }
    return to[m][n];
}

const char *cli_nearest(const char *word, const char *const *names, int n)
{
    int best = strlen(word) > 4 ? 3 : 2;
    const char *nearest = NULL;
    for (int i = 0; i < n; i++) {
        int apart = distance(word, names[i]);
        if (apart >= best) continue;
        best = apart;
        nearest = names[i];
    }
    return nearest;
}

/* ---- errors ----------------------------------------------------------------------------------------------------- */

/* Copies the name of a long option, without the dashes and the value. */
static void name_of(const char *argument, char name[NAME_MAX_ + 1])
{
    argument += strspn(argument, "-");
    snprintf(name, NAME_MAX_ + 1, "%.*s", (int)strcspn(argument, "="), argument);
}

static void refuse_unknown(const struct cli *cli, const char *argument)
{
    const char *why = cli->why_not ? cli->why_not(argument) : NULL, *names[CLI_OPTIONS_MAX];
    char name[NAME_MAX_ + 1], begun[8 * NAME_MAX_] = "";
    int n = 0, matching = 0;
    name_of(argument, name);
    for (const struct cli_option *option; (option = cli_at(cli, n)) && n < CLI_OPTIONS_MAX; n++) {
        size_t used = strlen(begun);
        names[n] = option->name;
        if (argument[1] != '-' || strncmp(option->name, name, strlen(name)) != 0) continue;
        snprintf(begun + used, sizeof begun - used, "%s--%s", matching++ ? ", " : "", option->name);
    }
    const char *nearest = argument[1] == '-' ? cli_nearest(name, names, n) : NULL;
    if (why)
        cli_refuse(cli, "%s does not have torchrun's %s: %s", cli->program, argument, why);
    else if (matching > 1)
        cli_refuse(cli, "%s is the beginning of several options: %s", argument, begun);
    else if (nearest)
        cli_refuse(cli, "unknown option %s; did you mean --%s?", argument, nearest);
    else
        cli_refuse(cli, "unknown option %s", argument);
}

/* Reports an option that getopt_long has refused.  `index` is that of the table, or -1. */
static void refuse(const struct cli *cli, const char *argument, int how, int index)
{
    const struct cli_option *option = index >= 0 ? cli_at(cli, index) : NULL;
    if (option && how == ':')
        cli_refuse(cli, "%s needs a value", argument);
    else if (option && argument[1] == '-')
        cli_refuse(cli, "--%s takes no value", option->name);
    else
        refuse_unknown(cli, argument);
}

/* ---- parsing ---------------------------------------------------------------------------------------------------- */

/* What getopt_long needs.  The value of an option is its index in the table plus FIRST, also for letters. */
struct form {
    struct option longs[CLI_OPTIONS_MAX + 1];
    char letters[2 + 3 * CLI_OPTIONS_MAX + 1];
};

enum { FIRST = 256 };

static void make_form(const struct cli *cli, struct form *form)
{
    char *at = form->letters;
    *form = (struct form){0};
    at += sprintf(at, "%s:", cli->runs_program || cli->commands ? "+" : "");
    for (int i = 0; i < CLI_OPTIONS_MAX && cli_at(cli, i); i++) {
        const struct cli_option *option = cli_at(cli, i);
        int how = !option->value ? no_argument : cli_value_is_optional(option) ? optional_argument : required_argument;
        form->longs[i] = (struct option){option->name, how, NULL, FIRST + i};
        if (option->letter) at += sprintf(at, "%c%.*s", option->letter, how, "::");
    }
}

static int find_letter(const struct cli *cli, int letter)
{
    for (int i = 0; cli_at(cli, i); i++)
        if (cli_at(cli, i)->letter == letter) return i;
    return -1;
}

/* Changes underscores in the name of a long option to dashes, as torchrun accepts both. */
static void dash(char *argument)
{
    if (!argument || strncmp(argument, "--", 2) != 0) return;
    for (char *c = argument; *c && *c != '='; c++)
        if (*c == '_') *c = '-';
}

/* Returns the index of the option that getopt_long finds next, from `at` on: it skips other arguments, unless they
 * begin what belongs to a program or a command. */
static int find_next(const struct cli *cli, int argc, char **argv, int at)
{
    bool skips = !cli->runs_program && !cli->commands;
    while (skips && at < argc && (argv[at][0] != '-' || !argv[at][1])) at++;
    return at;
}

/* Handles option `index`.  Returns CLI_GO_ON or an exit status. */
static int take(const struct cli *cli, int index, const char *value, void *target)
{
    const struct cli_option *option = cli_at(cli, index);
    if (option->id == CLI_HELP) return cli_print_help(cli);
    if (option->id == CLI_VERSION) return printf("%s %s\n", cli->program, tutti_version()) < 0;
    if (option->id == CLI_COMPLETION) return cli_print_completion(cli, value);
    return cli->set(target, option->id, value) ? CLI_GO_ON : CLI_USAGE;
}

int cli_parse(const struct cli *cli, int argc, char **argv, void *target, int *first)
{
    struct form form;
    int status = CLI_GO_ON;
    make_form(cli, &form);
    optind = 0; /* makes getopt_long start anew */
    opterr = 0;
    for (int at = 1; status == CLI_GO_ON; at = optind) {
        int next = find_next(cli, argc, argv, at);
        if (next < argc) dash(argv[next]);
        optopt = 0;
        int found = getopt_long(argc, argv, form.letters, form.longs, NULL);
        if (found == -1) break;
        bool refused = found == '?' || found == ':';
        int code = refused ? optopt : found;
        int index = code >= FIRST ? code - FIRST : code ? find_letter(cli, code) : -1;
        const char *argument = argv[optind > at ? optind - 1 : at]; /* permuted arguments stand before it */
        if (!refused) {
            /* as -n=3 */
            const char *value = optarg && code < FIRST && *optarg == '=' ? optarg + 1 : optarg;
            status = take(cli, index, value, target);
        } else {
            refuse(cli, argument, found, index);
            status = CLI_USAGE;
        }
    }
    *first = optind;
    return status;
}
