/* Documents in JSON, for --json, through jansson.  Without jansson nothing can be made: doc_is_possible says so. */
#ifndef COMMON_DOC_H
#define COMMON_DOC_H

#include <stdbool.h>
#include <stdio.h>

/* An object, an array or a value.  Functions that take one ignore NULL, which is what they return without memory; then
 * doc_write fails. */
typedef struct json_t doc;

/* True if this build has jansson.  Otherwise prints a line on stderr. */
bool doc_is_possible(const char *program, const char *option);

doc *doc_object(void);
doc *doc_array(void);

/* Returns a tool's document: an object with "tool", "version" (of Tutti) and "format" (of the document: 1). */
doc *doc_begin(const char *tool);

/* Set a member of an object.  Bytes of a text that are not UTF-8 become '?'. */
void doc_text(doc *object, const char *key, const char *text);
void doc_int(doc *object, const char *key, long long value);
void doc_real(doc *object, const char *key, double value);
void doc_bool(doc *object, const char *key, bool value);

/* Set a member of an object, and append to an array.  They own `value` then.  Return it. */
doc *doc_set(doc *object, const char *key, doc *value);
doc *doc_add(doc *array, doc *value);
void doc_add_text(doc *array, const char *text);

/* Writes the document and a newline, and frees it.  Returns false on failure. */
bool doc_write(doc *document, FILE *out);

/* Reads a document from a file.  Returns NULL, with a message of the program on stderr. */
doc *doc_read(const char *program, const char *path);
void doc_free(doc *document);

/* Return a member of an object, or NULL, "", 0 if it has none of this type. */
const doc *doc_get(const doc *object, const char *key);
const char *doc_get_text(const doc *object, const char *key);
double doc_get_real(const doc *object, const char *key);

/* Returns item i of an array, or NULL after the last one. */
const doc *doc_item(const doc *array, int i);

#endif
