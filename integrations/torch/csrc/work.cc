#include "work.h"

#include "convert.h"

#include <condition_variable>
#include <deque>
#include <list>
#include <set>
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
    bool is_noticed = false; // the watcher knows of its end; guarded by the watcher
    const void *order;       // the group whose collectives are in order, or NULL: a message

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

// Completes futures and releases the tensors of dropped operations, in threads of its own: both may run Python, which a
// callback of Tutti's must not wait for.
//
// Callbacks of futures may start collectives, which all ranks must start in the same order.  So the futures of a
// group's collectives are completed one after the other, in the order in which they were started.  A callback may also
// wait for the future of an operation that it has started itself, as PowerSGD's hook does.  So operations that are
// started in a callback belong to the next level, which has a thread of its own.
class Watcher
{
  public:
    // Returns the process's watcher.  It is never destroyed, because operations may end while the process exits.  A
    // forked child has none of its parent's operations and makes a watcher of its own.
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
    void watch(const std::shared_ptr<Operation> &operation)
    {
        Level &level = level_of_this_thread();
        {
            std::lock_guard<std::mutex> guard(level.lock);
            level.pending.push_back(operation);
        }
        auto *ending = new Ending{&level, operation.get()};
        if (tutti_work_then(operation->handle, on_end, ending) == TUTTI_OK) return;
        delete ending; // a Work from before fork
        std::lock_guard<std::mutex> guard(level.lock);
        level.pending.remove(operation);
    }

  private:
    struct Level {
        std::mutex lock; // guards the following, and the operations' has_ended
        std::condition_variable changed;
        std::list<std::shared_ptr<Operation>> pending; // in the order of their starts
    };
    struct Ending {
        Level *level;
        Operation *operation; // pending, so it is alive
    };

    static void on_end(tutti_work *, void *argument)
    {
        std::unique_ptr<Ending> ending(static_cast<Ending *>(argument));
        std::lock_guard<std::mutex> guard(ending->level->lock);
        ending->operation->is_noticed = true;
        ending->level->changed.notify_one();
    }

    Level &level_of_this_thread()
    {
        std::lock_guard<std::mutex> guard(lock_);
        while (levels_.size() <= depth) {
            levels_.emplace_back();
            std::thread(run, &levels_.back(), levels_.size()).detach();
        }
        return levels_[depth];
    }

    // Returns the first operation whose turn it is, or NULL.
    static std::shared_ptr<Operation> take(Level &level)
    {
        std::set<const void *> earlier; // groups that have a collective which has not ended
        for (auto at = level.pending.begin(); at != level.pending.end(); ++at) {
            std::shared_ptr<Operation> operation = *at;
            if (operation->order != nullptr && earlier.count(operation->order) > 0) continue;
            if (operation->is_noticed) {
                level.pending.erase(at);
                return operation;
            }
            if (operation->order != nullptr) earlier.insert(operation->order);
        }
        return nullptr;
    }

    static void run(Level *level, size_t next_depth)
    {
        depth = next_depth;
        for (;;) {
            std::shared_ptr<Operation> operation;
            {
                std::unique_lock<std::mutex> guard(level->lock);
                level->changed.wait(guard, [&] { return (operation = take(*level)) != nullptr; });
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

    static thread_local size_t depth; // 0 in the program's threads
    std::mutex lock_;
    std::deque<Level> levels_; // never shrinks, so addresses stay
};

thread_local size_t Watcher::depth = 0;

} // namespace

Work::Work(const void *group, int rank, c10d::OpType type, const char *title, tutti_work *handle,
           std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs, std::chrono::milliseconds timeout)
    : c10d::Work(rank, type, title, inputs), operation_(std::make_shared<Operation>()), timeout_(timeout)
{
    operation_->handle = handle;
    operation_->order = c10d::isP2POp(type) ? nullptr : group;
    operation_->inputs = std::move(inputs);
    operation_->outputs = std::move(outputs);
    if (handle == nullptr) note_end();
}

Work::~Work()
{
    std::lock_guard<std::mutex> guard(operation_->lock);
    if (operation_->is_watched || operation_->has_ended()) return;
    operation_->is_watched = true;
    Watcher::get().watch(operation_);
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
        Watcher::get().watch(operation_);
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
