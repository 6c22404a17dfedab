#include "device_array.hpp"

#include <algorithm>
#include <cstring>

#include "data_types.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "host_array.hpp"

namespace pto::core {

pto_tensor_data whole_tensor(uint8_t code, const Extents& shape, uint64_t bytes) {
  pto_tensor_data data;
  std::memset(&data, 0, sizeof(data));
  data.buffer.size = bytes;
  data.ndims = static_cast<uint32_t>(shape.size());
  data.dtype = code;
  data.owner = -1;
  for (uint32_t dim = 0; dim < data.ndims; ++dim) {
    data.raw_shapes[dim] = data.shapes[dim] = static_cast<uint64_t>(shape[dim]);
    data.order[dim] = static_cast<uint8_t>(dim);
  }
  return data;
}

uint64_t stride_of(const pto_tensor_data& data, uint32_t dim) {
  uint64_t stride = 1;
  for (uint32_t other = 0; other < data.ndims; ++other)
    if (data.order[other] > data.order[dim]) stride *= data.raw_shapes[other];
  return stride;
}

Extents shown_shape(const pto_tensor_data& data) {
  Extents shape;
  for (uint32_t dim = 0; dim < data.ndims; ++dim)
    if (!is_dropped(data, dim)) shape.push_back(static_cast<npy_intp>(data.shapes[dim]));
  return shape;
}

bool is_contiguous(const pto_tensor_data& data) {
  for (uint32_t dim = 0; dim < data.ndims; ++dim)
    if (data.shapes[dim] == 0) return true;
  uint64_t expected = 1;
  for (uint32_t dim = data.ndims; dim-- > 0;) {
    if (data.shapes[dim] == 1) continue;
    if (stride_of(data, dim) != expected) return false;
    expected *= data.shapes[dim];
  }
  return true;
}

void cut(pto_tensor_data& data, uint32_t dim, uint64_t first, uint64_t count) {
  data.start_offset += first * stride_of(data, dim);
  data.offsets[dim] += first;
  data.shapes[dim] = count;
}

void drop(pto_tensor_data& data, uint32_t dim) {
  data.dropped = static_cast<uint8_t>(data.dropped | 1u << dim);
}

void permute(pto_tensor_data& data, const std::vector<uint32_t>& axes) {
  const pto_tensor_data before = data;
  uint32_t shown[PTO_MAX_DIMS];
  uint32_t count = 0;
  for (uint32_t dim = 0; dim < data.ndims; ++dim)
    if (!is_dropped(data, dim)) shown[count++] = dim;
  for (uint32_t axis = 0; axis < count; ++axis) {
    const uint32_t to = shown[axis];
    const uint32_t from = shown[axes[axis]];
    data.raw_shapes[to] = before.raw_shapes[from];
    data.shapes[to] = before.shapes[from];
    data.offsets[to] = before.offsets[from];
    data.order[to] = before.order[from];
  }
}

void give_shape(pto_tensor_data& data, const Extents& shape) {
  pto_tensor_data given = whole_tensor(static_cast<uint8_t>(data.dtype), shape, data.buffer.size);
  given.buffer = data.buffer;
  given.start_offset = data.start_offset;
  given.version = data.version;
  given.owner = data.owner;
  data = given;
}

PyObject* array_of(const pto_tensor_data& data) {
  if (data.is_pipe) return Py_NewRef(Py_None);
  const auto code = static_cast<uint8_t>(data.dtype);
  const uint64_t bytes = element_bytes(code);
  npy_intp shape[PTO_MAX_DIMS];
  npy_intp strides[PTO_MAX_DIMS];
  int dims = 0;
  for (uint32_t dim = 0; dim < data.ndims; ++dim) {
    if (is_dropped(data, dim)) continue;
    shape[dims] = static_cast<npy_intp>(data.shapes[dim]);
    strides[dims++] = static_cast<npy_intp>(stride_of(data, dim) * bytes);
  }
  auto* descriptor = descriptor_of(code);
  Py_INCREF(descriptor);
  const int access = data.tag == PTO_TAG_INPUT ? NPY_ARRAY_ALIGNED : NPY_ARRAY_BEHAVED;
  return PyArray_NewFromDescr(&PyArray_Type, descriptor, dims, shape, strides,
                              reinterpret_cast<void*>(data.buffer.addr + data.start_offset * bytes),
                              access, nullptr);
}

namespace {

std::string shape_text(const View& view) {
  return shown(shape_tuple(view));
}

// The elements that an index selects on an axis, as a half-open range, and whether the index is an
// integer.
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
                  "; a view must be a box of its buffer, so use step 1");
    }
    return {start, count, false};
  }
  if (!PyIndex_Check(index.ptr()) || PyBool_Check(index.ptr()))
    raise_usage("a device array is indexed by integers and slices, not by " + shown(index) +
                (index.ptr() == Py_Ellipsis ? "; use : for each whole axis"
                                            : "; a view must be a box of its buffer"));
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

Buffer::Buffer(OpenDevice* owner, uint64_t at, uint64_t size, bool run)
    : device(owner), address(at), bytes(size), of_run(run) {
  device->adopt(this);
}

Buffer::Buffer(OpenDevice* owner, uint64_t size, std::shared_ptr<const RunMark> graph)
    : device(owner), bytes(size), of_run(true), of_graph(std::move(graph)) {}

Buffer::~Buffer() {
  if (of_graph) return;
  if (live && !of_run) device->free_later(address);
  if (live) device->forget(this);
}

DeviceArray::DeviceArray(nb::object device, std::shared_ptr<Buffer> buffer, const View* view)
    : device_(std::move(device)),
      buffer_(std::move(buffer)),
      view_(view),
      is_flat_(view->shape.size() > PTO_MAX_DIMS) {
  const auto elements = static_cast<npy_intp>(view->bytes / element_bytes(view->code));
  data_ = whole_tensor(view->code, is_flat_ ? Extents{elements} : view->shape, buffer_->bytes);
  data_.buffer.addr = buffer_->address;
}

DeviceArray DeviceArray::pipe(nb::object device, std::shared_ptr<Buffer> buffer, const View* view) {
  DeviceArray made(std::move(device), std::move(buffer), view);
  made.data_.is_pipe = 1;
  return made;
}

DeviceArray DeviceArray::with(const pto_tensor_data& data) const {
  DeviceArray made = *this;
  const Extents shape = shown_shape(data);
  made.view_ = buffer_->device->views().intern(view_->code, shape.data(), shape.size());
  made.data_ = data;
  made.is_flat_ = false;
  return made;
}

uint64_t DeviceArray::address() const {
  if (buffer_->address == 0) return 0;
  return buffer_->address + data_.start_offset * element_bytes(view_->code);
}

void DeviceArray::refuse_dimensions() const {
  raise_usage("a device array of shape " + shape_text(*view_) + " has " +
              std::to_string(view_->shape.size()) +
              " dimensions, but views and tasks accept at most " + std::to_string(PTO_MAX_DIMS) +
              "; reshape it first");
}

void DeviceArray::require_contiguous(const std::string& what) const {
  if (data_.is_pipe || buffer_->address == 0) {
    raise_usage(what + " has no memory" +
                (data_.is_pipe ? ": it is a pipe" : " yet: submit it as Out first"));
  }
  if (is_contiguous()) return;
  raise_usage(what + ", a view of shape " + shape_text(*view_) +
              ", selects memory that is not contiguous; slice leading axes only, or use the whole "
              "array");
}

void DeviceArray::require(const OpenDevice* device) const {
  if (!buffer_->is_live()) {
    raise_usage(std::string("a device array of shape ") + shape_text(*view_) +
                (buffer_->of_run ? " was used after the end of its run"
                                 : " was used after it was freed, or after its device was closed") +
                "; make a new one with Device.empty or Device.to_device");
  }
  if (buffer_->device != device) {
    raise_usage("a device array of shape " + shape_text(*view_) +
                " belongs to another device; copy it with to_host and to_device");
  }
}

nb::object DeviceArray::to_host(nb::handle out) const {
  require(buffer_->device);
  buffer_->device->require_usable();
  require_contiguous("the device array to copy");
  nb::object result = nb::borrow(out);
  if (out.is_none()) {
    auto* descriptor = descriptor_of(view_->code);
    Py_INCREF(descriptor);
    result = nb::steal(
        PyArray_Empty(static_cast<int>(view_->shape.size()), view_->shape.data(), descriptor, 0));
    if (!result.is_valid()) throw nb::python_error();
  }
  HostArray host(
      result, true, [] { return std::string("the array to copy to"); }, Advice::kPassAndCopyBack);
  if (host.code != view_->code || host.shape != view_->shape) {
    nb::object wanted = dtype();
    raise_usage("the array to copy to does not match the device array; pass one of shape " +
                shape_text(*view_) + " and type " + shown(wanted));
  }
  buffer_->device->copy_out(host.data, address(), view_->bytes);
  return result;
}

void DeviceArray::from_host(nb::handle array) {
  require(buffer_->device);
  buffer_->device->require_usable();
  require_contiguous("the device array to copy to");
  HostArray host(
      array, false, [] { return std::string("the array to copy from"); }, Advice::kPassCopy);
  if (host.bytes != view_->bytes) {
    raise_usage("the array to copy from has " + std::to_string(host.bytes) +
                " bytes, but the device array has " + std::to_string(view_->bytes) +
                " bytes; pass an array of that size, or slice the device array");
  }
  buffer_->device->copy_in(address(), host.data, host.bytes);
}

DeviceArray DeviceArray::retyped(uint64_t offset, nb::handle shape, nb::handle dtype) const {
  require(buffer_->device);
  require_contiguous("the device array to view");
  const uint8_t code = code_of_object(dtype);
  const std::vector<npy_intp> extents = shape_of_object(shape);
  const View* view = buffer_->device->views().intern(code, extents.data(), extents.size());
  if (offset > view_->bytes || view->bytes > view_->bytes - offset) {
    raise_usage("a view of " + std::to_string(view->bytes) + " bytes, " + std::to_string(offset) +
                " in, does not fit a device array of " + std::to_string(view_->bytes) + " bytes");
  }
  const uint64_t begin = address() - buffer_->address + offset;
  const uint64_t element = element_bytes(code);
  if (begin % element != 0) {
    raise_usage("a view begins " + std::to_string(begin) +
                " bytes into its memory, which is not a " + "multiple of the " +
                std::to_string(element) + " bytes of its elements");
  }
  DeviceArray made(device_, buffer_, view);
  made.data_.start_offset = begin / element;
  made.is_read_only_ = is_read_only_;
  return made;
}

void DeviceArray::free() {
  if (!buffer_->live) return;
  if (buffer_->of_run) {
    raise_usage(
        "a device array of a run cannot be freed; the framework frees it when the run ends");
  }
  buffer_->device->free(*buffer_);
}

DeviceArray DeviceArray::item(nb::handle index) const {
  require(buffer_->device);
  nb::object indices = PyTuple_Check(index.ptr()) ? nb::borrow(index) : nb::make_tuple(index);
  const size_t given = static_cast<size_t>(PyTuple_GET_SIZE(indices.ptr()));
  if (given > view_->shape.size()) {
    raise_usage(std::to_string(given) + " indices for a device array of " +
                std::to_string(view_->shape.size()) +
                " dimensions; use at most one index for each dimension");
  }
  if (is_flat_) refuse_dimensions();
  pto_tensor_data data = data_;
  uint32_t dim = 0;
  for (size_t axis = 0; axis < given; ++axis, ++dim) {
    while (is_dropped(data_, dim)) ++dim;
    nb::handle one = PyTuple_GET_ITEM(indices.ptr(), static_cast<Py_ssize_t>(axis));
    const Selection selection = selection_of(one, view_->shape[axis]);
    cut(data, dim, static_cast<uint64_t>(selection.first), static_cast<uint64_t>(selection.count));
    if (selection.is_element) drop(data, dim);
  }
  return with(data);
}

DeviceArray DeviceArray::reshape(nb::handle shape) const {
  require(buffer_->device);
  const std::vector<npy_intp> extents = shape_of_object(shape);
  const View* view = buffer_->device->views().intern(view_->code, extents.data(), extents.size());
  if (view->bytes != view_->bytes) {
    raise_usage("a device array of shape " + shape_text(*view_) + " cannot have shape " +
                shape_text(*view) + "; both must have the same number of elements");
  }
  if (!is_contiguous()) {
    raise_usage("a view of shape " + shape_text(*view_) +
                " cannot be reshaped, because its memory is not contiguous; reshape the "
                "whole array, then slice it");
  }
  DeviceArray made = *this;
  made.view_ = view;
  made.is_flat_ = extents.size() > PTO_MAX_DIMS;
  const auto elements = static_cast<npy_intp>(view->bytes / element_bytes(view->code));
  give_shape(made.data_, made.is_flat_ ? Extents{elements} : extents);
  return made;
}

DeviceArray DeviceArray::transpose(nb::handle axes) const {
  require(buffer_->device);
  if (is_flat_) refuse_dimensions();
  const auto count = static_cast<uint32_t>(view_->shape.size());
  std::vector<uint32_t> order;
  for (uint32_t axis = count; axes.is_none() && axis-- > 0;) order.push_back(axis);
  if (!axes.is_none()) {
    for (npy_intp axis : integers_of_object(axes)) {
      const npy_intp wrapped = axis < 0 ? axis + count : axis;
      order.push_back(static_cast<uint32_t>(wrapped));
    }
    std::vector<uint32_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    bool is_permutation = sorted.size() == count;
    for (uint32_t axis = 0; is_permutation && axis < count; ++axis)
      is_permutation = sorted[axis] == axis;
    if (!is_permutation) {
      raise_usage("axes " + shown(axes) + " are not a permutation of the " + std::to_string(count) +
                  " axes of a device array of shape " + shape_text(*view_));
    }
  }
  pto_tensor_data data = data_;
  permute(data, order);
  return with(data);
}

nb::object DeviceArray::dtype() const {
  return nb::borrow(reinterpret_cast<PyObject*>(descriptor_of(view_->code)));
}

std::string DeviceArray::repr() const {
  nb::object type_of_elements = dtype();
  return "<DeviceArray shape=" + shape_text(*view_) + " " + shown(type_of_elements) +
         (!buffer_->is_live()     ? " freed"
          : data_.is_pipe         ? " pipe"
          : buffer_->address == 0 ? " without memory yet"
                                  : " at " + std::to_string(address())) +
         ">";
}

void bind_device_array(nb::module_& module) {
  nb::class_<DeviceArray> bound(
      module, "DeviceArray",
      "An array in device memory. Slices, integer indices, reshape and transpose return views of "
      "the same memory. Operations that need contiguous memory (to_host, rt.add_task, arguments of "
      "a C++ orchestration) refuse other views. Memory is freed by free(), with the last view, "
      "or when the device closes; a tensor of a graph lives as long as its run.");
  bound
      .def_prop_ro(
          "shape", [](const DeviceArray& self) { return shape_tuple(self.view()); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "The number of elements along each axis.")
      .def_prop_ro("dtype", &DeviceArray::dtype,
                   nb::sig("def dtype(self) -> numpy.dtype[typing.Any]"), "The NumPy data type.")
      .def_prop_ro(
          "nbytes", [](const DeviceArray& self) { return self.view().bytes; }, "Size in bytes.")
      .def_prop_ro("address", &DeviceArray::address,
                   "Address of the first element in device memory; 0 for a tensor that no task has "
                   "written yet.")
      .def("to_host", &DeviceArray::to_host, nb::arg("out") = nb::none(),
           nb::sig("def to_host(self, out: typing.Any = None) -> typing.Any"),
           "Copy to the host: into `out`, a writable array of the same shape and type, or into a "
           "new NumPy array. Returns the array.")
      .def("from_host", &DeviceArray::from_host, nb::arg("array").none(),
           nb::sig("def from_host(self, array: typing.Any) -> None"),
           "Copy an array with the same number of bytes into this array.")
      .def("view", &DeviceArray::retyped, nb::arg("offset"), nb::arg("shape").none(),
           nb::arg("dtype").none(),
           nb::sig("def view(self, offset: int, shape: int | collections.abc.Sequence[int], dtype: "
                   "numpy.typing.DTypeLike) -> DeviceArray"),
           "Return a view of contiguous memory from byte `offset` on, with another shape and type.")
      .def("free", &DeviceArray::free, "Free the memory now; a second call has no effect.")
      .def("reshape", &DeviceArray::reshape, nb::arg("shape").none(),
           nb::sig("def reshape(self, shape: int | collections.abc.Sequence[int]) -> DeviceArray"),
           "Return a view of the same memory with another shape.")
      .def("__getitem__", &DeviceArray::item, nb::arg("index").none(),
           nb::sig("def __getitem__(self, index: int | slice | tuple[int | slice, ...]) "
                   "-> DeviceArray"),
           "Return a view of a part. A slice of step 1 keeps its axis, an integer removes it.")
      .def("transpose", &DeviceArray::transpose, nb::arg("axes") = nb::none(),
           nb::sig("def transpose(self, axes: collections.abc.Sequence[int] | None = None) -> "
                   "DeviceArray"),
           "Return a view with the axes in another order, by default reversed.")
      .def_prop_ro(
          "T", [](const DeviceArray& self) { return self.transpose(nb::none()); },
          nb::sig("def T(self) -> DeviceArray"), "The view with all axes reversed.")
      .def("__repr__", &DeviceArray::repr);
  DeviceArray::type = reinterpret_cast<PyTypeObject*>(bound.ptr());
}

}  // namespace pto::core
