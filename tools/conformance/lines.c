#include "conformance/lines.h"

#include <stddef.h>

#define LINE_TEXT(id, section, ranks, where, text) {#id, section, text, ranks, where},
const struct line_text lines[LINE_COUNT] = {{NULL, NULL, NULL, 0, 0}, LINES(LINE_TEXT)};
