/* Tutti for C++17: the calls of tutti.h with containers as tensors, exceptions or results for errors, and objects that
 * free what they hold.  Header only; link libtutti.
 *
 *     #include <tutti/tutti.hpp>
 *
 *     int main()
 *     {
 *         tutti::world world("tcp");
 *         std::vector<float> x(4, world.rank());
 *         tutti::work sum = world.async_all_reduce(x, TUTTI_SUM);
 *         sum.wait();
 *     }
 *
 * What a call does, its threads and its errors are those of the C function of the same name.  Here an error is thrown
 * as tutti::error, with the function's message.  Functions whose names begin with try_ throw nothing and return a
 * tutti::result, as C++23's std::expected.  Without exceptions (-fno-exceptions) the others print the error and abort.
 * Destructors throw nothing. */
#ifndef TUTTI_TUTTI_HPP
#define TUTTI_TUTTI_HPP

#if __cplusplus < 201703L
#error "tutti.hpp needs C++17 or later: compile with -std=c++17, or include <tutti/tutti.h>, which C++11 suffices for"
#else

#include <tutti/tutti.h>

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
#if __has_include(<span>)
#include <span>
#endif

namespace tutti
{

/* ---- errors -------------------------------------------------------------------------------------------------- */

class error : public std::runtime_error
{
  public:
    error(int status, const std::string &text) : std::runtime_error(text), status_(status)
    {
    }

    /* A negative tutti_status. */
    int status() const noexcept
    {
        return status_;
    }

  private:
    int status_;
};

/* Returns the error of this thread's last failed call, which returned status. */
inline error last_error(int status)
{
    return error(status, std::string(tutti_status_string(status)) + ": " + tutti_last_error());
}

[[noreturn]] inline void raise(const error &cause)
{
#ifdef __cpp_exceptions
    throw cause;
#else
    std::fprintf(stderr, "%s\n", cause.what());
    std::abort();
#endif
}

/* Throws the error of this thread's last failed call, if status is one. */
inline void check(int status)
{
    if (status < 0) raise(last_error(status));
}

/* A value, or the error of the call that should have made it. */
template <typename T> class [[nodiscard]] result
{
  public:
    result(T &&value) : value_(std::move(value))
    {
    }
    result(const tutti::error &error) : error_(error)
    {
    }

    bool has_value() const noexcept
    {
        return value_.has_value();
    }
    explicit operator bool() const noexcept
    {
        return has_value();
    }

    /* Throws the error if there is no value. */
    T &value() &
    {
        if (!has_value()) raise(*error_);
        return *value_;
    }
    T &&value() &&
    {
        if (!has_value()) raise(*error_);
        return std::move(*value_);
    }
    T &operator*() noexcept
    {
        return *value_;
    }
    T *operator->() noexcept
    {
        return &*value_;
    }

    /* Only if there is no value. */
    const tutti::error &error() const noexcept
    {
        return *error_;
    }

  private:
    std::optional<T> value_;
    std::optional<tutti::error> error_;
};

/* Success, or an error. */
template <> class [[nodiscard]] result<void>
{
  public:
    result() = default;
    result(const tutti::error &error) : error_(error)
    {
    }

    /* Takes what a C function returned. */
    static result of(int status)
    {
        return status < 0 ? result(last_error(status)) : result();
    }

    bool has_value() const noexcept
    {
        return !error_.has_value();
    }
    explicit operator bool() const noexcept
    {
        return has_value();
    }
    void value() const
    {
        if (error_) raise(*error_);
    }

    /* Only after a failure. */
    const tutti::error &error() const noexcept
    {
        return *error_;
    }

  private:
    std::optional<tutti::error> error_;
};

/* ---- tensors ------------------------------------------------------------------------------------------------- */

/* Returns the dtype of an element type: arithmetic types and std::complex of float and double. */
template <typename T> constexpr tutti_dtype dtype_of()
{
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, std::complex<float>>)
        return TUTTI_COMPLEX64;
    else if constexpr (std::is_same_v<U, std::complex<double>>)
        return TUTTI_COMPLEX128;
    else {
        static_assert(std::is_arithmetic_v<U> && !std::is_same_v<U, long double>,
                      "there is no dtype for this element; make a tutti_tensor by tutti_tensor_of");
        constexpr int code = std::is_same_v<U, bool>       ? 6
                             : std::is_floating_point_v<U> ? 2
                             : std::is_unsigned_v<U>       ? 1
                                                           : 0;
        return static_cast<tutti_dtype>(code << 8 | static_cast<int>(sizeof(U) * 8));
    }
}

/* A part of contiguous memory, as C++20's std::span, which is taken wherever this is. */
template <typename T> class span
{
  public:
    span(T *data, std::size_t size) noexcept : data_(data), size_(size)
    {
    }
    template <typename C, typename = decltype(std::declval<C &>().data(), std::declval<C &>().size())>
    span(C &container) noexcept : span(container.data(), container.size())
    {
    }

    T *data() const noexcept
    {
        return data_;
    }
    std::size_t size() const noexcept
    {
        return size_;
    }
    T *begin() const noexcept
    {
        return data_;
    }
    T *end() const noexcept
    {
        return data_ + size_;
    }
    T &operator[](std::size_t i) const noexcept
    {
        return data_[i];
    }

    /* Returns n elements from the first one on. */
    span subspan(std::size_t first, std::size_t n) const noexcept
    {
        return span(data_ + first, n);
    }

  private:
    T *data_;
    std::size_t size_;
};
template <typename C> span(C &container) -> span<std::remove_pointer_t<decltype(container.data())>>;

/* True for types that refer to memory of somebody else's, so that a temporary of them may be passed.  May be
 * specialized. */
template <typename T> struct is_view : std::false_type {
};
template <typename T> struct is_view<span<T>> : std::true_type {
};
template <> struct is_view<std::string_view> : std::true_type {
};
#ifdef __cpp_lib_span
template <typename T, std::size_t N> struct is_view<std::span<T, N>> : std::true_type {
};
#endif

/* A tensor that a call may write, over memory of the caller's: from a tutti_tensor, a pointer and a number, a scalar's
 * reference, or anything with data() and size() (std::vector, std::array, std::span).  A temporary container is
 * refused, because its memory would be gone before an asynchronous call ends.  A temporary span is taken.  Const
 * elements are refused. */
class tensor
{
  public:
    tensor(tutti_tensor given) : tensor_(given)
    {
    }
    template <typename T> tensor(T *data, std::size_t n) : tensor_{tutti_tensor_of(data, (int64_t)n, dtype_of<T>())}
    {
        static_assert(!std::is_const_v<T>, "the call writes to this tensor, so its elements must not be const");
    }
    template <typename C, typename = decltype(std::declval<C &>().data(), std::declval<C &>().size()),
              typename = std::enable_if_t<!is_view<std::remove_cv_t<C>>::value>>
    tensor(C &container) : tensor(container.data(), container.size())
    {
    }
    template <typename V, typename = std::enable_if_t<is_view<V>::value>>
    tensor(const V &view) : tensor(view.data(), view.size())
    {
    }
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>, typename = void, typename = void>
    tensor(T &scalar) : tensor(&scalar, 1)
    {
    }

    operator tutti_tensor() const noexcept
    {
        return tensor_;
    }

  private:
    tutti_tensor tensor_;
};

/* A tensor that a call only reads: from what makes a tensor, also with const elements. */
class input
{
  public:
    input(tutti_tensor given) : tensor_(given)
    {
    }
    input(const tensor &given) : tensor_(given)
    {
    }
    template <typename T> input(T *data, std::size_t n) : tensor_{tutti_tensor_of(data, (int64_t)n, dtype_of<T>())}
    {
    }
    template <typename C, typename = decltype(std::declval<C &>().data(), std::declval<C &>().size()),
              typename = std::enable_if_t<!is_view<std::remove_cv_t<C>>::value>>
    input(C &container) : input(container.data(), container.size())
    {
    }
    template <typename V, typename = std::enable_if_t<is_view<V>::value>>
    input(const V &view) : input(view.data(), view.size())
    {
    }
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>, typename = void, typename = void>
    input(T &scalar) : input(&scalar, 1)
    {
    }

    operator tutti_tensor() const noexcept
    {
        return tensor_;
    }

  private:
    tutti_tensor tensor_;
};

/* A list of tensors that a call only reads, one for each rank. */
class inputs
{
  public:
    inputs(std::initializer_list<input> list) : tensors_(list.begin(), list.end())
    {
    }
    inputs(const std::vector<input> &list) : tensors_(list.begin(), list.end())
    {
    }
    inputs(const std::vector<tensor> &list) : tensors_(list.begin(), list.end())
    {
    }

    const tutti_tensor *data() const noexcept
    {
        return tensors_.data();
    }
    int size() const noexcept
    {
        return (int)tensors_.size();
    }

  private:
    std::vector<tutti_tensor> tensors_;
};

/* ---- work ---------------------------------------------------------------------------------------------------- */

/* A started operation.  Destroyed before its end, the operation still completes, and its memory must stay valid. */
class work
{
  public:
    work() = default;
    explicit work(tutti_work *handle) noexcept : handle_(handle)
    {
    }
    work(work &&other) noexcept : handle_(std::exchange(other.handle_, nullptr))
    {
    }
    work &operator=(work &&other) noexcept
    {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~work()
    {
        tutti_work_free(handle_);
    }

    /* Waits until the operation has ended.  Throws its error.  May be called again. */
    void wait()
    {
        check(tutti_work_wait(handle_, TUTTI_DEFAULT_TIMEOUT));
    }

    result<void> try_wait()
    {
        return result<void>::of(tutti_work_wait(handle_, TUTTI_DEFAULT_TIMEOUT));
    }

    /* Waits for at most this time.  False if it has passed; the operation continues. */
    template <typename Rep, typename Period> bool wait_for(std::chrono::duration<Rep, Period> time)
    {
        int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
        int status = tutti_work_wait(handle_, ms > 0 ? ms : TUTTI_NOW);
        if (status == TUTTI_ERR_TIMEOUT && !completed()) return false;
        if (status == TUTTI_ERR_TIMEOUT) status = tutti_work_wait(handle_, TUTTI_NOW); /* it has ended since */
        check(status);
        return true;
    }

    bool completed()
    {
        return tutti_work_is_completed(handle_);
    }
    int source() const
    {
        return tutti_work_source(handle_);
    }
    int tag() const
    {
        return tutti_work_tag(handle_);
    }
    int64_t received() const
    {
        return tutti_work_received(handle_);
    }
    tutti_work *get() const noexcept
    {
        return handle_;
    }

  private:
    tutti_work *handle_ = nullptr;
};

/* ---- groups -------------------------------------------------------------------------------------------------- */

/* Options of one call, as tutti_opts without what the arguments say. */
struct options {
    std::chrono::milliseconds timeout{0}; /* 0: the group's */
    int tag = 0;
    bool group_rank = false;
    double factor = 0;
    void *stream = nullptr;
};

/* A process group.  Ends with its object, unless it is a view of the default group. */
class group
{
  public:
    /* The default group of somebody else's making. */
    static group default_group() noexcept
    {
        return group(nullptr, false);
    }

    group(tutti_group *handle, bool owned) noexcept : handle_(handle), owned_(owned)
    {
    }
    group(group &&other) noexcept : handle_(other.handle_), owned_(std::exchange(other.owned_, false))
    {
    }
    group &operator=(group &&other) noexcept
    {
        std::swap(handle_, other.handle_);
        std::swap(owned_, other.owned_);
        return *this;
    }
    ~group()
    {
        if (owned_) tutti_destroy_process_group(handle_);
    }

    int rank() const
    {
        return tutti_get_rank(handle_);
    }
    int size() const
    {
        return tutti_get_world_size(handle_);
    }
    std::string name() const
    {
        return tutti_get_name(handle_);
    }
    std::string backend() const
    {
        return tutti_get_backend(handle_);
    }
    tutti_group *get() const noexcept
    {
        return handle_;
    }

    /* Make groups of this one's ranks. */
    group new_group(const std::vector<int> &global_ranks, tutti_group_opts opts = {}) const
    {
        tutti_group *made = nullptr;
        if (opts.parent == nullptr) opts.parent = handle_;
        check(tutti_new_group(global_ranks.data(), (int)global_ranks.size(), &opts, &made));
        return group(made, true);
    }
    group split(int color, int key = 0) const
    {
        tutti_group_opts opts = {};
        tutti_group *made = nullptr;
        opts.parent = handle_;
        check(tutti_split_group(color, key, &opts, &made));
        return group(made, true);
    }
    group shrink() const
    {
        tutti_group *made = nullptr;
        check(tutti_shrink_group(handle_, &made));
        return group(made, true);
    }

    /* Each collective in four forms: NAME returns when this rank's part is done, async_NAME returns a work.  try_NAME
     * and try_async_NAME return errors. */
#define TUTTI_COLLECTIVE(name, parameters, ...)                                                                        \
    void name parameters const                                                                                         \
    {                                                                                                                  \
        const tutti_opts opts = fill(given, nullptr);                                                                  \
        check(tutti_##name(__VA_ARGS__, &opts));                                                                       \
    }                                                                                                                  \
    result<void> try_##name parameters const                                                                           \
    {                                                                                                                  \
        const tutti_opts opts = fill(given, nullptr);                                                                  \
        return result<void>::of(tutti_##name(__VA_ARGS__, &opts));                                                     \
    }                                                                                                                  \
    [[nodiscard]] work async_##name parameters const                                                                   \
    {                                                                                                                  \
        tutti_work *started = nullptr;                                                                                 \
        const tutti_opts opts = fill(given, &started);                                                                 \
        check(tutti_##name(__VA_ARGS__, &opts));                                                                       \
        return work(started);                                                                                          \
    }                                                                                                                  \
    result<work> try_async_##name parameters const                                                                     \
    {                                                                                                                  \
        tutti_work *started = nullptr;                                                                                 \
        const tutti_opts opts = fill(given, &started);                                                                 \
        int status = tutti_##name(__VA_ARGS__, &opts);                                                                 \
        if (status < 0) return last_error(status);                                                                     \
        return work(started);                                                                                          \
    }
    TUTTI_COLLECTIVE(broadcast, (tensor x, int root, const options &given = {}), x, root)
    TUTTI_COLLECTIVE(all_reduce, (tensor x, tutti_reduce_op op, const options &given = {}), x, op)
    TUTTI_COLLECTIVE(all_reduce_into, (tensor out, input in, tutti_reduce_op op, const options &given = {}), out, in,
                     op)
    TUTTI_COLLECTIVE(scan, (tensor x, tutti_reduce_op op, const options &given = {}), x, op)
    TUTTI_COLLECTIVE(exscan, (tensor x, tutti_reduce_op op, const options &given = {}), x, op)
    TUTTI_COLLECTIVE(reduce, (tensor x, int root, tutti_reduce_op op, const options &given = {}), x, root, op)
    TUTTI_COLLECTIVE(all_gather_into_tensor, (tensor out, input in, const options &given = {}), out, in)
    TUTTI_COLLECTIVE(gather_into_tensor, (tensor out, input in, int root, const options &given = {}), out, in, root)
    TUTTI_COLLECTIVE(scatter_tensor, (tensor out, input in, int root, const options &given = {}), out, in, root)
    TUTTI_COLLECTIVE(reduce_scatter_tensor, (tensor out, input in, tutti_reduce_op op, const options &given = {}), out,
                     in, op)
    TUTTI_COLLECTIVE(all_to_all_single,
                     (tensor out, input in, const std::vector<int64_t> &out_splits = {},
                      const std::vector<int64_t> &in_splits = {}, const options &given = {}),
                     out, in, splits(out_splits), splits(in_splits))
    TUTTI_COLLECTIVE(all_gather, (const std::vector<tensor> &out, input in, const options &given = {}),
                     list(out).data(), (int)out.size(), in)
    TUTTI_COLLECTIVE(gather, (input in, const std::vector<tensor> &out, int root, const options &given = {}), in,
                     list(out).data(), (int)out.size(), root)
    TUTTI_COLLECTIVE(scatter, (tensor out, const inputs &in, int root, const options &given = {}), out, in.data(),
                     in.size(), root)
    TUTTI_COLLECTIVE(reduce_scatter, (tensor out, const inputs &in, tutti_reduce_op op, const options &given = {}), out,
                     in.data(), in.size(), op)
#undef TUTTI_COLLECTIVE

    void barrier(const options &given = {}) const
    {
        try_barrier(given).value();
    }
    result<void> try_barrier(const options &given = {}) const
    {
        const tutti_opts opts = fill(given, nullptr);
        return result<void>::of(tutti_barrier(&opts));
    }

    void send(input x, int dst, const options &given = {}) const
    {
        try_send(x, dst, given).value();
    }
    result<void> try_send(input x, int dst, const options &given = {}) const
    {
        const tutti_opts opts = fill(given, nullptr);
        return result<void>::of(tutti_send(x, dst, &opts));
    }
    void recv(tensor x, int src, const options &given = {}) const
    {
        try_recv(x, src, given).value();
    }
    result<void> try_recv(tensor x, int src, const options &given = {}) const
    {
        const tutti_opts opts = fill(given, nullptr);
        return result<void>::of(tutti_recv(x, src, &opts));
    }
    [[nodiscard]] work isend(input x, int dst, const options &given = {}) const
    {
        return try_isend(x, dst, given).value();
    }
    result<work> try_isend(input x, int dst, const options &given = {}) const
    {
        tutti_work *started = nullptr;
        const tutti_opts opts = fill(given, nullptr);
        int status = tutti_isend(x, dst, &opts, &started);
        if (status < 0) return last_error(status);
        return work(started);
    }
    [[nodiscard]] work irecv(tensor x, int src, const options &given = {}) const
    {
        return try_irecv(x, src, given).value();
    }
    result<work> try_irecv(tensor x, int src, const options &given = {}) const
    {
        tutti_work *started = nullptr;
        const tutti_opts opts = fill(given, nullptr);
        int status = tutti_irecv(x, src, &opts, &started);
        if (status < 0) return last_error(status);
        return work(started);
    }

    /* Return the byte strings of all ranks, or root's. */
    std::vector<std::string> all_gather_bytes(std::string_view mine, const options &given = {}) const
    {
        std::vector<tutti_bytes> out((std::size_t)std::max(size(), 0)); /* -1: not a member, which the call refuses */
        const tutti_opts opts = fill(given, nullptr);
        check(tutti_all_gather_bytes(out.data(), (int)out.size(), mine.data(), mine.size(), &opts));
        return take(out);
    }
    std::string broadcast_bytes(std::string_view mine, int root, const options &given = {}) const
    {
        const tutti_opts opts = fill(given, nullptr);
        const bool is_root = (given.group_rank ? rank() : tutti_get_global_rank(handle_, rank())) == root;
        std::vector<tutti_bytes> inout(1);
        if (is_root) inout[0] = {const_cast<char *>(mine.data()), mine.size()};
        check(tutti_broadcast_bytes(inout.data(), root, &opts));
        return is_root ? std::string(mine) : take(inout)[0];
    }

  private:
    tutti_opts fill(const options &given, tutti_work **async_op) const
    {
        tutti_opts opts = {};
        opts.group = handle_;
        opts.async_op = async_op;
        opts.stream = given.stream;
        opts.timeout_ms = given.timeout.count();
        opts.tag = given.tag;
        opts.group_rank = given.group_rank;
        opts.factor = given.factor;
        return opts;
    }
    static std::vector<tutti_tensor> list(const std::vector<tensor> &tensors)
    {
        return std::vector<tutti_tensor>(tensors.begin(), tensors.end());
    }
    static const int64_t *splits(const std::vector<int64_t> &given)
    {
        return given.empty() ? nullptr : given.data();
    }
    static std::vector<std::string> take(std::vector<tutti_bytes> &values)
    {
        std::vector<std::string> result;
        for (const tutti_bytes &value : values) result.emplace_back(static_cast<const char *>(value.data), value.bytes);
        tutti_bytes_free(values.data(), (int)values.size());
        return result;
    }

    tutti_group *handle_;

  protected:
    bool owned_; /* the object's end destroys the group */
};

/* The default group, from its making to the end of the object.  Groups made from it must have ended before. */
class world : public group
{
  public:
    explicit world(const char *backend = nullptr, const tutti_init_opts &opts = {}) : group(nullptr, false)
    {
        check(tutti_init_process_group(backend, &opts));
        owned_ = true;
    }

    /* Makes the default group.  Throws nothing. */
    static result<world> try_make(const char *backend = nullptr, const tutti_init_opts &opts = {})
    {
        int status = tutti_init_process_group(backend, &opts);
        if (status < 0) return last_error(status);
        return world(made{});
    }

  private:
    struct made {
    };
    explicit world(made) noexcept : group(nullptr, true)
    {
    }
};

} // namespace tutti

#endif
#endif
