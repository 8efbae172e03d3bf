// Between torch's types and Tutti's: tensors, reduce operations, timeouts and errors.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <tutti/tutti.h>

#include <exception>
#include <string>
#include <vector>

namespace tutti_torch
{

// Returns the tensor as Tutti's.  Throws ValueError unless it is dense, contiguous and on the CPU, and TypeError if
// Tutti does not know its dtype.
tutti_tensor to_tensor(const at::Tensor &tensor);
std::vector<tutti_tensor> to_tensors(const std::vector<at::Tensor> &tensors);

// Returns the only tensor of a list.  Throws ValueError if there are more, or none.
const at::Tensor &only(const char *operation, const std::vector<at::Tensor> &tensors);
const std::vector<at::Tensor> &only(const char *operation, const std::vector<std::vector<at::Tensor>> &lists);

// A reduce operation.  factor is PREMUL_SUM's.
struct Reduction {
    tutti_reduce_op op;
    double factor;
};
Reduction to_reduction(const c10d::ReduceOp &op);

// Returns the milliseconds of a timeout of torch's, or `unset` for kUnsetTimeout and kNoTimeout.
int64_t to_timeout_ms(std::chrono::milliseconds timeout, int64_t unset);

// Returns the exception that stands for a status, of torch's own kind.
std::exception_ptr to_exception(int status, const std::string &message);

// Throws it, with tutti_last_error() as the message, unless status is TUTTI_OK.
void check(int status);

} // namespace tutti_torch
