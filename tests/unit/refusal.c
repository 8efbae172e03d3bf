#include "refusal.h"

#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

int refusal_check(int line, const char *call, int status, int code, const char *words)
{
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", words);
    if (status != code) {
        fprintf(stderr, "%d: %s: %s, not %s: %s\n", line, call, tutti_status_string(status), tutti_status_string(code),
                tutti_last_error());
        return line;
    }
    for (char *word; (word = strsep(&rest, "|")) != NULL;)
        if (strstr(tutti_last_error(), word) == NULL) {
            fprintf(stderr, "%d: %s: \"%s\" is not in: %s\n", line, call, word, tutti_last_error());
            return line;
        }
    return 0;
}
