// torch's Work over Tutti's.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <tutti/tutti.h>

#include <memory>
#include <mutex>
#include <vector>

namespace tutti_torch
{

// What an operation needs until it has ended: its tensors, its handle and its future.  A Work shares it with the thread
// that completes futures, so the tensors live as long as the operation even if the program drops the Work.
struct Operation;

class Work : public c10d::Work
{
  public:
    // Takes over the handle.  NULL: the operation has ended with success.  `outputs` are the results of the future.
    // `group` tells collectives of different groups apart.
    Work(const void *group, int rank, c10d::OpType type, const char *title, tutti_work *handle,
         std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs, std::chrono::milliseconds timeout);
    ~Work() override;

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override;
    float getDuration() const override;
    std::chrono::milliseconds getTimeout() const; // overrides torch's since 2.14

  private:
    void note_end();

    std::shared_ptr<Operation> operation_;
    std::chrono::milliseconds timeout_;
};

} // namespace tutti_torch
