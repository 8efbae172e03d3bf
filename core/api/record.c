/* The public functions of the flight recorder. */
#include <tutti/tutti.h>

#include "base/error.h"
#include "base/marks.h"
#include "diagnose/recorder.h"
#include "op/record.h"

int tutti_mark(const char *text)
{
    if (text == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "mark: text is NULL; pass a string");
    /* relaxed: the number is looked up when the record is written */
    atomic_store_explicit(&record_mark, marks_add(text), memory_order_relaxed);
    return TUTTI_OK;
}

int tutti_record_write(const char *folder)
{
    return recorder_write(folder, "tutti_record_write");
}
