#include <tutti/tutti.h>

static void print(const tutti_log_line *line, void *argument)
{
    (void)argument;
    printf("%s: %s\n", line->subsystem, line->text);
}

int main(void)
{
    TUTTI_CHECK(tutti_set_logger(print, NULL));
    tutti_log("mine", TUTTI_LOG_WARN, "%d files are left", 3);
    TUTTI_CHECK(tutti_set_logger(NULL, NULL)); /* to stderr again */
    return 0;
}

/* Prints:
 *
 *     mine: 3 files are left
 *     mine: 3 files are left
 */
