/* include/tutti/dlpack.h: both directions, both rules for strides, and refused tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/dlpack.h>

static DLTensor make(void *data, int32_t ndim, int64_t *shape, int64_t *strides)
{
    DLTensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.data = data;
    tensor.device.device_type = kDLCPU;
    tensor.ndim = ndim;
    tensor.dtype = (DLDataType){kDLFloat, 32, 1};
    tensor.shape = shape;
    tensor.strides = strides;
    return tensor;
}

static void refused(const DLTensor *from, const char *word)
{
    tutti_tensor to;
    const char *why = NULL;
    assert_int_equal(tutti_from_dlpack(from, &to, &why), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(why, word));
    assert_int_equal(tutti_from_dlpack(from, &to, NULL), TUTTI_ERR_INVALID_ARGUMENT);
}

static void test_from(void **state)
{
    (void)state;
    float data[64];
    int64_t shape[3] = {2, 1, 3}, strides[3] = {3, 77, 1};
    tutti_tensor to;
    DLTensor from = make(data, 3, shape, NULL);
    assert_int_equal(tutti_from_dlpack(&from, &to, NULL), TUTTI_OK);
    assert_ptr_equal(to.data, data);
    assert_int_equal(to.numel, 6);
    assert_int_equal(to.dtype, TUTTI_FLOAT32);
    assert_int_equal(to.device.type, TUTTI_CPU);
    from = make(data, 3, shape, strides); /* a dimension of one may have any stride */
    from.byte_offset = 8;
    assert_int_equal(tutti_from_dlpack(&from, &to, NULL), TUTTI_OK);
    assert_ptr_equal(to.data, data + 2);
    from = make(data, 0, NULL, NULL); /* a scalar */
    assert_int_equal(tutti_from_dlpack(&from, &to, NULL), TUTTI_OK);
    assert_int_equal(to.numel, 1);
    int64_t empty[2] = {0, INT64_MAX}, odd[2] = {5, 5};
    from = make(NULL, 2, empty, odd);
    assert_int_equal(tutti_from_dlpack(&from, &to, NULL), TUTTI_OK);
    assert_int_equal(to.numel, 0);
    from = make(data, 3, shape, NULL);
    from.device.device_type = kDLCUDA;
    from.device.device_id = 3;
    assert_int_equal(tutti_from_dlpack(&from, &to, NULL), TUTTI_OK);
    assert_int_equal(to.device.type, TUTTI_CUDA);
    assert_int_equal(to.device.index, 3);
}

static void test_refused(void **state)
{
    (void)state;
    float data[64];
    int64_t shape[2] = {2, 3}, transposed[2] = {1, 2}, padded[2] = {4, 1};
    DLTensor from = make(data, 2, shape, transposed);
    refused(&from, "contiguous");
    from = make(data, 2, shape, padded);
    refused(&from, "contiguous");
    from = make(data, 2, shape, NULL);
    from.dtype.lanes = 4;
    refused(&from, "dtype");
    from.dtype = (DLDataType){kDLInt, 4, 1};
    refused(&from, "dtype");
    from = make(data, 2, shape, NULL);
    from.device.device_type = kDLVulkan;
    refused(&from, "device");
    int64_t negative[2] = {2, -1}, huge[2] = {INT64_MAX / 2, 64};
    from = make(data, 2, negative, NULL);
    refused(&from, "negative");
    from = make(data, 2, huge, NULL);
    refused(&from, "elements");
    from = make(data, 2, NULL, NULL);
    refused(&from, "shape");
    refused(NULL, "NULL");
}

static void test_round_trip(void **state)
{
    (void)state;
    static const tutti_dtype dtypes[] = {TUTTI_INT8,          TUTTI_UINT64,     TUTTI_FLOAT16,   TUTTI_BFLOAT16,
                                         TUTTI_FLOAT64,       TUTTI_BOOL,       TUTTI_COMPLEX64, TUTTI_COMPLEX128,
                                         TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2};
    char data[16];
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        tutti_tensor before = {data, 1, dtypes[i], {TUTTI_CUDA, 2}}, after = {0};
        DLTensor between;
        int64_t extent[2];
        tutti_to_dlpack(before, extent, &between);
        assert_int_equal(between.dtype.bits, tutti_dtype_bytes(dtypes[i]) * 8);
        assert_int_equal(between.strides[0], 1);
        assert_int_equal(tutti_from_dlpack(&between, &after, NULL), TUTTI_OK);
        assert_ptr_equal(after.data, data);
        assert_true(after.numel == 1 && after.dtype == dtypes[i]);
        assert_true(after.device.type == TUTTI_CUDA && after.device.index == 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_from),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
