#include "backend.h"

#include "convert.h"
#include "work.h"

#include <Python.h>
#include <torch/version.h>

#include <algorithm>
#include <utility>

namespace tutti_torch
{

namespace
{

// Releases Python's lock, if this thread has it, while it waits for other ranks.
class WithoutPython
{
  public:
    WithoutPython() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr)
    {
    }
    ~WithoutPython()
    {
        if (state_ != nullptr) PyEval_RestoreThread(state_);
    }
    WithoutPython(const WithoutPython &) = delete;
    WithoutPython &operator=(const WithoutPython &) = delete;

  private:
    PyThreadState *state_;
};

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 14
constexpr c10d::OpType ALL_GATHER_COALESCED = c10d::OpType::COALESCED; // it has no type of its own
#else
constexpr c10d::OpType ALL_GATHER_COALESCED = c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED;
#endif

// Operations that a thread coalesces, and their tensors.
struct Coalesced {
    const Backend *backend;
    std::vector<at::Tensor> inputs, outputs;
};
thread_local std::vector<Coalesced> coalescing;

// Returns what this thread coalesces on the backend's group, or NULL.
Coalesced *find_coalesced(const Backend *backend)
{
    for (auto &one : coalescing)
        if (one.backend == backend) return &one;
    return nullptr;
}

void append(std::vector<at::Tensor> &to, const std::vector<at::Tensor> &from)
{
    to.insert(to.end(), from.begin(), from.end());
}

std::vector<at::Tensor> flatten(const std::vector<std::vector<at::Tensor>> &lists)
{
    std::vector<at::Tensor> all;
    for (const auto &list : lists) append(all, list);
    return all;
}

// Returns splits of the first dimension as numbers of elements; none means equal parts.
std::vector<int64_t> to_splits(const at::Tensor &tensor, const std::vector<int64_t> &splits)
{
    std::vector<int64_t> elements;
    int64_t row = tensor.dim() > 0 && tensor.size(0) > 0 ? tensor.numel() / tensor.size(0) : 1;
    for (int64_t split : splits) elements.push_back(split * row);
    return elements;
}

} // namespace

// What is the same in all operations.
struct Backend::Call {
    c10d::OpType type;
    const char *title; // in torch's profiler
    std::vector<at::Tensor> inputs, outputs;
    std::chrono::milliseconds timeout;
    bool async;
};

// ---- group ----------------------------------------------------------------------------------------------------------

Backend::Backend(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size), options_(std::move(options)), sparse_(rank, size)
{
    WithoutPython unlocked;
    store_ = wrap_store(store, options_->timeout);
    tutti_group_opts opts{};
    opts.timeout_ms = options_->timeout.count();
    opts.name = options_->group_name.empty() ? nullptr : options_->group_name.c_str();
    opts.algorithm = options_->algorithm.empty() ? nullptr : options_->algorithm.c_str();
    check(tutti_create_group(options_->transport.c_str(), store_.get(), rank, size, &opts, &group_));
    init();
}

Backend::~Backend()
{
    shutdown();
}

void Backend::shutdown()
{
    if (group_ == nullptr) return;
    WithoutPython unlocked;
    if (!sparse_.await_all(std::chrono::seconds(2)))
        tutti_abort(group_, "it was destroyed during all_reduce of a sparse tensor");
    if (sparse_.await_all(std::chrono::seconds(10))) tutti_destroy_process_group(group_); // else a thread uses it
    group_ = nullptr;
    store_.reset();
}

void Backend::abort()
{
    if (group_ == nullptr) return;
    WithoutPython unlocked;
    tutti_abort(group_, "the program aborted the process group");
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                                 const std::vector<int> &ranks,
                                                 const c10::intrusive_ptr<c10d::Backend::Options> &opts)
{
    auto found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) return nullptr;
    auto own = c10::dynamic_intrusive_pointer_cast<Options>(opts);
    auto options = c10::make_intrusive<Options>(own ? *own : *options_);
    if (opts) options->timeout = opts->timeout;
    if (opts) options->group_name = opts->group_name;
    return c10::make_intrusive<Backend>(store, static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size()),
                                        options);
}

// ---- operations -----------------------------------------------------------------------------------------------------

tutti_opts Backend::options_of(std::chrono::milliseconds timeout) const
{
    tutti_opts opts{};
    opts.group = group_;
    opts.timeout_ms = to_timeout_ms(timeout, options_->timeout.count());
    return opts;
}

// Makes one call.  A blocking one ends here, without a hand-over between threads.  One that is coalesced gets its Work
// from endCoalescing.
template <typename Start> c10::intrusive_ptr<c10d::Work> Backend::run(const Call &call, const Start &start)
{
    TORCH_CHECK_WITH(DistBackendError, group_ != nullptr, "tutti: the process group has been destroyed");
    WithoutPython unlocked;
    tutti_opts opts = options_of(call.timeout);
    tutti_work *work = nullptr;
    Coalesced *queue = find_coalesced(this);
    if (call.async || queue != nullptr) opts.async_op = &work;
    check(start(opts));
    if (queue != nullptr) {
        append(queue->inputs, call.inputs);
        append(queue->outputs, call.outputs);
        return nullptr;
    }
    return c10::make_intrusive<Work>(this, rank_, call.type, call.title, work, call.inputs, call.outputs, call.timeout);
}

// Makes n calls as one.  `start` makes the i-th.
template <typename Start>
c10::intrusive_ptr<c10d::Work> Backend::run_coalesced(const Call &call, size_t n, const Start &start)
{
    return run(call, [&](tutti_opts &opts) {
        tutti_work **whole = opts.async_op, *part = nullptr;
        bool outermost = find_coalesced(this) == nullptr;
        int status = outermost ? tutti_coalesce_begin(group_) : TUTTI_OK;
        if (status != TUTTI_OK) return status;
        opts.async_op = &part;
        for (size_t i = 0; i < n && status == TUTTI_OK; i++) status = start(opts, i);
        if (!outermost) return status;
        std::string message = status != TUTTI_OK ? tutti_last_error() : "";
        int ended = tutti_coalesce_end(group_, whole);
        return status == TUTTI_OK ? ended : tutti_set_error(status, "%s", message.c_str());
    });
}

c10::intrusive_ptr<c10d::Work> Backend::broadcast(std::vector<at::Tensor> &tensors, const c10d::BroadcastOptions &opts)
{
    tutti_tensor tensor = to_tensor(only("broadcast", tensors));
    int root = static_cast<int>(opts.rootRank);
    return run({c10d::OpType::BROADCAST, "tutti:broadcast", tensors, tensors, opts.timeout, opts.asyncOp},
               [&](const tutti_opts &o) { return tutti_broadcast(tensor, root, &o); });
}

c10::intrusive_ptr<c10d::Work> Backend::allreduce(std::vector<at::Tensor> &tensors, const c10d::AllreduceOptions &opts)
{
    const at::Tensor &first = only("all_reduce", tensors);
    if (first.is_sparse()) return allreduce_sparse(tensors, opts);
    tutti_tensor tensor = to_tensor(first);
    Reduction reduction = to_reduction(opts.reduceOp);
    return run({c10d::OpType::ALLREDUCE, "tutti:all_reduce", tensors, tensors, opts.timeout, opts.asyncOp},
               [&](tutti_opts &o) {
                   o.factor = reduction.factor;
                   return tutti_all_reduce(tensor, reduction.op, &o);
               });
}

c10::intrusive_ptr<c10d::Work> Backend::allreduce_coalesced(std::vector<at::Tensor> &tensors,
                                                            const c10d::AllreduceCoalescedOptions &opts)
{
    std::vector<tutti_tensor> all = to_tensors(tensors);
    Reduction reduction = to_reduction(opts.reduceOp);
    return run_coalesced(
        {c10d::OpType::ALLREDUCE_COALESCED, "tutti:all_reduce_coalesced", tensors, tensors, opts.timeout, opts.asyncOp},
        all.size(), [&](tutti_opts &o, size_t i) {
            o.factor = reduction.factor;
            return tutti_all_reduce(all[i], reduction.op, &o);
        });
}

c10::intrusive_ptr<c10d::Work> Backend::allreduce_sparse(std::vector<at::Tensor> &tensors,
                                                         const c10d::AllreduceOptions &opts)
{
    const at::Tensor &tensor = only("all_reduce", tensors);
    TORCH_CHECK_WITH(DistBackendError, group_ != nullptr, "tutti: the process group has been destroyed");
    TORCH_CHECK_VALUE(tensor.is_sparse() && tensor.device().is_cpu(),
                      "tutti: all_reduce of sparse tensors takes COO tensors on the CPU");
    TORCH_CHECK_VALUE(opts.reduceOp == c10d::ReduceOp::SUM, "tutti: all_reduce of sparse tensors only sums");
    TORCH_CHECK_VALUE(find_coalesced(this) == nullptr, "tutti: all_reduce of sparse tensors cannot be coalesced");
    WithoutPython unlocked;
    return sparse_.start(tensor, options_of(opts.timeout));
}

c10::intrusive_ptr<c10d::Work> Backend::reduce(std::vector<at::Tensor> &tensors, const c10d::ReduceOptions &opts)
{
    tutti_tensor tensor = to_tensor(only("reduce", tensors));
    Reduction reduction = to_reduction(opts.reduceOp);
    int root = static_cast<int>(opts.rootRank);
    return run({c10d::OpType::REDUCE, "tutti:reduce", tensors, tensors, opts.timeout, opts.asyncOp},
               [&](tutti_opts &o) {
                   o.factor = reduction.factor;
                   return tutti_reduce(tensor, root, reduction.op, &o);
               });
}

c10::intrusive_ptr<c10d::Work> Backend::allgather(std::vector<std::vector<at::Tensor>> &outputs,
                                                  std::vector<at::Tensor> &inputs, const c10d::AllgatherOptions &opts)
{
    tutti_tensor in = to_tensor(only("all_gather", inputs));
    std::vector<tutti_tensor> out = to_tensors(only("all_gather", outputs));
    return run({c10d::OpType::ALLGATHER, "tutti:all_gather", inputs, outputs[0], opts.timeout, opts.asyncOp},
               [&](const tutti_opts &o) { return tutti_all_gather(out.data(), static_cast<int>(out.size()), in, &o); });
}

c10::intrusive_ptr<c10d::Work> Backend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                        const c10d::AllgatherOptions &opts)
{
    tutti_tensor in = to_tensor(input), out = to_tensor(output);
    return run({c10d::OpType::_ALLGATHER_BASE, "tutti:_all_gather_base", {input}, {output}, opts.timeout, opts.asyncOp},
               [&](const tutti_opts &o) { return tutti_all_gather_into_tensor(out, in, &o); });
}

// outputs[r][i] receives rank r's i-th input.
c10::intrusive_ptr<c10d::Work> Backend::allgather_coalesced(std::vector<std::vector<at::Tensor>> &outputs,
                                                            std::vector<at::Tensor> &inputs,
                                                            const c10d::AllgatherOptions &opts)
{
    std::vector<tutti_tensor> in = to_tensors(inputs);
    std::vector<std::vector<tutti_tensor>> out(in.size());
    TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_), "tutti: all_gather_coalesced needs ", size_,
                      " lists of outputs, not ", outputs.size());
    for (const auto &list : outputs) {
        TORCH_CHECK_VALUE(list.size() == in.size(), "tutti: all_gather_coalesced has ", in.size(),
                          " inputs, and a list of outputs with ", list.size());
        for (size_t i = 0; i < in.size(); i++) out[i].push_back(to_tensor(list[i]));
    }
    return run_coalesced(
        {c10d::OpType::ALLGATHER_COALESCED, "tutti:all_gather_coalesced", inputs, flatten(outputs), opts.timeout,
         opts.asyncOp},
        in.size(), [&](const tutti_opts &o, size_t i) { return tutti_all_gather(out[i].data(), size_, in[i], &o); });
}

c10::intrusive_ptr<c10d::Work> Backend::allgather_into_tensor_coalesced(std::vector<at::Tensor> &outputs,
                                                                        std::vector<at::Tensor> &inputs,
                                                                        const c10d::AllgatherOptions &opts)
{
    std::vector<tutti_tensor> in = to_tensors(inputs), out = to_tensors(outputs);
    TORCH_CHECK_VALUE(in.size() == out.size(), "tutti: all_gather_into_tensor_coalesced has ", in.size(),
                      " inputs and ", out.size(), " outputs");
    return run_coalesced(
        {ALL_GATHER_COALESCED, "tutti:all_gather_into_tensor_coalesced", inputs, outputs, opts.timeout, opts.asyncOp},
        in.size(), [&](const tutti_opts &o, size_t i) { return tutti_all_gather_into_tensor(out[i], in[i], &o); });
}

c10::intrusive_ptr<c10d::Work> Backend::gather(std::vector<std::vector<at::Tensor>> &outputs,
                                               std::vector<at::Tensor> &inputs, const c10d::GatherOptions &opts)
{
    tutti_tensor in = to_tensor(only("gather", inputs));
    int root = static_cast<int>(opts.rootRank);
    std::vector<at::Tensor> all = rank_ == root ? only("gather", outputs) : std::vector<at::Tensor>();
    TORCH_CHECK_VALUE(rank_ == root || flatten(outputs).empty(), "tutti: only the root of gather has outputs");
    std::vector<tutti_tensor> out = to_tensors(all);
    return run({c10d::OpType::GATHER, "tutti:gather", inputs, all, opts.timeout, opts.asyncOp},
               [&](const tutti_opts &o) {
                   return tutti_gather(in, out.empty() ? nullptr : out.data(), static_cast<int>(out.size()), root, &o);
               });
}

c10::intrusive_ptr<c10d::Work> Backend::scatter(std::vector<at::Tensor> &outputs,
                                                std::vector<std::vector<at::Tensor>> &inputs,
                                                const c10d::ScatterOptions &opts)
{
    tutti_tensor out = to_tensor(only("scatter", outputs));
    int root = static_cast<int>(opts.rootRank);
    std::vector<at::Tensor> all = rank_ == root ? only("scatter", inputs) : std::vector<at::Tensor>();
    TORCH_CHECK_VALUE(rank_ == root || flatten(inputs).empty(), "tutti: only the root of scatter has inputs");
    std::vector<tutti_tensor> in = to_tensors(all);
    return run({c10d::OpType::SCATTER, "tutti:scatter", all, outputs, opts.timeout, opts.asyncOp},
               [&](const tutti_opts &o) {
                   return tutti_scatter(out, in.empty() ? nullptr : in.data(), static_cast<int>(in.size()), root, &o);
               });
}

c10::intrusive_ptr<c10d::Work> Backend::reduce_scatter(std::vector<at::Tensor> &outputs,
                                                       std::vector<std::vector<at::Tensor>> &inputs,
                                                       const c10d::ReduceScatterOptions &opts)
{
    tutti_tensor out = to_tensor(only("reduce_scatter", outputs));
    std::vector<tutti_tensor> in = to_tensors(only("reduce_scatter", inputs));
    Reduction reduction = to_reduction(opts.reduceOp);
    return run({c10d::OpType::REDUCE_SCATTER, "tutti:reduce_scatter", inputs[0], outputs, opts.timeout, opts.asyncOp},
               [&](tutti_opts &o) {
                   o.factor = reduction.factor;
                   return tutti_reduce_scatter(out, in.data(), static_cast<int>(in.size()), reduction.op, &o);
               });
}

c10::intrusive_ptr<c10d::Work> Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                             const c10d::ReduceScatterOptions &opts)
{
    tutti_tensor out = to_tensor(output), in = to_tensor(input);
    Reduction reduction = to_reduction(opts.reduceOp);
    return run({c10d::OpType::_REDUCE_SCATTER_BASE,
                "tutti:_reduce_scatter_base",
                {input},
                {output},
                opts.timeout,
                opts.asyncOp},
               [&](tutti_opts &o) {
                   o.factor = reduction.factor;
                   return tutti_reduce_scatter_tensor(out, in, reduction.op, &o);
               });
}

c10::intrusive_ptr<c10d::Work> Backend::reduce_scatter_tensor_coalesced(std::vector<at::Tensor> &outputs,
                                                                        std::vector<at::Tensor> &inputs,
                                                                        const c10d::ReduceScatterOptions &opts)
{
    std::vector<tutti_tensor> in = to_tensors(inputs), out = to_tensors(outputs);
    Reduction reduction = to_reduction(opts.reduceOp);
    TORCH_CHECK_VALUE(in.size() == out.size(), "tutti: reduce_scatter_tensor_coalesced has ", in.size(), " inputs and ",
                      out.size(), " outputs");
    return run_coalesced({c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "tutti:reduce_scatter_tensor_coalesced",
                          inputs, outputs, opts.timeout, opts.asyncOp},
                         in.size(), [&](tutti_opts &o, size_t i) {
                             o.factor = reduction.factor;
                             return tutti_reduce_scatter_tensor(out[i], in[i], reduction.op, &o);
                         });
}

c10::intrusive_ptr<c10d::Work> Backend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                                      std::vector<int64_t> &output_splits,
                                                      std::vector<int64_t> &input_splits,
                                                      const c10d::AllToAllOptions &opts)
{
    tutti_tensor out = to_tensor(output), in = to_tensor(input);
    for (const auto *splits : {&output_splits, &input_splits})
        TORCH_CHECK_VALUE(splits->empty() || splits->size() == static_cast<size_t>(size_),
                          "tutti: all_to_all_single has ", splits->size(), " split sizes for ", size_, " ranks");
    std::vector<int64_t> to = to_splits(output, output_splits), from = to_splits(input, input_splits);
    return run({c10d::OpType::ALLTOALL_BASE, "tutti:all_to_all", {input}, {output}, opts.timeout, opts.asyncOp},
               [&](const tutti_opts &o) {
                   return tutti_all_to_all_single(out, in, to.empty() ? nullptr : to.data(),
                                                  from.empty() ? nullptr : from.data(), &o);
               });
}

c10::intrusive_ptr<c10d::Work> Backend::alltoall(std::vector<at::Tensor> &outputs, std::vector<at::Tensor> &inputs,
                                                 const c10d::AllToAllOptions &opts)
{
    std::vector<tutti_tensor> out = to_tensors(outputs), in = to_tensors(inputs);
    TORCH_CHECK_VALUE(in.size() == out.size(), "tutti: all_to_all has ", in.size(), " inputs and ", out.size(),
                      " outputs");
    return run(
        {c10d::OpType::ALLTOALL, "tutti:all_to_all", inputs, outputs, opts.timeout, opts.asyncOp},
        [&](const tutti_opts &o) { return tutti_all_to_all(out.data(), in.data(), static_cast<int>(out.size()), &o); });
}

// ---- point to point -------------------------------------------------------------------------------------------------

c10::intrusive_ptr<c10d::Work> Backend::send(std::vector<at::Tensor> &tensors, int dst, int tag)
{
    tutti_tensor tensor = to_tensor(only("send", tensors));
    return run({c10d::OpType::SEND, "tutti:send", tensors, {}, c10d::kUnsetTimeout, true}, [&](tutti_opts &o) {
        o.tag = tag;
        return tutti_send(tensor, dst, &o);
    });
}

c10::intrusive_ptr<c10d::Work> Backend::receive(std::vector<at::Tensor> &tensors, int src, int tag)
{
    tutti_tensor tensor = to_tensor(only("recv", tensors));
    bool any = src == TUTTI_ANY_SOURCE;
    return run({any ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV,
                any ? "tutti:recvAnySource" : "tutti:recv",
                {},
                tensors,
                c10d::kUnsetTimeout,
                true},
               [&](tutti_opts &o) {
                   o.tag = tag;
                   return tutti_recv(tensor, src, &o);
               });
}

c10::intrusive_ptr<c10d::Work> Backend::recv(std::vector<at::Tensor> &tensors, int src, int tag)
{
    return receive(tensors, src, tag);
}

c10::intrusive_ptr<c10d::Work> Backend::recvAnysource(std::vector<at::Tensor> &tensors, int tag)
{
    return receive(tensors, TUTTI_ANY_SOURCE, tag);
}

// ---- barriers and coalescing ----------------------------------------------------------------------------------------

c10::intrusive_ptr<c10d::Work> Backend::barrier(const c10d::BarrierOptions &opts)
{
    return run({c10d::OpType::BARRIER, "tutti:barrier", {}, {}, opts.timeout, opts.asyncOp},
               [&](const tutti_opts &o) { return tutti_barrier(&o); });
}

void Backend::monitoredBarrier(const c10d::BarrierOptions &opts, bool)
{
    TORCH_CHECK_WITH(DistBackendError, group_ != nullptr, "tutti: the process group has been destroyed");
    WithoutPython unlocked;
    tutti_opts o = options_of(opts.timeout);
    check(tutti_monitored_barrier(&o));
}

void Backend::startCoalescing()
{
    check(tutti_coalesce_begin(group_));
    coalescing.push_back({this, {}, {}});
}

c10::intrusive_ptr<c10d::Work> Backend::endCoalescing()
{
    Coalesced *queue = find_coalesced(this);
    TORCH_CHECK_VALUE(queue != nullptr, "tutti: endCoalescing without startCoalescing on this thread");
    Coalesced queued = std::move(*queue);
    coalescing.erase(coalescing.begin() + (queue - coalescing.data()));
    WithoutPython unlocked;
    tutti_work *work = nullptr;
    check(tutti_coalesce_end(group_, &work));
    return c10::make_intrusive<Work>(this, rank_, c10d::OpType::COALESCED, "tutti:coalesced", work,
                                     std::move(queued.inputs), std::move(queued.outputs), c10d::kUnsetTimeout);
}

} // namespace tutti_torch
