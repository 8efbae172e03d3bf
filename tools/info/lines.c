#include "info/lines.h"

#include <sched.h>
#include <string.h>

void lines_print(const char *lead, const char *text)
{
    while (*text != '\0') {
        int length = (int)strcspn(text, "\n");
        printf("%s%.*s\n", lead, length, text);
        text += length + (text[length] == '\n');
    }
}

void lines_add(doc *object, const char *key, const char *text)
{
    doc *list = doc_set(object, key, doc_array());
    while (*text != '\0') {
        char line[1024];
        int length = (int)strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", length, text);
        doc_add_text(list, line);
        text += length + (text[length] == '\n');
    }
}

int lines_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}
