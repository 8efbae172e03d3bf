#include "sparse.h"

#include "convert.h"

#include <ATen/ATen.h>

#include <climits>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tutti_torch
{

// Counts the threads.
struct SparseReductions::Running {
    std::mutex lock;
    std::condition_variable changed;
    int n = 0;

    void add(int by)
    {
        std::lock_guard<std::mutex> guard(lock);
        n += by;
        changed.notify_all();
    }
};

namespace
{

constexpr int N_TAGS = 1 << 16;
constexpr int FIRST_TAG = INT_MAX - N_TAGS; // above what programs use

// A Work that its thread completes.
class SparseWork : public c10d::Work
{
  public:
    SparseWork(int rank, std::vector<at::Tensor> tensors)
        : c10d::Work(rank, c10d::OpType::_ALLREDUCE_SPARSE, "tutti:all_reduce_sparse", tensors),
          tensors_(std::move(tensors)),
          future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get())))
    {
    }

    void end(const std::exception_ptr &failure)
    {
        finish(failure);
        if (failure)
            future_->setError(failure);
        else
            future_->markCompleted(c10::IValue(tensors_));
    }
    std::vector<at::Tensor> result() override
    {
        TORCH_CHECK(isCompleted(), "tutti: the operation has not ended; call wait() before result()");
        return tensors_;
    }
    void synchronize() override
    {
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        return future_;
    }

  private:
    std::vector<at::Tensor> tensors_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Waits for an operation and frees its handle.  Throws its error.
void finish_work(tutti_work *handle)
{
    if (handle == nullptr) return;
    int status = tutti_work_wait(handle, TUTTI_DEFAULT_TIMEOUT);
    std::exception_ptr failure = status < 0 ? to_exception(status, tutti_last_error()) : nullptr;
    tutti_work_free(handle);
    if (failure) std::rethrow_exception(failure);
}

// One reduction.
struct SparseSum {
    int rank, size, tag;
    tutti_opts opts;
    at::Tensor tensor, indices, values;      // the program's, and this rank's part
    at::Tensor shape, shapes;                // this rank's, and everybody's: see describe
    tutti_work *gathering = nullptr;         // shapes
    std::vector<at::Tensor> ranks_indices{}; // by rank
    std::vector<at::Tensor> ranks_values{};

    void describe();
    void check_shapes() const;
    void exchange();
    void sum();
};

// A shape: the number of elements, then what must be the same on all ranks.
void SparseSum::describe()
{
    std::vector<int64_t> shape_of_own = {values.size(0), static_cast<int64_t>(values.scalar_type()), indices.size(0)};
    for (int64_t dimension : tensor.sizes()) shape_of_own.push_back(dimension);
    shape = at::tensor(shape_of_own, at::kLong);
    shapes = at::empty({size, shape.numel()}, at::kLong);
}

void SparseSum::check_shapes() const
{
    for (int peer = 0; peer < size; peer++) {
        at::Tensor theirs = shapes[peer].slice(0, 1), first = shapes[0].slice(0, 1);
        if (theirs.equal(first)) continue;
        C10_THROW_ERROR(DistBackendError,
                        c10::str("tutti: all_reduce of sparse tensors differs between ranks: rank 0 ",
                                 "has (dtype, sparse dimensions, sizes) ", first, ", rank ", peer, " has ", theirs));
    }
}

// Sends this rank's part to all others and receives theirs.  Returns once no message is under way, also after an error.
void SparseSum::exchange()
{
    std::vector<tutti_p2p_op> ops;
    for (int peer = 0; peer < size; peer++) {
        int64_t n = shapes[peer][0].item<int64_t>();
        std::vector<int64_t> sizes = values.sizes().vec();
        sizes[0] = n;
        bool own = peer == rank;
        ranks_indices.push_back(own ? indices : at::empty({indices.size(0), n}, indices.options()));
        ranks_values.push_back(own ? values : at::empty(sizes, values.options()));
        for (auto [mine, theirs] : {std::pair(indices, ranks_indices.back()), std::pair(values, ranks_values.back())}) {
            if (own) continue;
            ops.push_back({TUTTI_SEND, to_tensor(mine), peer, tag, nullptr});
            ops.push_back({TUTTI_RECV, to_tensor(theirs), peer, tag, nullptr});
        }
    }
    if (ops.empty()) return;
    std::vector<tutti_work *> works(ops.size());
    check(tutti_batch_isend_irecv(ops.data(), static_cast<int>(ops.size()), &opts, works.data()));
    std::exception_ptr failure;
    for (tutti_work *work : works) {
        try {
            finish_work(work);
        } catch (...) {
            if (!failure) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

void SparseSum::sum()
{
    at::NoGradGuard no_grad;
    at::Tensor all = at::sparse_coo_tensor(at::cat(ranks_indices, 1), at::cat(ranks_values, 0), tensor.sizes());
    tensor.copy_(all.coalesce());
}

std::exception_ptr finish_reduction(SparseSum &reduction)
{
    try {
        finish_work(std::exchange(reduction.gathering, nullptr));
        reduction.check_shapes();
        reduction.exchange();
        reduction.sum();
        return nullptr;
    } catch (...) {
        return std::current_exception();
    }
}

} // namespace

SparseReductions::SparseReductions(int rank, int size)
    : rank_(rank), size_(size), next_tag_(0), running_(std::make_shared<Running>())
{
}

c10::intrusive_ptr<c10d::Work> SparseReductions::start(const at::Tensor &tensor, const tutti_opts &opts)
{
    at::Tensor own = tensor.detach().coalesce();
    auto reduction = std::make_shared<SparseSum>(SparseSum{rank_, size_, FIRST_TAG + next_tag_, opts, tensor,
                                                           own.indices().contiguous(), own.values().contiguous()});
    next_tag_ = (next_tag_ + 1) % N_TAGS;
    auto work = c10::make_intrusive<SparseWork>(rank_, std::vector<at::Tensor>{tensor});
    reduction->describe();
    tutti_opts gather_opts = opts;
    gather_opts.async_op = &reduction->gathering;
    check(tutti_all_gather_into_tensor(to_tensor(reduction->shapes), to_tensor(reduction->shape), &gather_opts));
    running_->add(1);
    try {
        std::thread([running = running_, reduction, work]() mutable {
            work->end(finish_reduction(*reduction));
            reduction.reset(); // a tensor may take Python's lock, which await_all's caller may end
            work.reset();
            running->add(-1);
        }).detach();
    } catch (...) {
        running_->add(-1);
        finish_work(reduction->gathering); // it uses the tensors
        throw;
    }
    return work;
}

bool SparseReductions::await_all(std::chrono::milliseconds limit)
{
    std::unique_lock<std::mutex> guard(running_->lock);
    return running_->changed.wait_for(guard, limit, [&] { return running_->n == 0; });
}

} // namespace tutti_torch
