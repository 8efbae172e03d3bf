/* Fortran module: conversions between Fortran's arguments and the library's.
 *
 * The module's procedures are bind(c) functions of this folder, whose names begin with tuttif_.  Buffers and strings
 * arrive as descriptors of ISO_Fortran_binding.h, other optional arguments as pointers.  NULL means absent. */
#ifndef TUTTIF_CONVERT_H
#define TUTTIF_CONVERT_H

#include <ISO_Fortran_binding.h>
#include <tutti/tutti.h>

/* type(tutti_group), type(tutti_work) and type(tutti_store) are structs of one pointer. */
typedef struct tuttif_group {
    tutti_group *handle;
} tuttif_group;

typedef struct tuttif_work {
    tutti_work *handle;
} tuttif_work;

typedef struct tuttif_store {
    tutti_store *handle;
} tuttif_store;

/* type(tutti_dtype) and type(tutti_reduce_op). */
typedef struct tuttif_dtype {
    int value;
} tuttif_dtype;

typedef struct tuttif_reduce_op {
    int value;
} tuttif_reduce_op;

#define TUTTIF_API __attribute__((visibility("default")))

/* The arguments that all operations share, in the order of options.inc. */
#define TUTTIF_OPTIONS                                                                                                 \
    const tuttif_group *group, tuttif_work *work, const int64_t *timeout_ms, const bool *group_rank,                   \
        const tuttif_dtype *dtype, int *stat
#define TUTTIF_GIVEN group, work, timeout_ms, group_rank

/* Passes the result of a procedure on: to stat, or, if that is absent, to stderr, and ends the program with status 1
 * after an error.  name is the procedure's. */
void tuttif_finish(const char *name, int status, int *stat);

/* Reports that the procedure of this name could not allocate bytes, as tuttif_finish does. */
TUTTIF_API void tuttif_no_memory(const CFI_cdesc_t *name, size_t bytes, int *stat);

/* Returns the options of a call.  Sets *work to null if it is present. */
tutti_opts tuttif_options(const tuttif_group *group, tuttif_work *work, const int64_t *timeout_ms,
                          const bool *group_rank);

static inline tutti_group *tuttif_handle(const tuttif_group *group)
{
    return group != NULL ? group->handle : NULL;
}

static inline int64_t tuttif_ms(const int64_t *timeout_ms, int64_t otherwise)
{
    return timeout_ms != NULL ? *timeout_ms : otherwise;
}

static inline bool tuttif_flag(const bool *flag)
{
    return flag != NULL && *flag;
}

/* Describes a variable or array as a tensor.  dtype replaces that of its type if it is present.  name is the
 * argument's, for messages.  Errors: INVALID_ARGUMENT (x is not contiguous, or its type has no dtype; its size is not a
 * multiple of dtype's). */
int tuttif_tensor(const CFI_cdesc_t *x, const tuttif_dtype *dtype, const char *name, tutti_tensor *tensor);

/* Describes an output that only some ranks have.  If it is absent, *out becomes an empty tensor of in's dtype. */
int tuttif_tensor_like(const CFI_cdesc_t *x, const tuttif_dtype *dtype, const char *name, tutti_tensor in,
                       tutti_tensor *out);

/* Returns the length of an array of rank 1, or 0 if it is absent. */
int tuttif_length(const CFI_cdesc_t *array);

/* Returns the elements of an array of rank 1 if they are consecutive.  Sets *copy to NULL, or to a consecutive copy,
 * which is the result then and which the caller frees.  Returns NULL if the array is absent or empty, or if there is
 * no memory. */
const void *tuttif_elements(const CFI_cdesc_t *array, void **copy);

/* Copies a string without its trailing blanks.  *copy is NULL if it is absent.  The caller frees it.  Errors:
 * NO_MEMORY. */
int tuttif_text(const CFI_cdesc_t *given, char **copy);

/* Copies an array of strings.  The caller frees *copies, one block.  Errors: NO_MEMORY. */
int tuttif_texts(const CFI_cdesc_t *given, const char ***copies);

/* Frees what a variable holds when it goes out of scope. */
static inline void tuttif_free_held(void *held)
{
    free(*(void **)held);
}
#define TUTTIF_HELD __attribute__((cleanup(tuttif_free_held)))

#endif
