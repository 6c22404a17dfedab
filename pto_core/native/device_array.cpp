#include "device_array.hpp"

#include "data_types.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "host_array.hpp"

namespace pto::core {
namespace {

std::string shape_text(const View& view) {
  return shown(shape_tuple(view));
}

// The half-open range that `index` selects on an axis of `extent`, and whether it is one element.
struct Selection {
  npy_intp first, count;
  bool is_element;
};

Selection selection_of(nb::handle index, npy_intp extent) {
  if (PySlice_Check(index.ptr())) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(index.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
    const Py_ssize_t count = PySlice_AdjustIndices(extent, &start, &stop, step);
    if (step != 1) {
      raise_usage("a device array cannot be sliced with step " + std::to_string(step) +
                  "; only step 1 gives contiguous memory");
    }
    return {start, count, false};
  }
  if (!PyIndex_Check(index.ptr()))
    raise_usage("a device array is indexed by integers and slices, not by " + shown(index));
  Py_ssize_t at = PyNumber_AsSsize_t(index.ptr(), PyExc_IndexError);
  if (at == -1 && PyErr_Occurred()) throw nb::python_error();
  const Py_ssize_t wrapped = at < 0 ? at + extent : at;
  if (wrapped < 0 || wrapped >= extent) {
    throw nb::index_error(("index " + std::to_string(at) + " is out of range for an axis of " +
                           std::to_string(extent))
                              .c_str());
  }
  return {wrapped, 1, true};
}

}  // namespace

PyTypeObject* DeviceArray::type = nullptr;

Buffer::Buffer(Device* owner, uint64_t at, uint64_t size, bool run)
    : device(owner), address(at), bytes(size), of_run(run) {
  device->adopt(this);
}

Buffer::~Buffer() {
  if (live && !of_run) device->free_later(address);
  if (live) device->forget(this);
}

DeviceArray::DeviceArray(nb::object device, std::shared_ptr<Buffer> buffer, const View* view,
                         uint64_t address)
    : device_(std::move(device)), buffer_(std::move(buffer)), view_(view), address_(address) {}

void DeviceArray::require(const Device* device) const {
  if (!buffer_->live) {
    raise_usage(std::string("a device array of shape ") + shape_text(*view_) +
                (buffer_->of_run ? " was used after the run that it belonged to"
                                 : " was used after it was freed or its device closed") +
                "; make a new one with Device.empty or Device.to_device");
  }
  if (buffer_->device != device) {
    raise_usage("a device array of shape " + shape_text(*view_) +
                " belongs to another device; copy it over with to_host and to_device");
  }
}

nb::object DeviceArray::to_host(nb::handle out) const {
  require(buffer_->device);
  buffer_->device->require_usable();
  nb::object result = nb::borrow(out);
  if (out.is_none()) {
    auto* descriptor = descriptor_of(view_->code);
    Py_INCREF(descriptor);
    result = nb::steal(
        PyArray_Empty(static_cast<int>(view_->shape.size()), view_->shape.data(), descriptor, 0));
    if (!result.is_valid()) throw nb::python_error();
  }
  HostArray host(result, true, [] { return std::string("the array to copy to"); });
  if (host.code != view_->code || host.shape != view_->shape) {
    nb::object wanted = dtype();
    raise_usage("the array to copy to does not match the device array; give one of shape " +
                shape_text(*view_) + " and type " + shown(wanted));
  }
  buffer_->device->copy_out(host.data, address_, view_->bytes);
  return result;
}

void DeviceArray::free() {
  if (!buffer_->live) return;
  if (buffer_->of_run) {
    raise_usage("a device array of a run cannot be freed; the framework does it when the run ends");
  }
  buffer_->device->free(*buffer_);
}

DeviceArray DeviceArray::item(nb::handle index) const {
  require(buffer_->device);
  nb::object indices = PyTuple_Check(index.ptr()) ? nb::borrow(index) : nb::make_tuple(index);
  const size_t given = static_cast<size_t>(PyTuple_GET_SIZE(indices.ptr()));
  if (given > view_->shape.size()) {
    raise_usage(std::to_string(given) + " indices for a device array of " +
                std::to_string(view_->shape.size()) + " dimensions; give at most that many");
  }
  uint64_t stride = view_->bytes;
  uint64_t offset = 0;
  std::vector<npy_intp> shape;
  bool whole_from_here = false;
  for (size_t axis = 0; axis < view_->shape.size(); ++axis) {
    const npy_intp extent = view_->shape[axis];
    stride = extent ? stride / static_cast<uint64_t>(extent) : 0;
    if (axis >= given) {
      shape.push_back(extent);
      continue;
    }
    nb::handle one = PyTuple_GET_ITEM(indices.ptr(), static_cast<Py_ssize_t>(axis));
    const Selection selection = selection_of(one, extent);
    if (whole_from_here && selection.count != extent) {
      raise_usage("index " + shown(index) + " of a device array of shape " + shape_text(*view_) +
                  " selects memory that is not contiguous; only leading axes can be cut");
    }
    offset += static_cast<uint64_t>(selection.first) * stride;
    whole_from_here = whole_from_here || selection.count != 1;
    if (!selection.is_element) shape.push_back(selection.count);
  }
  const View* view = buffer_->device->views().intern(view_->code, shape.data(), shape.size());
  return DeviceArray(device_, buffer_, view, address_ + offset);
}

DeviceArray DeviceArray::reshape(nb::handle shape) const {
  require(buffer_->device);
  const std::vector<npy_intp> extents = shape_of_object(shape);
  const View* view = buffer_->device->views().intern(view_->code, extents.data(), extents.size());
  if (view->bytes != view_->bytes) {
    raise_usage("a device array of shape " + shape_text(*view_) + " cannot take shape " +
                shape_text(*view) + "; both must have the same number of elements");
  }
  return DeviceArray(device_, buffer_, view, address_);
}

nb::object DeviceArray::dtype() const {
  return nb::borrow(reinterpret_cast<PyObject*>(descriptor_of(view_->code)));
}

std::string DeviceArray::repr() const {
  nb::object type_of_elements = dtype();
  return "<DeviceArray shape=" + shape_text(*view_) + " " + shown(type_of_elements) +
         (buffer_->live ? " at " + std::to_string(address_) : " freed") + ">";
}

void bind_device_array(nb::module_& module) {
  nb::class_<DeviceArray> bound(
      module, "DeviceArray",
      "An array in device memory, C-contiguous. Indexing leading axes gives a view of the same "
      "memory. Its memory is freed by free(), with the last view, or when the device closes.");
  bound
      .def_prop_ro(
          "shape", [](const DeviceArray& self) { return shape_tuple(self.view()); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "Elements along each axis.")
      .def_prop_ro("dtype", &DeviceArray::dtype,
                   nb::sig("def dtype(self) -> numpy.dtype[typing.Any]"), "The NumPy data type.")
      .def_prop_ro(
          "nbytes", [](const DeviceArray& self) { return self.view().bytes; }, "Size in bytes.")
      .def_prop_ro("address", &DeviceArray::address, "Address in device memory.")
      .def("to_host", &DeviceArray::to_host, nb::arg("out") = nb::none(),
           nb::sig("def to_host(self, out: typing.Any = None) -> typing.Any"),
           "Copy to the host: into `out`, a writable array of the same shape and type, or into a "
           "new NumPy array. Returns the array.")
      .def("free", &DeviceArray::free, "Free the memory now; twice is fine.")
      .def("reshape", &DeviceArray::reshape, nb::arg("shape").none(),
           nb::sig("def reshape(self, shape: int | collections.abc.Sequence[int]) -> DeviceArray"),
           "Give a view of the same memory with another shape.")
      .def("__getitem__", &DeviceArray::item, nb::arg("index").none(),
           nb::sig("def __getitem__(self, index: int | slice | tuple[int | slice, ...]) "
                   "-> DeviceArray"),
           "Give a view of a contiguous part.")
      .def("__repr__", &DeviceArray::repr);
  DeviceArray::type = reinterpret_cast<PyTypeObject*>(bound.ptr());
}

}  // namespace pto::core
