#include "convert.h"

#include <string.h>

void tuttif_finish(const char *name, int status, int *stat)
{
    if (stat != NULL) *stat = status;
    if (stat != NULL || status >= 0) return;
    fprintf(stderr, "%s: %s: %s\n", name, tutti_status_string(status), tutti_last_error());
    exit(1);
}

void tuttif_no_memory(const CFI_cdesc_t *name, size_t bytes, int *stat)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)name->elem_len, (const char *)name->base_addr);
    tuttif_finish(text, tutti_set_error(TUTTI_ERR_NO_MEMORY, "no memory is left for a copy of %zu bytes", bytes), stat);
}

tutti_opts tuttif_options(const tuttif_group *group, tuttif_work *work, const int64_t *timeout_ms,
                          const bool *group_rank)
{
    tutti_opts opts = {
        .group = tuttif_handle(group), .timeout_ms = tuttif_ms(timeout_ms, 0), .group_rank = tuttif_flag(group_rank)};
    if (work != NULL) {
        work->handle = NULL;
        opts.async_op = &work->handle;
    }
    return opts;
}

/* ---- tensors ----------------------------------------------------------------------------------------------- */

/* Returns the dtype of an element of a Fortran type, or 0. */
static int dtype_of_type(const CFI_cdesc_t *x)
{
    switch (x->type) {
    case CFI_type_int8_t:
        return TUTTI_INT8;
    case CFI_type_int16_t:
        return TUTTI_INT16;
    case CFI_type_int32_t:
        return TUTTI_INT32;
    case CFI_type_int64_t:
        return TUTTI_INT64;
    case CFI_type_float:
        return TUTTI_FLOAT32;
    case CFI_type_double:
        return TUTTI_FLOAT64;
    case CFI_type_float_Complex:
        return TUTTI_COMPLEX64;
    case CFI_type_double_Complex:
        return TUTTI_COMPLEX128;
    case CFI_type_Bool:
        return TUTTI_BOOL;
    case CFI_type_char:
        return TUTTI_UINT8;
    default:
        return 0;
    }
}

static int64_t count_elements(const CFI_cdesc_t *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++) n *= x->dim[i].extent;
    return n;
}

/* True if the elements are consecutive.  An empty array is. */
static bool is_contiguous(const CFI_cdesc_t *x)
{
    int64_t expected = (int64_t)x->elem_len;
    if (count_elements(x) == 0) return true;
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i].extent != 1 && x->dim[i].sm != expected) return false;
        expected *= x->dim[i].extent;
    }
    return true;
}

int tuttif_tensor(const CFI_cdesc_t *x, const tuttif_dtype *dtype, const char *name, tutti_tensor *tensor)
{
    int chosen = dtype != NULL ? dtype->value : dtype_of_type(x);
    int64_t bytes = count_elements(x) * (int64_t)x->elem_len, element = chosen > 0 ? (chosen & 0xff) / 8 : 0;
    if (element == 0 && dtype == NULL)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s has elements of %zu bytes of a type without a dtype; use integer, real, complex or "
                               "logical(c_bool) of a kind of iso_fortran_env, or pass dtype",
                               name, x->elem_len);
    if (element == 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "dtype is %d; pass one of the TUTTI_ constants", chosen);
    if (!is_contiguous(x))
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s is not contiguous; pass a whole array, a section of consecutive elements, or a copy",
                               name);
    if (bytes % element != 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s has %lld bytes, which is not a multiple of the %lld of an element of the dtype",
                               name, (long long)bytes, (long long)element);
    *tensor = tutti_tensor_of(x->base_addr, bytes / element, (tutti_dtype)chosen);
    return TUTTI_OK;
}

int tuttif_tensor_like(const CFI_cdesc_t *x, const tuttif_dtype *dtype, const char *name, tutti_tensor in,
                       tutti_tensor *out)
{
    *out = tutti_tensor_of(NULL, 0, in.dtype);
    return x != NULL ? tuttif_tensor(x, dtype, name, out) : TUTTI_OK;
}

/* ---- arrays and strings ------------------------------------------------------------------------------------ */

int tuttif_length(const CFI_cdesc_t *array)
{
    return array != NULL ? (int)array->dim[0].extent : 0;
}

const void *tuttif_elements(const CFI_cdesc_t *array, void **copy)
{
    size_t n = (size_t)tuttif_length(array);
    *copy = NULL;
    if (n == 0) return NULL;
    if (is_contiguous(array)) return array->base_addr;
    char *to = *copy = malloc(n * array->elem_len);
    for (size_t i = 0; to != NULL && i < n; i++)
        memcpy(to + i * array->elem_len, (const char *)array->base_addr + (ptrdiff_t)i * array->dim[0].sm,
               array->elem_len);
    return to;
}

/* Returns the length of a string without trailing blanks, up to a zero byte. */
static size_t text_length(const char *text, size_t n)
{
    n = strnlen(text, n);
    while (n > 0 && text[n - 1] == ' ') n--;
    return n;
}

static int no_memory(void)
{
    return tutti_set_error(TUTTI_ERR_NO_MEMORY, "no memory is left for the copy of a string");
}

int tuttif_text(const CFI_cdesc_t *given, char **copy)
{
    *copy = NULL;
    if (given == NULL) return TUTTI_OK;
    *copy = strndup(given->elem_len > 0 ? given->base_addr : "", text_length(given->base_addr, given->elem_len));
    return *copy != NULL ? TUTTI_OK : no_memory();
}

int tuttif_texts(const CFI_cdesc_t *given, const char ***copies)
{
    size_t n = (size_t)tuttif_length(given), length = given->elem_len;
    *copies = malloc(n * (sizeof **copies + length + 1) + 1);
    if (*copies == NULL) return no_memory();
    char *to = (char *)(*copies + n);
    for (size_t i = 0; i < n; i++, to += length + 1) {
        const char *from = (const char *)given->base_addr + (ptrdiff_t)i * given->dim[0].sm;
        size_t used = text_length(from, length);
        memcpy(to, from, used);
        to[used] = '\0';
        (*copies)[i] = to;
    }
    return TUTTI_OK;
}
