#include "text.h"

#include <string.h>

int text_count(const char *text, const char *word)
{
    int n = 0;
    for (; text != NULL && (text = strstr(text, word)) != NULL; n++) text += strlen(word);
    return n;
}
