#include <stdio.h>
#include <string.h>

#include "common/cli_table.h"

enum { LEFT_MAX = 26 };

/* Writes the left side of an option's line: "  -n, --name VALUE". */
static int write_left(const struct cli_option *option, char *text, size_t bytes)
{
    char letter[8] = "    ", value[64] = "";
    if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
    if (cli_value_is_optional(option))
        snprintf(value, sizeof value, "[=%s", option->value + 1); /* [X] is --name[=X] */
    else if (option->value)
        snprintf(value, sizeof value, " %s", option->value);
    return snprintf(text, bytes, "  %s--%s%s", letter, option->name, value);
}

static int find_column(const struct cli *cli)
{
    char left[128];
    int column = 0;
    for (int i = 0; cli_at(cli, i); i++) {
        int width = write_left(cli_at(cli, i), left, sizeof left);
        if (cli_at(cli, i)->help && width > column && width <= LEFT_MAX) column = width;
    }
    return column + 2;
}

/* Prints an option.  Further lines of its help stand below the first one. */
static void print_option(const struct cli_option *option, int column)
{
    char left[128];
    int width = write_left(option, left, sizeof left);
    printf("%s", left);
    if (width > column - 2) printf("\n%*s", column, "");
    for (const char *line = option->help; line; line = strchr(line, '\n')) {
        bool first = line == option->help;
        line += !first;
        printf("%*s%.*s\n",
               first && width <= column - 2 ? column - width
               : first                      ? 0
                                            : column,
               "", (int)strcspn(line, "\n"), line);
    }
}

int cli_print_help(const struct cli *cli)
{
    int column = find_column(cli);
    printf("usage: %s\n%s\n\n", cli->usage, cli->summary);
    for (const struct cli *const *at = cli->commands; at && *at; at++)
        printf("  %-8s %.*s\n", (*at)->command, (int)strcspn((*at)->summary, "\n"), (*at)->summary);
    if (cli->commands) printf("\n");
    for (int i = 0; cli_at(cli, i); i++)
        if (cli_at(cli, i)->help) print_option(cli_at(cli, i), column);
    if (cli->end) printf("\n%s\n", cli->end);
    return fflush(stdout) != 0 || ferror(stdout);
}
