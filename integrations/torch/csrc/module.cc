// The Python module tutti_torch._C.
#include "backend.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>

namespace
{

using tutti_torch::Backend;

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                                         const c10::intrusive_ptr<Backend::Options> &options)
{
    return c10::make_intrusive<Backend>(store, rank, size, options);
}

std::string describe(const c10::intrusive_ptr<c10d::Backend> &backend)
{
    auto *own = dynamic_cast<Backend *>(backend.get());
    TORCH_CHECK_TYPE(own != nullptr, "tutti_torch.describe takes a backend of tutti's");
    std::vector<char> text(64 << 10);
    return tutti_describe_group(own->group(), text.data(), text.size()) == TUTTI_OK ? text.data() : "";
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)
{
    namespace py = pybind11;
    py::module::import("torch.distributed"); // it defines the base classes
    py::class_<Backend::Options, c10::intrusive_ptr<Backend::Options>, c10d::Backend::Options>(module, "Options")
        .def(py::init<std::chrono::milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout)
        .def_readwrite("transport", &Backend::Options::transport)
        .def_readwrite("algorithm", &Backend::Options::algorithm);
    module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
               py::call_guard<py::gil_scoped_release>());
    module.def("describe", &describe);
    module.def("version", &tutti_version);
    module.def("abi_version", &tutti_abi_version);
    module.attr("BUILT_FOR_ABI") = TUTTI_ABI_VERSION;
}
