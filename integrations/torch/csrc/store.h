// torch's store as Tutti's.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tutti/store.h>

#include <memory>

namespace tutti_torch
{

struct FreeStore {
    void operator()(tutti_store *store) const
    {
        tutti_store_free(store);
    }
};
using StoreHandle = std::unique_ptr<tutti_store, FreeStore>;

// Makes a store of torch's.  It shares torch's connection, which no call occupies for long.
StoreHandle wrap_store(const c10::intrusive_ptr<c10d::Store> &store, std::chrono::milliseconds timeout);

} // namespace tutti_torch
