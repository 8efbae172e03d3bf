/* Shared by the examples: tensors on the default group's device, so that the same program runs on CPUs and GPUs. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <tutti/tutti.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

/* Returns the driver's copy function and makes the device current in this thread.  Returns NULL without a driver. */
static inline int (*device_driver(tutti_device device))(uintptr_t, uintptr_t, size_t)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    int (*retain)(void **, int) = NULL, (*use)(void *) = NULL, (*copy)(uintptr_t, uintptr_t, size_t) = NULL;
    if (!driver) return NULL;
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&use = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&copy = dlsym(driver, "cuMemcpy");
    return retain && use && retain(&context, device.index) == 0 && use(context) == 0 ? copy : NULL;
}

/* Copies bytes between this program's memory and the device's.  Loads CUDA's driver by name, so that the examples build
 * without it. */
static inline void device_copy(tutti_device device, void *to, const void *from, size_t bytes)
{
    static int (*copy)(uintptr_t, uintptr_t, size_t);
    if (device.type == TUTTI_CPU) {
        memcpy(to, from, bytes);
        return;
    }
    if (!copy) copy = device_driver(device);
    if (!copy || copy((uintptr_t)to, (uintptr_t)from, bytes) != 0) {
        fprintf(stderr, "cannot copy %zu bytes to or from the CUDA device\n", bytes);
        exit(1);
    }
}

static inline size_t tensor_bytes(tutti_tensor x)
{
    return (size_t)(x.numel * tutti_dtype_bytes(x.dtype));
}

/* Copies values into the tensor, or out of it. */
static inline void tensor_set(tutti_tensor x, const void *values)
{
    device_copy(x.device, x.data, values, tensor_bytes(x));
}

static inline void tensor_get(void *values, tutti_tensor x)
{
    device_copy(x.device, values, x.data, tensor_bytes(x));
}

/* Allocates a tensor on the group's device with these values, or with zeros if `values` is NULL. */
static inline tutti_tensor tensor_new(const void *values, int64_t numel, tutti_dtype dtype)
{
    tutti_tensor x = {NULL, numel, dtype, tutti_get_device(NULL)};
    TUTTI_CHECK(tutti_alloc(NULL, (int64_t)tensor_bytes(x), &x.data));
    void *zeros = values ? NULL : calloc((size_t)numel + 1, (size_t)tutti_dtype_bytes(dtype));
    if (!values && !zeros) {
        fprintf(stderr, "no memory for a tensor of %zu bytes\n", tensor_bytes(x));
        exit(1);
    }
    tensor_set(x, values ? values : zeros);
    free(zeros);
    return x;
}

static inline void tensor_free(tutti_tensor x)
{
    TUTTI_CHECK(tutti_free(NULL, x.data));
}

#define TENSOR(type, ...)                                                                                              \
    tensor_new((type[]){__VA_ARGS__}, sizeof((type[]){__VA_ARGS__}) / sizeof(type), TUTTI_DTYPE_OF((type *)NULL))
#define ZEROS(type, numel) tensor_new(NULL, (numel), TUTTI_DTYPE_OF((type *)NULL))

/* Returns element i of a tensor of float or int64_t. */
static inline double tensor_item(tutti_tensor x, int64_t i)
{
    tutti_tensor one = {(char *)x.data + i * tutti_dtype_bytes(x.dtype), 1, x.dtype, x.device};
    if (x.dtype == TUTTI_INT64) {
        int64_t integer;
        tensor_get(&integer, one);
        return (double)integer;
    }
    float real;
    tensor_get(&real, one);
    return (double)real;
}

static inline void print_elements(tutti_tensor x)
{
    putchar('[');
    for (int64_t i = 0; i < x.numel; i++) printf("%s%g", i ? ", " : "", tensor_item(x, i));
    putchar(']');
}

/* Prints a line: the text, formatted as printf does, then the elements. */
static inline void __attribute__((format(printf, 2, 3))) print_tensor(tutti_tensor x, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar(' ');
    print_elements(x);
    putchar('\n');
}

/* Prints a line for a list of tensors in the same way: [[0], [1], [2]]. */
static inline void __attribute__((format(printf, 3, 4)))
print_tensors(const tutti_tensor *list, int n, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf(" [");
    for (int i = 0; i < n; i++) {
        if (i > 0) printf(", ");
        print_elements(list[i]);
    }
    printf("]\n");
}

/* Allocates n floats, all zero. */
static inline float *floats(int64_t n)
{
    float *memory = calloc((size_t)n + 1, sizeof *memory);
    if (!memory) {
        fprintf(stderr, "no memory for %lld floats\n", (long long)n);
        exit(1);
    }
    return memory;
}

/* Returns a number in [-1, 1) that looks random and is the same on all ranks: it follows from the seed and i
 * (splitmix64). */
static inline float noise(uint64_t seed, int64_t i)
{
    uint64_t x = (seed << 32) + (uint64_t)i * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (float)((x ^ x >> 31) >> 40) / (1 << 23) - 1;
}

/* Returns the first of n items that belongs to the part of a rank; that of rank + 1 is the end of the part. */
static inline int first_of(int n, int rank, int world)
{
    return (int)((int64_t)n * rank / world);
}

/* Returns the largest absolute difference between two arrays of n floats. */
static inline float largest_difference(const float *a, const float *b, int64_t n)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++) {
        float difference = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
        if (!(difference <= largest)) largest = difference; /* a NaN, too */
    }
    return largest;
}

/* Returns the seconds of a monotonic clock. */
static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
