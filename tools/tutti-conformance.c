/* tutti-conformance: tests, through the public API alone, that a backend follows every rule of the operations.  See
 * docs/conformance.md. */
#include <stdio.h>

#include "conformance/join.h"
#include "conformance/launch.h"
#include "conformance/report.h"
#include "conformance/scoreboard.h"

static int run(const struct options *options, const struct cases *cases)
{
    struct report *report = report_new(options, cases);
    for (int ranks = options->from_ranks; ranks <= options->to_ranks; ranks++) {
        struct scoreboard *scoreboard = scoreboard_new(cases->n, ranks);
        if (scoreboard == NULL) {
            perror("tutti-conformance: no memory for the results");
            return 2;
        }
        int end = launch_run(scoreboard, options, cases);
        report_add(report, scoreboard);
        if (end < cases->n) report_broken(report, scoreboard, end);
        scoreboard_free(scoreboard);
    }
    int status = report_end(report);
    report_free(report);
    return status;
}

int main(int argc, char **argv)
{
    struct options options;
    struct cases cases;
    options_parse(&options, argc, argv);
    cases_make(&cases, &options);
    int status = 0;
    if (options.list) {
        report_list(&options, &cases);
    } else if (cases.n == 0) {
        fprintf(stderr, "tutti-conformance: no case matches --filter \"%s\"; --list shows the cases\n", options.filter);
        status = 2;
    } else {
        status = options.join ? join_run(&options, &cases) : run(&options, &cases);
    }
    cases_free(&cases);
    return status;
}
