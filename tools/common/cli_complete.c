/* Completion scripts, written from the same table as --help. */
#include <stdio.h>
#include <string.h>

#include "common/cli_table.h"

/* Returns the program's name as a shell function's: "_tutti_run". */
static const char *function_of(const struct cli *cli)
{
    static char name[64];
    snprintf(name, sizeof name, "_%s", cli->program);
    for (char *c = name; *c; c++)
        if (*c == '-') *c = '_';
    return name;
}

static bool is_kind(const char *words, const char *kind)
{
    return words && strcmp(words, kind) == 0;
}

/* Prints the first line of a text within single quotes of a shell, with a backslash before each character of
 * `special`. */
static void print_line(const char *text, const char *special)
{
    for (const char *c = text; *c && *c != '\n'; c++) {
        if (*c == '\'')
            printf("'\\''");
        else
            printf("%s%c", strchr(special, *c) ? "\\" : "", *c);
    }
}

/* Returns option i if the help lists it, else an option without a name.  Returns NULL after the last one. */
static const struct cli_option *listed(const struct cli *cli, int i)
{
    static const struct cli_option none = {0};
    const struct cli_option *option = cli_at(cli, i);
    return option && !option->help ? &none : option;
}

/* ---- bash ------------------------------------------------------------------------------------------------------- */

/* Prints how bash completes a value. */
static void print_bash_value(const char *words)
{
    if (is_kind(words, CLI_FILE))
        printf("compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$cur\"))");
    else if (is_kind(words, CLI_FOLDER))
        printf("compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- \"$cur\"))");
    else if (is_kind(words, CLI_HOST))
        printf("COMPREPLY=($(compgen -A hostname -- \"$cur\"))");
    else
        printf("COMPREPLY=($(compgen -W '%s' -- \"$cur\"))", words ? words : "");
}

/* Prints the names of the options with a value as a pattern of case.  Returns their number. */
static int print_bash_pattern(const struct cli *cli)
{
    int n = 0;
    const struct cli_option *option;
    for (int i = 0; (option = listed(cli, i)); i++) {
        if (!option->value || cli_value_is_optional(option)) continue;
        if (option->letter) printf("%s-%c", n++ ? " | " : "", option->letter);
        printf("%s--%s", n++ ? " | " : "", option->name);
    }
    return n;
}

/* Prints the search for the first argument that is not an option. */
static void print_bash_search(const struct cli *cli)
{
    printf("    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        case ${COMP_WORDS[i]} in\n"
           "        =) ((i++)) ;;\n        ");
    if (print_bash_pattern(cli) > 0) printf(") [[ ${COMP_WORDS[i + 1]:-} == = ]] || ((i++)) ;;\n");
    printf("        -*) ;;\n"
           "        *)\n"
           "            at=$i\n"
           "            break\n"
           "            ;;\n"
           "        esac\n"
           "    done\n");
}

/* Prints a case for each option with a value. */
static void print_bash_values(const struct cli *cli)
{
    const struct cli_option *option;
    printf("    case $prev in\n");
    for (int i = 0; (option = listed(cli, i)); i++) {
        if (!option->value) continue;
        if (option->letter) printf("    -%c | --%s)\n", option->letter, option->name);
        if (!option->letter) printf("    --%s)\n", option->name);
        printf("        %s{ ", cli_value_is_optional(option) ? "[[ $joined ]] && " : "");
        print_bash_value(option->words);
        printf("; return; }\n        ;;\n");
    }
    printf("    esac\n");
}

static void print_bash_names(const struct cli *cli)
{
    printf("COMPREPLY=($(compgen -W '");
    for (const struct cli *const *at = cli->commands; at && *at; at++) printf("%s ", (*at)->command);
    printf("' -- \"$cur\"))");
}

/* Prints the completion of options, and of what else the program takes. */
static void print_bash_words(const struct cli *cli)
{
    const struct cli_option *option;
    printf("    if [[ $cur == -* ]]; then\n        COMPREPLY=($(compgen -W '");
    for (int i = 0; (option = listed(cli, i)); i++) {
        if (option->letter) printf("-%c ", option->letter);
        if (option->name) printf("--%s ", option->name);
    }
    printf("' -- \"$cur\"))\n    else\n        ");
    if (cli->runs_program) printf("compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -c -f -- \"$cur\"))");
    if (cli->commands) print_bash_names(cli);
    if (!cli->runs_program && !cli->commands) print_bash_value(cli->words);
    printf("\n    fi\n");
}

static void print_bash_commands(const struct cli *cli)
{
    printf("    case $at:${COMP_WORDS[at]} in\n");
    for (const struct cli *const *at = cli->commands; at && *at; at++) {
        printf("    *:%s)\n", (*at)->command);
        print_bash_values(*at);
        print_bash_words(*at);
        printf("        return\n        ;;\n");
    }
    printf("    esac\n");
}

static void print_bash(const struct cli *cli)
{
    const char *name = function_of(cli);
    printf("# Completes %s in bash.  Written by: %s --completion bash\n"
           "%s() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} joined= i at=0\n"
           "    COMPREPLY=()\n"
           "    # bash makes three words of --name=value\n"
           "    if [[ $cur == = ]]; then\n"
           "        cur= joined=1\n"
           "    elif [[ $prev == = ]] && ((COMP_CWORD > 1)); then\n"
           "        prev=${COMP_WORDS[COMP_CWORD - 2]} joined=1\n"
           "    fi\n",
           cli->program, cli->program, name);
    print_bash_search(cli);
    if (cli->runs_program)
        printf("    if ((at > 0)); then # the words of the program\n"
               "        if declare -F _command_offset >/dev/null; then\n"
               "            _command_offset \"$at\"\n"
               "        else\n"
               "            compopt -o filenames 2>/dev/null\n"
               "            COMPREPLY=($(compgen -f -- \"$cur\"))\n"
               "        fi\n"
               "        return\n"
               "    fi\n");
    if (cli->commands) print_bash_commands(cli);
    print_bash_values(cli);
    print_bash_words(cli);
    printf("}\ncomplete -F %s %s\n", name, cli->program);
}

/* ---- zsh -------------------------------------------------------------------------------------------------------- */

/* Prints what zsh completes a value with. */
static void print_zsh_value(const char *words)
{
    if (is_kind(words, CLI_FILE))
        printf("_files");
    else if (is_kind(words, CLI_FOLDER))
        printf("_files -/");
    else if (is_kind(words, CLI_HOST))
        printf("_hosts");
    else if (words)
        printf("(%s)", words);
    else
        putchar(' ');
}

/* Prints an option for _arguments, for example '--bind=[text]:WHAT:(none core)'. */
static void print_zsh_option(const struct cli_option *option)
{
    bool optional = cli_value_is_optional(option);
    printf(" \\\n        ");
    if (option->letter)
        printf("'(-%c --%s)'{-%c%s,--%s%s}'[", option->letter, option->name, option->letter, option->value ? "+" : "",
               option->name, option->value ? "=" : "");
    else
        printf("'--%s%s[", option->name, !option->value ? "" : optional ? "=-" : "=");
    print_line(option->help, "[]:");
    putchar(']');
    if (option->value) {
        printf("%s", optional ? "::" : ":");
        print_line(option->value, "[]:");
        putchar(':');
        print_zsh_value(option->words);
    }
    putchar('\'');
}

static void print_zsh_options(const struct cli *cli)
{
    const struct cli_option *option;
    for (int i = 0; (option = listed(cli, i)); i++)
        if (option->name) print_zsh_option(option);
    if (cli->runs_program) printf(" \\\n        '(-)1:program:_command_names -e' '*::arguments:_normal'");
    if (cli->commands) printf(" \\\n        '1:command:(");
    for (const struct cli *const *at = cli->commands; at && *at; at++)
        printf("%s%s", at == cli->commands ? "" : " ", (*at)->command);
    if (cli->commands) printf(")'");
    if (cli->words) {
        printf(" \\\n        '*:argument:");
        print_zsh_value(cli->words);
        putchar('\'');
    }
    printf("\n");
}

static void print_zsh(const struct cli *cli)
{
    const char *name = function_of(cli);
    printf("#compdef %s\n# Completes %s in zsh.  Written by: %s --completion zsh\n%s() {\n", cli->program, cli->program,
           cli->program, name);
    if (cli->commands) printf("    case ${words[2]} in\n");
    for (const struct cli *const *at = cli->commands; at && *at; at++) {
        printf("    %s)\n        shift words\n        ((CURRENT--))\n        _arguments -S", (*at)->command);
        print_zsh_options(*at);
        printf("        return\n        ;;\n");
    }
    if (cli->commands) printf("    esac\n");
    printf("    _arguments -S");
    print_zsh_options(cli);
    printf("}\nif [[ ${funcstack[1]:-} == _%s ]]; then\n    %s \"$@\"\nelse\n    compdef %s %s\nfi\n", cli->program,
           name, name, cli->program);
}

/* ---- fish ------------------------------------------------------------------------------------------------------- */

static void print_fish_value(const char *words)
{
    if (is_kind(words, CLI_FILE))
        printf(" -r -F");
    else if (is_kind(words, CLI_FOLDER))
        printf(" -x -a '(__fish_complete_directories)'");
    else if (is_kind(words, CLI_HOST))
        printf(" -x -a '(__fish_print_hostnames)'");
    else if (words)
        printf(" -x -a '%s'", words);
    else
        printf(" -x");
}

static void print_fish_options(const struct cli *cli)
{
    const struct cli_option *option;
    for (int i = 0; (option = listed(cli, i)); i++) {
        if (!option->name) continue;
        printf("complete -c %s", cli->program);
        if (cli->command) printf(" -n '__fish_seen_subcommand_from %s'", cli->command);
        if (option->letter) printf(" -s %c", option->letter);
        printf(" -l %s", option->name);
        if (cli_value_is_optional(option)) printf(" -a '%s'", option->words ? option->words : "");
        if (option->value && !cli_value_is_optional(option)) print_fish_value(option->words);
        printf(" -d '");
        print_line(option->help, "");
        printf("'\n");
    }
}

static void print_fish(const struct cli *cli)
{
    printf("# Completes %s in fish.  Written by: %s --completion fish\n", cli->program, cli->program);
    if (cli->runs_program)
        printf("complete -c %s -a '(__fish_complete_command)'\n", cli->program);
    else if (!is_kind(cli->words, CLI_FILE) && !cli->commands)
        printf("complete -c %s -f\n", cli->program);
    print_fish_options(cli);
    for (const struct cli *const *at = cli->commands; at && *at; at++) {
        printf("complete -c %s -n __fish_use_subcommand -a %s -d '", cli->program, (*at)->command);
        print_line((*at)->summary, "");
        printf("'\n");
        print_fish_options(*at);
    }
}

/* ----------------------------------------------------------------------------------------------------------------- */

int cli_print_completion(const struct cli *cli, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        print_bash(cli);
    else if (strcmp(shell, "zsh") == 0)
        print_zsh(cli);
    else if (strcmp(shell, "fish") == 0)
        print_fish(cli);
    else
        return cli_refuse(cli, "--completion takes bash, zsh or fish, not \"%s\"", shell) ? 0 : CLI_USAGE;
    return fflush(stdout) != 0 || ferror(stdout);
}
