// Kernels that are Python functions: called by a backend's thread, with NumPy views of device
// memory.

#include <cstring>

#include "device.hpp"
#include "errors.hpp"
#include "graph.hpp"
#include "kernel_table.hpp"
#include "run.hpp"

namespace pto::core {
namespace {

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// The Python state of a backend's thread, kept between kernels: making one costs more than a
// kernel.
class ThreadState {
 public:
  ThreadState() {
    if (PyGILState_GetThisThreadState()) return;  // a thread that Python made
    state_ = PyGILState_Ensure();
    saved_ = PyEval_SaveThread();
  }
  ~ThreadState() {
    if (!saved_ || is_finalizing()) return;
    PyEval_RestoreThread(saved_);
    PyGILState_Release(state_);
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

 private:
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
  PyThreadState* saved_ = nullptr;
};

// The objects of one call; slot 0 is left free for the callee, as vectorcall likes it.
class CallArguments {
 public:
  explicit CallArguments(size_t count) : count_(count) {}
  ~CallArguments() {
    for (size_t i = 1; i <= count_; ++i) Py_XDECREF(objects_[i]);
  }
  CallArguments(const CallArguments&) = delete;
  CallArguments& operator=(const CallArguments&) = delete;

  bool fill(const CallSignature& signature, const uint64_t* values) {
    for (size_t i = 0; i < count_; ++i) {
      const ArgumentSpec spec = signature[i];
      objects_[i + 1] = is_scalar(spec) ? number_of(values[i], static_cast<ScalarKind>(spec))
                                        : reinterpret_cast<const View*>(spec)->array_at(values[i]);
      if (!objects_[i + 1]) return false;
    }
    return true;
  }

  PyObject* call(nb::handle function) {
    return PyObject_Vectorcall(function.ptr(), objects_ + 1,
                               count_ | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  }

 private:
  size_t count_;
  PyObject* objects_[PTO_MAX_KERNEL_ARGS + 1] = {};
};

// A Python orchestration says the signature in a last, hidden argument; a C++ one cannot, so there
// the kernel's declared one holds. Null, and an exception set, when there is none that fits.
const CallSignature* signature_of(const LoadedKernel& kernel, const pto_payload* payload,
                                  const uint64_t* values) {
  const Run* run = kernel.device->current_run();
  if (run && run->graph()) return run->graph()->signature(values[payload->num_args - 1]);
  if (!kernel.is_declared || kernel.declared.size() != payload->num_args) {
    PyErr_Format(PyExc_TypeError, "the orchestration gave %u arguments, the signature declares %zu",
                 payload->num_args, kernel.declared.size());
    return nullptr;
  }
  return &kernel.declared;
}

bool call(const LoadedKernel& kernel, const pto_payload* payload) {
  const auto* values = reinterpret_cast<const uint64_t*>(payload + 1);
  const CallSignature* signature = signature_of(kernel, payload, values);
  if (!signature) return false;
  CallArguments arguments(signature->size());
  if (!arguments.fill(*signature, values)) return false;
  PyObject* result = arguments.call(kernel.function);
  Py_XDECREF(result);
  return result != nullptr;
}

// The frames of a failed kernel hold views of memory that goes away with the run.
void release_frames(const nb::object& exception) {
  nb::object module = nb::steal(PyImport_ImportModule("pto_core.errors.frames"));
  nb::object done =
      module.is_valid()
          ? nb::steal(PyObject_CallMethod(module.ptr(), "release_frames", "O", exception.ptr()))
          : nb::object();
  if (!done.is_valid()) PyErr_Clear();
}

void describe_failure(const LoadedKernel& kernel, const pto_payload* payload, uint32_t core,
                      const nb::object& exception, pto_error* error) {
  nb::object text = nb::steal(PyObject_Str(exception.ptr()));
  const char* words = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (!words) PyErr_Clear();
  *error = make_error(PTO_ERROR_KERNEL, "kernel '" + kernel.name + "' raised " +
                                            type_text(exception) + ": " + (words ? words : "") +
                                            " (task " + std::to_string(payload->task) +
                                            " on core " + std::to_string(core) + ")");
  error->func_id = payload->func_id;
  error->task = static_cast<int64_t>(payload->task);
  error->core = static_cast<int32_t>(core);
}

}  // namespace

int32_t call_python_kernel(void* context, const pto_payload* payload, uint32_t core,
                           pto_error* error) {
  static thread_local ThreadState thread_state;
  const PyGILState_STATE state = PyGILState_Ensure();
  const auto& kernel = *static_cast<const LoadedKernel*>(context);
  const bool succeeded = call(kernel, payload);
  if (!succeeded) {
    nb::object exception = take_exception();
    release_frames(exception);
    describe_failure(kernel, payload, core, exception, error);
    // Looked up again: while the kernel ran, a run that lost its device may have ended.
    if (Run* run = kernel.device->current_run()) run->keep_failure(payload->task, exception);
  }
  PyGILState_Release(state);
  return succeeded ? 0 : 1;
}

}  // namespace pto::core
