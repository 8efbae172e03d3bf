#include "store.h"

#include "convert.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace tutti_torch
{

namespace
{

using Bytes = std::vector<uint8_t>;

c10d::Store &store_of(void *self)
{
    return **static_cast<c10::intrusive_ptr<c10d::Store> *>(self);
}

std::chrono::milliseconds to_wait(int64_t timeout_ms)
{
    constexpr int64_t year_ms = INT64_C(365) * 24 * 3600 * 1000; // torch adds it to a clock, which must not overflow
    return std::chrono::milliseconds(timeout_ms < year_ms ? timeout_ms : year_ms);
}

Bytes to_bytes(const void *data, size_t bytes)
{
    const auto *begin = static_cast<const uint8_t *>(data);
    return bytes > 0 ? Bytes(begin, begin + bytes) : Bytes();
}

int copy_value(const Bytes &from, tutti_bytes *to)
{
    *to = {nullptr, from.size()};
    if (from.empty()) return TUTTI_OK;
    to->data = std::malloc(from.size());
    if (to->data == nullptr) return tutti_set_error(TUTTI_ERR_NO_MEMORY, "no memory for %zu bytes", from.size());
    std::memcpy(to->data, from.data(), from.size());
    return TUTTI_OK;
}

// Runs a call of torch's store, whose exceptions become a status.
template <typename Call> int guarded(Call call)
{
    try {
        return call();
    } catch (const std::exception &error) {
        return tutti_set_error(TUTTI_ERR_STORE, "%.500s", error.what());
    }
}

// Returns once the keys exist.  Asks again and again: a wait of torch's would keep the store's connection from other
// threads, and breaks some stores when it ends by its timeout.  Tutti waits in short spans, to look for lost ranks
// between them.
int await(c10d::Store &store, const std::vector<std::string> &keys, int64_t timeout_ms)
{
    using namespace std::chrono;
    auto begin = steady_clock::now();
    for (auto pause = 1ms; !store.check(keys); pause = std::min(2 * pause, 50ms)) {
        auto left = to_wait(timeout_ms) - duration_cast<milliseconds>(steady_clock::now() - begin);
        if (left <= 0ms)
            return tutti_set_error(TUTTI_ERR_TIMEOUT, "key \"%.200s\"%s does not exist after %lld ms", keys[0].c_str(),
                                   keys.size() > 1 ? " or another one" : "", static_cast<long long>(timeout_ms));
        std::this_thread::sleep_for(std::min(pause, left));
    }
    return TUTTI_OK;
}

int store_set(void *self, const char *key, const void *value, size_t bytes)
{
    return guarded([&] { return store_of(self).set(key, to_bytes(value, bytes)), TUTTI_OK; });
}

int store_get(void *self, const char *key, tutti_bytes *value, int64_t timeout_ms)
{
    return guarded([&] {
        int status = await(store_of(self), {key}, timeout_ms);
        return status == TUTTI_OK ? copy_value(store_of(self).get(key), value) : status;
    });
}

int store_wait(void *self, const char *const *keys, int n, int64_t timeout_ms)
{
    return guarded([&] { return await(store_of(self), {keys, keys + n}, timeout_ms); });
}

int store_check(void *self, const char *const *keys, int n, bool *present)
{
    return guarded([&] { return *present = store_of(self).check({keys, keys + n}), TUTTI_OK; });
}

int store_add(void *self, const char *key, int64_t delta, int64_t *value)
{
    return guarded([&] { return *value = store_of(self).add(key, delta), TUTTI_OK; });
}

// torch returns the expected value if the key is absent.  It cannot be the value that is there, because that would have
// been replaced.
int store_compare_set(void *self, const char *key, tutti_bytes expected, tutti_bytes desired, tutti_bytes *value)
{
    return guarded([&] {
        Bytes from = to_bytes(expected.data, expected.bytes), to = to_bytes(desired.data, desired.bytes);
        Bytes now = store_of(self).compareSet(key, from, to);
        bool absent = now == from && now != to;
        return copy_value(absent ? Bytes() : now, value);
    });
}

int store_remove(void *self, const char *key, bool *existed)
{
    return guarded([&] { return *existed = store_of(self).deleteKey(key), TUTTI_OK; });
}

int store_append(void *self, const char *key, const void *value, size_t bytes)
{
    return guarded([&] { return store_of(self).append(key, to_bytes(value, bytes)), TUTTI_OK; });
}

int store_multi_get(void *self, const char *const *keys, int n, tutti_bytes *values, int64_t timeout_ms)
{
    return guarded([&] {
        std::vector<std::string> names(keys, keys + n);
        int status = await(store_of(self), names, timeout_ms);
        if (status != TUTTI_OK) return status;
        auto found = store_of(self).multiGet(names);
        for (int i = 0; i < n && status == TUTTI_OK; i++) status = copy_value(found.at(i), &values[i]);
        return status;
    });
}

int store_multi_set(void *self, const char *const *keys, const tutti_bytes *values, int n)
{
    return guarded([&] {
        std::vector<Bytes> copies;
        for (int i = 0; i < n; i++) copies.push_back(to_bytes(values[i].data, values[i].bytes));
        return store_of(self).multiSet({keys, keys + n}, copies), TUTTI_OK;
    });
}

void store_close(void *self)
{
    delete static_cast<c10::intrusive_ptr<c10d::Store> *>(self);
}

} // namespace

StoreHandle wrap_store(const c10::intrusive_ptr<c10d::Store> &store, std::chrono::milliseconds timeout)
{
    tutti_store_calls calls{};
    calls.set = store_set;
    calls.get = store_get;
    calls.wait = store_wait;
    calls.check = store_check;
    calls.add = store_add;
    calls.compare_set = store_compare_set;
    calls.remove = store_remove;
    calls.close = store_close;
    if (store->hasExtendedApi()) {
        calls.append = store_append;
        calls.multi_get = store_multi_get;
        calls.multi_set = store_multi_set;
    }
    tutti_store_opts opts{};
    opts.timeout_ms = timeout.count();
    tutti_store *handle = nullptr;
    auto *self = new c10::intrusive_ptr<c10d::Store>(store);
    int status = tutti_store_custom("torch's store", &calls, self, &opts, &handle);
    if (status != TUTTI_OK) delete self;
    check(status);
    return StoreHandle(handle);
}

} // namespace tutti_torch
