// all_reduce of sparse tensors.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <tutti/tutti.h>

#include <chrono>
#include <memory>

namespace tutti_torch
{

// The sparse reductions of one group.  Each gathers the numbers of elements as a collective of the group, in the order
// of the program's calls.  A thread then exchanges indices and values as messages, with a tag of its own, and sums
// them.
class SparseReductions
{
  public:
    explicit SparseReductions(int rank, int size);

    // Starts a reduction of `tensor`, which receives the sum.  The group is opts.group.
    c10::intrusive_ptr<c10d::Work> start(const at::Tensor &tensor, const tutti_opts &opts);

    // Waits until all have ended.  Returns false if some are running after `limit`.
    bool await_all(std::chrono::milliseconds limit);

  private:
    struct Running;

    int rank_, size_;
    int next_tag_;
    std::shared_ptr<Running> running_; // shared with the threads
};

} // namespace tutti_torch
