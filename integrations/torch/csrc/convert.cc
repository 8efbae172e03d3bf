#include "convert.h"

#include <c10/util/Exception.h>

namespace tutti_torch
{

namespace
{

tutti_dtype to_dtype(at::ScalarType type)
{
    switch (type) {
    case at::kChar:
        return TUTTI_INT8;
    case at::kShort:
        return TUTTI_INT16;
    case at::kInt:
        return TUTTI_INT32;
    case at::kLong:
        return TUTTI_INT64;
    case at::kByte:
        return TUTTI_UINT8;
    case at::kUInt16:
        return TUTTI_UINT16;
    case at::kUInt32:
        return TUTTI_UINT32;
    case at::kUInt64:
        return TUTTI_UINT64;
    case at::kHalf:
        return TUTTI_FLOAT16;
    case at::kFloat:
        return TUTTI_FLOAT32;
    case at::kDouble:
        return TUTTI_FLOAT64;
    case at::kBFloat16:
        return TUTTI_BFLOAT16;
    case at::kComplexFloat:
        return TUTTI_COMPLEX64;
    case at::kComplexDouble:
        return TUTTI_COMPLEX128;
    case at::kBool:
        return TUTTI_BOOL;
    case at::kFloat8_e4m3fn:
        return TUTTI_FLOAT8_E4M3FN;
    case at::kFloat8_e5m2:
        return TUTTI_FLOAT8_E5M2;
    default:
        C10_THROW_ERROR(TypeError, c10::str("tutti: dtype ", toString(type), " cannot be sent"));
    }
}

template <typename Error> std::exception_ptr make(const std::string &message)
{
    return std::make_exception_ptr(Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message));
}

} // namespace

tutti_tensor to_tensor(const at::Tensor &tensor)
{
    TORCH_CHECK_VALUE(tensor.defined(), "tutti: a tensor is undefined");
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "tutti: a tensor has layout ", tensor.layout(),
                      "; only dense tensors can be sent, and all_reduce takes sparse ones");
    TORCH_CHECK_VALUE(tensor.device().is_cpu(), "tutti: a tensor is on ", tensor.device(),
                      "; this group is for CPU tensors (use \"cpu:tutti,cuda:nccl\" for both)");
    TORCH_CHECK_VALUE(tensor.is_contiguous(), "tutti: a tensor of sizes ", tensor.sizes(), " and strides ",
                      tensor.strides(), " is not contiguous; pass tensor.contiguous()");
    return tutti_tensor_of(tensor.data_ptr(), tensor.numel(), to_dtype(tensor.scalar_type()));
}

std::vector<tutti_tensor> to_tensors(const std::vector<at::Tensor> &tensors)
{
    std::vector<tutti_tensor> converted;
    converted.reserve(tensors.size());
    for (const auto &tensor : tensors) converted.push_back(to_tensor(tensor));
    return converted;
}

const at::Tensor &only(const char *operation, const std::vector<at::Tensor> &tensors)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "tutti: ", operation, " takes one tensor, not ", tensors.size());
    return tensors[0];
}

const std::vector<at::Tensor> &only(const char *operation, const std::vector<std::vector<at::Tensor>> &lists)
{
    TORCH_CHECK_VALUE(lists.size() == 1, "tutti: ", operation, " takes one list of tensors, not ", lists.size());
    return lists[0];
}

Reduction to_reduction(const c10d::ReduceOp &op)
{
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
        return {TUTTI_SUM, 0};
    case c10d::ReduceOp::AVG:
        return {TUTTI_AVG, 0};
    case c10d::ReduceOp::PRODUCT:
        return {TUTTI_PRODUCT, 0};
    case c10d::ReduceOp::MIN:
        return {TUTTI_MIN, 0};
    case c10d::ReduceOp::MAX:
        return {TUTTI_MAX, 0};
    case c10d::ReduceOp::BAND:
        return {TUTTI_BAND, 0};
    case c10d::ReduceOp::BOR:
        return {TUTTI_BOR, 0};
    case c10d::ReduceOp::BXOR:
        return {TUTTI_BXOR, 0};
    case c10d::ReduceOp::PREMUL_SUM: {
        auto *scaled = dynamic_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
        TORCH_CHECK_VALUE(scaled != nullptr, "tutti: PREMUL_SUM has no factor");
        bool is_tensor = scaled->tensor_factor.defined();
        return {TUTTI_PREMUL_SUM, is_tensor ? scaled->tensor_factor.item<double>() : scaled->double_factor};
    }
    default:
        C10_THROW_ERROR(ValueError, c10::str("tutti: unknown reduce operation ", static_cast<int>(op.op_)));
    }
}

int64_t to_timeout_ms(std::chrono::milliseconds timeout, int64_t unset)
{
    return timeout.count() <= 0 ? unset : timeout.count();
}

std::exception_ptr to_exception(int status, const std::string &message)
{
    switch (status) {
    case TUTTI_ERR_INVALID_ARGUMENT:
        return make<c10::ValueError>(message);
    case TUTTI_ERR_UNSUPPORTED:
        return make<c10::NotImplementedError>(message);
    case TUTTI_ERR_NO_MEMORY:
        return make<c10::OutOfMemoryError>(message);
    case TUTTI_ERR_STORE:
    case TUTTI_ERR_AUTH:
        return make<c10::DistStoreError>(message);
    default:
        return make<c10::DistBackendError>(message);
    }
}

void check(int status)
{
    if (status < 0) std::rethrow_exception(to_exception(status, tutti_last_error()));
}

} // namespace tutti_torch
