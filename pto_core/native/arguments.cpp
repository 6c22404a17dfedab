#include "arguments.hpp"

#include "clock.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "scalars.hpp"

namespace pto::core {
namespace {

bool overlap(const HostArray& a, const HostArray& b) {
  if (a.bytes == 0 || b.bytes == 0) return false;
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<uintptr_t>(b.data);
  return a_begin < b_begin + b.bytes && b_begin < a_begin + a.bytes;
}

// Return whether the object is the address of a tensor of another program in the memory of the
// device.
bool is_device_address(nb::handle object) {
  if (!PyLong_Check(object.ptr()) || PyLong_CheckExact(object.ptr())) return false;
  static PyObject* const type =
      nb::object(nb::module_::import_("pto_core.device.foreign_tensors").attr("DeviceAddress"))
          .release()
          .ptr();
  return PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(type));
}

}  // namespace

Arguments::Arguments(OpenDevice& device, nb::handle device_object, const Program& program,
                     nb::tuple given)
    : device_(device),
      device_object_(device_object),
      program_(program),
      given_(std::move(given)),
      on_host_(!program.is_python() && device.orchestrates_on_host()) {
  check_count();
  values_.resize(given_.size());
  pto_tensor scalar{};
  scalar.use = PTO_TAG_SCALAR + 1;
  described_.resize(given_.size(), scalar);
  for (size_t i = 0; i < given_.size(); ++i) take(i, given_[i]);
  check_signature_used_up();
  if (!on_host_) share_and_refuse_overlap();
}

Arguments::~Arguments() {
  for (auto& buffer : buffers_) device_.free(*buffer);
}

void Arguments::check_count() const {
  const auto count = static_cast<int64_t>(given_.size());
  const bool too_many = program_.maximum >= 0 && count > program_.maximum;
  if (count >= program_.required && !too_many) return;
  const int64_t bound = too_many ? program_.maximum : program_.required;
  const char* quantity = program_.required == program_.maximum ? ""
                         : too_many                            ? "at most "
                                                               : "at least ";
  raise_usage("orchestration '" + program_.name + "' takes " + quantity + std::to_string(bound) +
              " arguments, but the run passed " + std::to_string(count) +
              (too_many ? "; remove the extra arguments" : "; pass the missing arguments"));
}

void Arguments::take(size_t position, nb::handle object) {
  if (Py_TYPE(object.ptr()) == DeviceArray::type) {
    const auto* array = nb::inst_ptr<DeviceArray>(object);
    array->require(&device_);
    if (!program_.is_python()) array->require_contiguous(program_.describe_argument(position));
    direction_of(position);
    ++tensors_seen_;
    values_[position] = array->address();
    describe(position, array->view().code, array->view().shape);
  } else if (is_device_address(object)) {
    direction_of(position);
    ++tensors_seen_;
    values_[position] = scalar_of(object)->bits;
  } else if (listed(position) == Tag::kScalar) {
    take_scalar(position, object);
  } else if (listed(position) != Tag::kAny) {
    take_tensor(position, object);
  } else if (const auto scalar = scalar_of(object)) {
    values_[position] = scalar->bits;
  } else {
    take_tensor(position, object);
  }
}

void Arguments::take_scalar(size_t position, nb::handle object) {
  const int code = program_.codes[position];
  const ScalarValue scalar =
      declared_scalar_of(object, code, [&] { return program_.describe_argument(position); });
  values_[position] = scalar.bits;
  if (code != kNoType && program_.is_python())
    numbers_.emplace_back(position, nb::steal(number_of(scalar.bits, scalar.kind)));
}

// Return the direction of an argument if the signature lists all arguments.
Tag Arguments::listed(size_t position) const {
  const bool is_listed = !program_.by_tensor && position < program_.directions.size();
  return is_listed ? program_.directions[position] : Tag::kAny;
}

void Arguments::take_tensor(size_t position, nb::handle object) {
  const Tag direction = direction_of(position);
  ++tensors_seen_;
  const bool must_write = direction == Tag::kOutput || direction == Tag::kInout;
  HostArray host(
      object, must_write, [&] { return program_.describe_argument(position); },
      direction == Tag::kInput ? Advice::kPassCopy : Advice::kPassAndCopyBack,
      ", or a DeviceArray, an int, a float or a ctypes scalar");
  values_[position] = reinterpret_cast<uint64_t>(host.data);
  describe(position, host.code, host.shape);
  if (host.bytes) ranges_.push_back({reinterpret_cast<uint64_t>(host.data), host.bytes});
  const bool copy_out = must_write || (direction == Tag::kAny && host.writable);
  const bool is_read_only = direction == Tag::kInput || (direction == Tag::kAny && !host.writable);
  tensors_.push_back(
      {std::move(host), position, direction != Tag::kOutput, copy_out, is_read_only, 0});
}

Tag Arguments::direction_of(size_t position) const {
  const size_t index = program_.by_tensor ? tensors_seen_ : position;
  if (index < program_.directions.size()) {
    const Tag direction = program_.directions[index];
    if (direction != Tag::kScalar) return direction;
    raise_usage(
        program_.describe_argument(position) +
        " is an array, but its signature declares scalar; pass a number or change the signature");
  }
  if (program_.by_tensor) {
    raise_usage(program_.describe_argument(position) + " is tensor number " +
                std::to_string(tensors_seen_ + 1) + ", the signature lists " +
                std::to_string(program_.directions.size()) + "; pass as many as it lists");
  }
  return Tag::kAny;
}

// A tensor with more dimensions than a task accepts is described without its shape.
void Arguments::describe(size_t position, uint8_t code, const Extents& shape) {
  pto_tensor& tensor = described_[position];
  tensor = {};
  tensor.dtype = code;
  if (shape.size() > PTO_MAX_DIMS) return;
  tensor.ndims = static_cast<uint32_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) tensor.shapes[i] = static_cast<uint32_t>(shape[i]);
}

void Arguments::check_signature_used_up() const {
  if (!program_.by_tensor || tensors_seen_ == program_.directions.size()) return;
  raise_usage("orchestration '" + program_.name + "': the signature lists " +
              std::to_string(program_.directions.size()) + " tensors, but the run passed " +
              std::to_string(tensors_seen_) + "; pass as many as it lists");
}

// Arguments over the same host memory share one device buffer. Otherwise the last buffer that is
// copied back would overwrite the others. Output arguments that overlap only in part are refused.
void Arguments::share_and_refuse_overlap() {
  size_t buffers = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    tensor.buffer = buffers;
    for (size_t j = 0; j < i; ++j) {
      Tensor& earlier = tensors_[j];
      if (!overlap(tensor.host, earlier.host)) continue;
      if (tensor.host.data == earlier.host.data && tensor.host.bytes == earlier.host.bytes) {
        tensor.buffer = earlier.buffer;
      } else if (tensor.copy_out || earlier.copy_out) {
        raise_usage(program_.describe_argument(tensor.position) + " overlaps argument " +
                    std::to_string(earlier.position) +
                    " in part, and one of them is an output; pass separate arrays, or declare "
                    "both In");
      }
    }
    if (tensor.buffer == buffers) ++buffers;
  }
  buffers_.reserve(buffers);
}

void Arguments::place() {
  for (const Tensor& tensor : tensors_)
    if (tensor.buffer == buffers_.size())
      buffers_.push_back(device_.allocate(tensor.host.bytes, true));
}

void Arguments::copy_in() {
  if (!on_host_ && !tensors_.empty()) place_and_copy();
  for (size_t i = 0; i < values_.size(); ++i) described_[i].data = values_[i];
}

void Arguments::place_and_copy() {
  place();
  const uint64_t begin = now_ns();
  std::vector<bool> is_filled(buffers_.size());
  for (const Tensor& tensor : tensors_) {
    const Buffer& buffer = *buffers_[tensor.buffer];
    values_[tensor.position] = buffer.address;
    if (!tensor.copy_in || is_filled[tensor.buffer]) continue;
    is_filled[tensor.buffer] = true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    device_.copy_in(buffer.address, tensor.host.data, tensor.host.bytes);
    totals_.bytes_in += tensor.host.bytes;
    ++totals_.copies_in;
  }
  totals_.nanoseconds += now_ns() - begin;
}

void Arguments::copy_out() {
  if (on_host_ || tensors_.empty()) return;
  const uint64_t begin = now_ns();
  std::vector<bool> is_done(buffers_.size());
  for (const Tensor& tensor : tensors_) {
    if (!tensor.copy_out || is_done[tensor.buffer]) continue;
    is_done[tensor.buffer] = true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    device_.copy_out(tensor.host.data, buffers_[tensor.buffer]->address, tensor.host.bytes);
    totals_.bytes_out += tensor.host.bytes;
    ++totals_.copies_out;
  }
  totals_.nanoseconds += now_ns() - begin;
}

nb::object Arguments::call_tuple(nb::handle graph) const {
  nb::object call = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(given_.size()) + 1));
  const auto put = [&](size_t slot, nb::object object) {
    PyTuple_SET_ITEM(call.ptr(), static_cast<Py_ssize_t>(slot), object.release().ptr());
  };
  put(0, nb::borrow(graph));
  for (size_t i = 0; i < given_.size(); ++i) put(i + 1, nb::borrow(given_[i]));
  for (const auto& [position, number] : numbers_) {
    PyObject** slot = &PyTuple_GET_ITEM(call.ptr(), static_cast<Py_ssize_t>(position + 1));
    Py_SETREF(*slot, Py_NewRef(number.ptr()));
  }
  for (const Tensor& tensor : tensors_) {
    const std::shared_ptr<Buffer>& buffer = buffers_[tensor.buffer];
    const View* view = device_.views().intern(tensor.host.code, tensor.host.shape.data(),
                                              tensor.host.shape.size());
    DeviceArray made(nb::borrow(device_object_), buffer, view);
    if (tensor.is_read_only) made.set_read_only();
    nb::object array = nb::cast(std::move(made));
    PyObject** slot = &PyTuple_GET_ITEM(call.ptr(), static_cast<Py_ssize_t>(tensor.position + 1));
    Py_SETREF(*slot, array.release().ptr());
  }
  return call;
}

nb::list Arguments::placed_buffers() const {
  nb::list buffers;
  const auto add = [&](size_t position, const Buffer& buffer, bool copy_in, bool copy_out) {
    buffers.append(nb::make_tuple(program_.argument_name(position), buffer.address, buffer.bytes,
                                  copy_in, copy_out));
  };
  for (size_t i = 0; i < given_.size(); ++i) {
    const nb::handle object = given_[i];
    if (Py_TYPE(object.ptr()) != DeviceArray::type) continue;
    add(i, nb::inst_ptr<DeviceArray>(object)->buffer(), true, true);
  }
  if (on_host_) return buffers;
  std::vector<bool> is_done(buffers_.size());
  for (const Tensor& tensor : tensors_) {
    if (is_done[tensor.buffer]) continue;
    is_done[tensor.buffer] = true;
    add(tensor.position, *buffers_[tensor.buffer], tensor.copy_in, tensor.copy_out);
  }
  return buffers;
}

nb::list Arguments::host_arrays() const {
  nb::list arrays;
  if (!on_host_) return arrays;
  for (const Tensor& tensor : tensors_) {
    arrays.append(nb::make_tuple(program_.argument_name(tensor.position),
                                 reinterpret_cast<uint64_t>(tensor.host.data), tensor.host.bytes));
  }
  return arrays;
}

}  // namespace pto::core
