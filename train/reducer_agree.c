/* The list and the options are compared as text: a line for the options, then one per parameter. */
#include "reducer_agree.h"

#include <inttypes.h>
#include <stdlib.h>

#include "agree.h"

/* Begins the message of a failure with the word that names the caller. */
static int name_reducer(int status)
{
    return status == TUTTI_OK ? TUTTI_OK : tutti_set_error(status, "reducer: %s", tutti_last_error());
}

int reducer_agree(struct tutti_reducer *reducer, int status)
{
    return name_reducer(agree_on_status(reducer->control, reducer->opts.timeout_ms, status));
}

static void write_options(FILE *file, const tutti_reducer_opts *opts)
{
    fprintf(file,
            "options bucket_bytes %" PRId64 ", first_bucket_bytes %" PRId64
            ", sum %d, no_broadcast %d, find_unused %d, gradient_as_bucket_view %d, keep_order %d, move_views %d, "
            "join %d, divide_by_active %d, compress %s, error_feedback %d, hook %d with %d phases\n",
            opts->bucket_bytes, opts->first_bucket_bytes, opts->sum, opts->no_broadcast, opts->find_unused,
            opts->gradient_as_bucket_view, opts->keep_order, opts->move_views, opts->join, opts->divide_by_active,
            opts->compress != 0 ? tutti_dtype_name(opts->compress) : "none", opts->error_feedback, opts->hook != NULL,
            opts->hook_phases);
}

static void write_tensor(FILE *file, const char *what, tutti_tensor tensor)
{
    fprintf(file, "%s %s[%" PRId64 "]%s", what, tutti_dtype_name(tensor.dtype), tensor.numel,
            tensor.device.type == TUTTI_CPU ? "" : " on CUDA");
}

/* Writes a line for the options and one for each parameter.  The caller frees it.  Returns NULL without memory. */
static char *describe_list(const struct tutti_reducer *reducer)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL) return NULL;
    write_options(file, &reducer->opts);
    for (int i = 0; i < reducer->n; i++) {
        fprintf(file, "'%s' with ", reducer->parameter[i].name);
        write_tensor(file, "gradient", reducer->parameter[i].gradient);
        if (reducer->parameter[i].value.numel > 0) write_tensor(file, " and value", reducer->parameter[i].value);
        fputc('\n', file);
    }
    if (fclose(file) == 0) return text;
    free(text);
    return NULL;
}

static int refuse_line(const char *who, int number, const char *first, const char *own)
{
    (void)who;
    if (number == 0)
        return tutti_set_error(TUTTI_ERR_MISMATCH, "options differ: rank 0 has %s, this one has %s", first, own);
    return tutti_set_error(TUTTI_ERR_MISMATCH, "parameter %d differs: rank 0 has %s, this one has %s", number - 1,
                           *first != '\0' ? first : "no parameter", *own != '\0' ? own : "no parameter");
}

int reducer_agree_on_list(struct tutti_reducer *reducer, int status)
{
    char *list = status == TUTTI_OK ? describe_list(reducer) : NULL;
    if (status == TUTTI_OK && list == NULL)
        status = tutti_set_error(TUTTI_ERR_NO_MEMORY, "out of memory for the list of parameters");
    status = agree_on_lines(reducer->control, reducer->opts.timeout_ms, "reducer", status, list, refuse_line);
    free(list);
    return name_reducer(status);
}
