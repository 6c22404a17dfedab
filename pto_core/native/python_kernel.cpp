// Python functions as kernels: a backend thread calls them with NumPy views of device memory.

#include <cstring>
#include <utility>

#include "device.hpp"
#include "device_array.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "graph.hpp"
#include "kernel_table.hpp"
#include "pto/abi/dtype.h"
#include "run.hpp"
#include "task_watch.hpp"
#include "user_call.hpp"

namespace pto::core {
namespace {

// The Python thread state of a backend thread. It is kept between kernels, because creating a
// thread state takes longer than a kernel.
class ThreadState {
 public:
  ThreadState() {
    if (PyGILState_GetThisThreadState()) return;  // the thread already has a Python thread state
    state_ = or_park([] { return PyGILState_Ensure(); });
    saved_ = PyEval_SaveThread();
  }
  ~ThreadState() {
    if (!saved_ || is_finalizing()) return;
    or_park([this] { PyEval_RestoreThread(saved_); });
    PyGILState_Release(state_);
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

 private:
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
  PyThreadState* saved_ = nullptr;
};

// The argument objects of one call. Slot 0 stays free for the callee, as vectorcall permits.
class CallArguments {
 public:
  explicit CallArguments(const pto_payload* payload)
      : payload_(payload), count_(payload->num_args) {}
  ~CallArguments() {
    for (size_t i = 1; i <= count_; ++i) Py_XDECREF(objects_[i]);
  }
  CallArguments(const CallArguments&) = delete;
  CallArguments& operator=(const CallArguments&) = delete;

  // Create the argument objects. `signature` describes the arguments that TensorData does not
  // describe, without the block numbers that a submit appends. On failure return false, with an
  // exception set.
  bool fill(const CallSignature* signature) {
    const auto* values = reinterpret_cast<const uint64_t*>(payload_ + 1);
    for (size_t i = 0; i < count_; ++i) {
      const bool is_said = signature && i < signature->size();
      objects_[i + 1] = is_tensor(i)
                            ? array_of_tensor(values[i])
                            : object_of(values[i], is_said ? (*signature)[i] : kTensorSpec);
      if (!objects_[i + 1]) return false;
    }
    return true;
  }

  // Called after the kernel has returned. If the program still holds an array over device memory,
  // keep that memory mapped.
  void pin_kept(const LoadedKernel& kernel) {
    for (size_t i = 0; i < count_; ++i) {
      PyObject* object = objects_[i + 1];
      if (object && PyArray_Check(object) && Py_REFCNT(object) > 1) pin(kernel, i, object);
    }
  }

  // Report the arrays as the annotations of the kernel declare them. An array without a declared
  // direction counts as read if it is read-only, otherwise as written.
  void report(const TaskSignature& declared, const pto_measurement& measurement,
              uint32_t core) const {
    for (size_t i = 0; i < count_; ++i) {
      if (!PyArray_Check(objects_[i + 1])) continue;
      auto* array = reinterpret_cast<PyArrayObject*>(objects_[i + 1]);
      const auto begin = reinterpret_cast<uint64_t>(PyArray_DATA(array));
      const uint64_t end = begin + bytes_of(array);
      const Tag direction =
          i < declared.parameters.size() ? declared.parameters[i].direction : declared.rest;
      const bool reads =
          direction == Tag::kInput || direction == Tag::kNoDep || !PyArray_ISWRITEABLE(array);
      const auto task = static_cast<int64_t>(payload_->task);
      const pto_measured_range ranges[] = {
          {task, begin, end, reads ? PTO_MEASURED_READ : PTO_MEASURED_WRITE, core},
          {task, begin, end, PTO_MEASURED_BUFFER, core}};
      measurement.add(measurement.context, ranges, 2);
    }
  }

  PyObject* call(nb::handle function) {
    return or_park([&] {
      return PyObject_Vectorcall(function.ptr(), objects_ + 1,
                                 count_ | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    });
  }

 private:
  // Return the bytes from the first to the last element. The strides of an argument are positive.
  static uint64_t bytes_of(PyArrayObject* array) {
    if (PyArray_SIZE(array) == 0) return 0;
    npy_intp last = PyArray_ITEMSIZE(array);
    for (int dim = 0; dim < PyArray_NDIM(array); ++dim)
      last += (PyArray_DIM(array, dim) - 1) * PyArray_STRIDE(array, dim);
    return static_cast<uint64_t>(last);
  }

  bool is_tensor(size_t position) const { return (payload_->relative_args >> position & 1) != 0; }

  static PyObject* array_of_tensor(uint64_t address) {
    const auto* data = reinterpret_cast<const pto_tensor_data*>(address);
    if (data->ndims <= PTO_MAX_DIMS && data->dtype < PTO_DTYPE_COUNT) return array_of(*data);
    PyErr_Format(
        PyExc_TypeError,
        "the orchestration passed a tensor with %u dimensions and data type %u, which is not valid",
        data->ndims, data->dtype);
    return nullptr;
  }

  static PyObject* object_of(uint64_t value, ArgumentSpec spec) {
    if (spec == kTensorSpec) return number_of(value, ScalarKind::kSigned);
    if (is_scalar(spec)) return number_of(value, static_cast<ScalarKind>(spec));
    return view_of(spec)->array_at(value, !is_read_only(spec));
  }

  static void pin(const LoadedKernel& kernel, size_t position, PyObject* object) {
    nb::object pin = kernel.device->pin_memory();
    auto* array = reinterpret_cast<PyArrayObject*>(object);
    if (PyArray_BASE(array) == nullptr) PyArray_SetBaseObject(array, pin.release().ptr());
    if (kernel.was_kept) return;
    kernel.was_kept = true;
    const int failed = PyErr_WarnFormat(
        PyExc_RuntimeWarning, 1,
        "kernel '%s' kept its argument %zu after it returned; the memory of this array is "
        "reused for other data, so keep a copy of it",
        kernel.name.c_str(), position);
    if (failed) PyErr_WriteUnraisable(kernel.function.ptr());
  }

  const pto_payload* payload_;
  size_t count_;
  PyObject* objects_[PTO_MAX_KERNEL_ARGS + 1] = {};
};

// Find the description of the arguments. If tasks have tensors, TensorData describes the arrays,
// and the signature only contains the kinds of the scalars. Otherwise a Python orchestration passes
// the description of all arguments in the cookie. A C++ orchestration cannot do that, so the
// declared signature of the kernel is used. Return false, with an exception set, if the kernel has
// no signature.
bool find_signature(const LoadedKernel& kernel, const pto_payload* payload,
                    const CallSignature** found) {
  const Run* run = kernel.device->current_run();
  *found = payload->cookie != 0 && run && run->graph() ? run->graph()->signature(payload->cookie)
                                                       : nullptr;
  if (*found) return true;
  if (kernel.device->has(PTO_RUNTIME_TENSORS)) {
    *found = run && run->graph() ? nullptr : &kernel.scalars;
    return true;
  }
  *found = &kernel.declared;
  if (kernel.is_declared && kernel.declared.size() == payload->num_args) return true;
  PyErr_Format(PyExc_TypeError,
               "the orchestration passed %u arguments, but the signature declares %zu",
               payload->num_args, kernel.declared.size());
  return false;
}

// Clear the frames of a failed kernel, because they contain views of memory that the end of the run
// frees.
void release_frames(const nb::object& exception) {
  nb::object module = nb::steal(PyImport_ImportModule("pto_core.errors.frames"));
  nb::object done =
      module.is_valid()
          ? nb::steal(PyObject_CallMethod(module.ptr(), "release_frames", "O", exception.ptr()))
          : nb::object();
  if (!done.is_valid()) PyErr_Clear();
}

// Set an exception if the kernel returned a value, because the value would be lost.
void refuse_returned(const LoadedKernel& kernel, PyObject* result) {
  or_park([&] {
    nb::object module = nb::steal(PyImport_ImportModule("pto_core.kernels.lost_results"));
    if (!module.is_valid()) return;
    Py_XDECREF(PyObject_CallMethod(module.ptr(), "refuse_returned", "ssO", "kernel",
                                   kernel.name.c_str(), result));
  });
}

// Set an exception because the kernel has also returned in a forked process.
void refuse_copy(const LoadedKernel& kernel) {
  or_park([&] {
    nb::object module = nb::steal(PyImport_ImportModule("pto_core.errors.plain_functions"));
    if (!module.is_valid()) return;
    Py_XDECREF(
        PyObject_CallMethod(module.ptr(), "refuse_copy", "ss", "kernel", kernel.name.c_str()));
  });
}

// Call the kernel. Return its exception, or nothing if it succeeded.
nb::object call(const LoadedKernel& kernel, const pto_payload* payload, uint32_t core) {
  const CallSignature* signature = nullptr;
  if (!find_signature(kernel, payload, &signature)) return take_exception();
  CallArguments arguments(payload);
  if (!arguments.fill(signature)) return take_exception();
  nb::object exception;
  UserCall user_call;
  PyObject* result = arguments.call(kernel.function);
  if (user_call.has_returned_twice() && result)
    refuse_copy(kernel);
  else if (result && result != Py_None)
    refuse_returned(kernel, result);
  Py_XDECREF(result);
  if (PyErr_Occurred()) {
    exception = take_exception();
    or_park([&] { release_frames(exception); });
  }
  // If tasks have tensors, the access log has the arrays already, but not the bytes in them.
  const Run* run = kernel.device->current_run();
  if (run && run->measurement() &&
      (Measured::keeps_bytes(*run->measurement()) || !kernel.device->has(PTO_RUNTIME_TENSORS)))
    arguments.report(kernel.task, *run->measurement(), core);
  arguments.pin_kept(kernel);
  return exception;
}

// The kernel is still running, so the run exists.
std::string core_text(const LoadedKernel& kernel, uint32_t core) {
  const Run* run = kernel.device->current_run();
  const auto number = static_cast<int32_t>(core);
  return run ? run->core_name(number) : "core " + std::to_string(core);
}

void describe_failure(const LoadedKernel& kernel, const pto_payload* payload, uint32_t core,
                      const nb::object& exception, pto_error* error) {
  nb::object text = nb::steal(or_park([&] { return PyObject_Str(exception.ptr()); }));
  std::string message;
  if (!text.is_valid() || !encode(text.ptr(), &message)) PyErr_Clear();
  *error = make_error(PTO_ERROR_KERNEL,
                      "kernel '" + kernel.name + "' raised " + type_text(exception) + ": " +
                          message + " (func_id " + std::to_string(payload->func_id) + ", " +
                          task_name(payload->task, kernel.device->runtime_api()->capabilities) +
                          ", on " + core_text(kernel, core) + ")");
  error->func_id = payload->func_id;
  error->task = static_cast<int64_t>(payload->task);
  error->core = static_cast<int32_t>(core);
}

thread_local bool in_kernel = false;

}  // namespace

bool in_python_kernel() {
  return in_kernel;
}

int32_t call_python_kernel(void* context, const pto_payload* payload, uint32_t core,
                           pto_error* error) {
  static thread_local ThreadState thread_state;
  const PyGILState_STATE state = or_park([] { return PyGILState_Ensure(); });
  const auto& kernel = *static_cast<const LoadedKernel*>(context);
  const bool nested = std::exchange(in_kernel, true);
  nb::object exception = call(kernel, payload, core);
  in_kernel = nested;
  const bool succeeded = !exception.is_valid();
  if (!succeeded) {
    describe_failure(kernel, payload, core, exception, error);
    // Get the run again: if its device was lost, the run may have ended while the kernel ran.
    if (Run* run = kernel.device->current_run()) run->keep_failure(payload->task, exception);
    exception.reset();
  }
  PyGILState_Release(state);
  return succeeded ? 0 : 1;
}

}  // namespace pto::core
