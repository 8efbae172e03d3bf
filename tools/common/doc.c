#include "common/doc.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#ifdef TOOLS_HAVE_JSON
#include <jansson.h>

bool doc_is_possible(const char *program, const char *option)
{
    (void)program, (void)option;
    return true;
}

doc *doc_object(void)
{
    return json_object();
}

doc *doc_array(void)
{
    return json_array();
}

doc *doc_set(doc *object, const char *key, doc *value)
{
    return json_object_set_new(object, key, value) == 0 ? value : NULL;
}

doc *doc_add(doc *array, doc *value)
{
    return json_array_append_new(array, value) == 0 ? value : NULL;
}

/* Returns a string.  Replaces all bytes beyond ASCII if the text is not UTF-8. */
static json_t *string_of(const char *text)
{
    json_t *string = json_string(text);
    char *copy = string ? NULL : strdup(text);
    for (char *c = copy; c && *c; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    if (copy) string = json_string(copy);
    free(copy);
    return string;
}

void doc_text(doc *object, const char *key, const char *text)
{
    doc_set(object, key, string_of(text));
}

void doc_add_text(doc *array, const char *text)
{
    doc_add(array, string_of(text));
}

void doc_int(doc *object, const char *key, long long value)
{
    doc_set(object, key, json_integer(value));
}

void doc_real(doc *object, const char *key, double value)
{
    doc_set(object, key, json_real(value));
}

void doc_bool(doc *object, const char *key, bool value)
{
    doc_set(object, key, json_boolean(value));
}

bool doc_write(doc *document, FILE *out)
{
    bool good = document && json_dumpf(document, out, JSON_INDENT(2) | JSON_REAL_PRECISION(7)) == 0;
    json_decref(document);
    return fputc('\n', out) != EOF && fflush(out) == 0 && good;
}

doc *doc_read(const char *program, const char *path)
{
    json_error_t error;
    json_t *document = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!document) fprintf(stderr, "%s: cannot read %s: %s (line %d)\n", program, path, error.text, error.line);
    return document;
}

void doc_free(doc *document)
{
    json_decref(document);
}

const doc *doc_get(const doc *object, const char *key)
{
    return json_object_get(object, key);
}

const char *doc_get_text(const doc *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

double doc_get_real(const doc *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

const doc *doc_item(const doc *array, int i)
{
    return json_array_get(array, (size_t)i);
}

#else

bool doc_is_possible(const char *program, const char *option)
{
    fprintf(stderr, "%s: %s is left out of this build, because jansson was not found (Debian: libjansson-dev)\n",
            program, option);
    return false;
}

doc *doc_object(void)
{
    return NULL;
}

doc *doc_array(void)
{
    return NULL;
}

doc *doc_set(doc *object, const char *key, doc *value)
{
    (void)object, (void)key;
    return value;
}

doc *doc_add(doc *array, doc *value)
{
    (void)array;
    return value;
}

void doc_text(doc *object, const char *key, const char *text)
{
    (void)object, (void)key, (void)text;
}

void doc_add_text(doc *array, const char *text)
{
    (void)array, (void)text;
}

void doc_int(doc *object, const char *key, long long value)
{
    (void)object, (void)key, (void)value;
}

void doc_real(doc *object, const char *key, double value)
{
    (void)object, (void)key, (void)value;
}

void doc_bool(doc *object, const char *key, bool value)
{
    (void)object, (void)key, (void)value;
}

bool doc_write(doc *document, FILE *out)
{
    (void)document, (void)out;
    return false;
}

doc *doc_read(const char *program, const char *path)
{
    (void)path;
    doc_is_possible(program, "reading JSON");
    return NULL;
}

void doc_free(doc *document)
{
    (void)document;
}

const doc *doc_get(const doc *object, const char *key)
{
    (void)key;
    return object;
}

const char *doc_get_text(const doc *object, const char *key)
{
    (void)object, (void)key;
    return "";
}

double doc_get_real(const doc *object, const char *key)
{
    (void)object, (void)key;
    return 0;
}

const doc *doc_item(const doc *array, int i)
{
    (void)array, (void)i;
    return NULL;
}
#endif

doc *doc_begin(const char *tool)
{
    doc *document = doc_object();
    doc_text(document, "tool", tool);
    doc_text(document, "version", tutti_version());
    doc_int(document, "format", 1);
    return document;
}
