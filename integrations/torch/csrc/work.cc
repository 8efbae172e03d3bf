#include "work.h"

#include "convert.h"

#include <condition_variable>
#include <deque>
#include <thread>
#include <unistd.h>

namespace tutti_torch
{

struct Operation {
    tutti_work *handle = nullptr; // NULL: ended with success
    std::vector<at::Tensor> inputs, outputs;
    std::mutex lock; // guards the fields below
    c10::intrusive_ptr<c10::ivalue::Future> future;
    bool is_watched = false; // the watcher has a reference

    ~Operation()
    {
        tutti_work_free(handle);
    }
    bool has_ended() const
    {
        return handle == nullptr || tutti_work_is_completed(handle);
    }
    int status() const
    {
        return handle == nullptr ? TUTTI_OK : tutti_work_status(handle);
    }
    std::exception_ptr failure() const
    {
        return status() < 0 ? to_exception(status(), tutti_work_error(handle)) : nullptr;
    }
};

namespace
{

// The threads that complete futures and release the tensors of dropped operations.  Both may run Python, which a
// callback of Tutti's must not wait for.  A future's callback may wait for another future, as PowerSGD's hook does, so
// a thread is started whenever the others are busy.
class Watcher
{
  public:
    // Returns the process's watcher.  It is never destroyed, because operations may end while the process exits.  A
    // forked child has none of its parent's operations and starts one of its own.
    static Watcher &get()
    {
        static std::mutex lock;
        static Watcher *watcher = nullptr;
        static pid_t owner = 0;
        std::lock_guard<std::mutex> guard(lock);
        if (owner != getpid()) {
            watcher = new Watcher;
            owner = getpid();
        }
        return *watcher;
    }

    // Keeps the operation until it has ended, then completes its future.
    static void watch(const std::shared_ptr<Operation> &operation)
    {
        auto *reference = new std::shared_ptr<Operation>(operation);
        get();
        if (tutti_work_then(operation->handle, on_end, reference) == TUTTI_OK) return;
        delete reference; // a Work from before fork
    }

  private:
    Watcher() = default;

    static void on_end(tutti_work *, void *argument)
    {
        auto *reference = static_cast<std::shared_ptr<Operation> *>(argument);
        get().add(std::move(*reference));
        delete reference;
    }

    void add(std::shared_ptr<Operation> operation)
    {
        constexpr int most = 256;
        std::lock_guard<std::mutex> guard(lock_);
        ended_.push_back(std::move(operation));
        if (idle_ < ended_.size() && threads_ < most) {
            std::thread(&Watcher::run, this).detach();
            threads_++;
        }
        changed_.notify_one();
    }

    void run()
    {
        for (;;) {
            std::shared_ptr<Operation> operation;
            {
                std::unique_lock<std::mutex> guard(lock_);
                idle_++;
                changed_.wait(guard, [&] { return !ended_.empty(); });
                idle_--;
                operation = std::move(ended_.front());
                ended_.pop_front();
            }
            complete(*operation);
        }
    }

    static void complete(Operation &operation)
    {
        c10::intrusive_ptr<c10::ivalue::Future> future;
        {
            std::lock_guard<std::mutex> guard(operation.lock);
            future = operation.future;
        }
        if (!future) return;
        if (auto failure = operation.failure())
            future->setError(failure);
        else
            future->markCompleted(c10::IValue(operation.outputs));
    }

    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<Operation>> ended_;
    size_t idle_ = 0; // threads that wait
    int threads_ = 0;
};

} // namespace

Work::Work(int rank, c10d::OpType type, const char *title, tutti_work *handle, std::vector<at::Tensor> inputs,
           std::vector<at::Tensor> outputs, std::chrono::milliseconds timeout)
    : c10d::Work(rank, type, title, inputs), operation_(std::make_shared<Operation>()), timeout_(timeout)
{
    operation_->handle = handle;
    operation_->inputs = std::move(inputs);
    operation_->outputs = std::move(outputs);
    if (handle == nullptr) note_end();
}

Work::~Work()
{
    std::lock_guard<std::mutex> guard(operation_->lock);
    if (operation_->is_watched || operation_->has_ended()) return;
    operation_->is_watched = true;
    Watcher::watch(operation_);
}

// Ends torch's record of the operation, once.
void Work::note_end()
{
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (completed_) return;
    }
    finish(operation_->failure());
}

bool Work::isCompleted()
{
    if (!operation_->has_ended()) return false;
    note_end();
    return true;
}

bool Work::isSuccess() const
{
    return operation_->has_ended() && operation_->status() == TUTTI_OK;
}

std::exception_ptr Work::exception() const
{
    return operation_->has_ended() ? operation_->failure() : nullptr;
}

int Work::sourceRank() const
{
    return operation_->handle == nullptr ? -1 : tutti_work_source(operation_->handle);
}

std::vector<at::Tensor> Work::result()
{
    TORCH_CHECK(isCompleted(), "tutti: the operation has not ended; call wait() before result()");
    return operation_->outputs;
}

void Work::synchronize()
{
    wait();
}

bool Work::wait(std::chrono::milliseconds timeout)
{
    if (operation_->handle != nullptr) {
        int status = tutti_work_wait(operation_->handle, to_timeout_ms(timeout, TUTTI_DEFAULT_TIMEOUT));
        bool running = status == TUTTI_ERR_TIMEOUT && !operation_->has_ended();
        if (!running) note_end();
        check(status);
    }
    return true;
}

void Work::abort()
{
    TORCH_CHECK(false, "tutti: a single operation cannot be aborted; abort its group");
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    std::lock_guard<std::mutex> guard(operation_->lock);
    if (operation_->future) return operation_->future;
    operation_->future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (operation_->handle == nullptr) {
        operation_->future->markCompleted(c10::IValue(operation_->outputs));
    } else {
        operation_->is_watched = true;
        Watcher::watch(operation_);
    }
    return operation_->future;
}

uint64_t Work::getSequencenumber() const
{
    return operation_->handle == nullptr ? 0 : tutti_work_sequence(operation_->handle);
}

float Work::getDuration() const
{
    return operation_->handle == nullptr ? 0 : static_cast<float>(tutti_work_duration_ns(operation_->handle)) * 1e-6f;
}

std::chrono::milliseconds Work::getTimeout() const
{
    return timeout_;
}

} // namespace tutti_torch
