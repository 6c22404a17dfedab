// TaskArgs: the arguments of one task, for the program that submits it. TaskArgsView: the same
// arguments, for the code that runs the task.
//
// A TaskArgs stores its tensors and scalars in the form of the blob that is sent, so a submit only
// copies bytes. Tensors precede scalars. Use with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "arguments/blob.hpp"
#include "arguments/continuous_tensor.hpp"
#include "engine/interface.hpp"
#include "scalars.hpp"

namespace pto::worker {

// The kinds of the arguments of a @task are its last scalars, sixteen in each.
constexpr size_t kKindsPerScalar = 16;

// Return the number of scalars for the kinds of so many arguments.
constexpr size_t kind_scalars(size_t arguments) {
  return (arguments + kKindsPerScalar - 1) / kKindsPerScalar;
}

// The data of a tensor that is not in the blob.
struct TensorNote {
  ContinuousTensor* tensor;  // an owned reference
  Tag tag;
};

struct TaskArgs {
  static constexpr uint32_t kInlineTensors = 4;
  static constexpr uint32_t kInlineScalars = 4;
  static constexpr uint32_t kInlineBytes = blob_bytes(kInlineTensors, kInlineScalars);

  PyObject_HEAD std::byte* blob;  // inline_blob, or memory of PyMem
  TensorNote* notes;              // inline_notes, or memory of PyMem
  PyObject* producers;  // list of the handles passed to add_dep(), or null; a submit removes the
                        // list
  uint32_t tensor_count;
  uint32_t scalar_count;
  uint32_t blob_capacity;    // size in bytes
  uint32_t note_capacity;    // number of tensors
  bool has_kinds;            // see PTO_FRAME_HAS_KINDS
  std::string scalar_kinds;  // the core::ScalarKind of each scalar
  TensorNote inline_notes[kInlineTensors];
  alignas(8) std::byte inline_blob[kInlineBytes];

  std::span<pto_tensor> tensors() const {
    return {reinterpret_cast<pto_tensor*>(blob + kBlobHeadBytes), tensor_count};
  }
  std::span<uint64_t> scalars() const {
    return {reinterpret_cast<uint64_t*>(blob + blob_bytes(tensor_count, 0)), scalar_count};
  }
  // Return a scalar with the type of the number that was added.
  core::ScalarValue scalar(size_t index) const {
    return {scalars()[index], static_cast<core::ScalarKind>(scalar_kinds[index])};
  }
  // Called by a submit: update the addresses of tensors that had no memory when they were added.
  void take_addresses();
  // Return the blob with its counts.
  std::span<const std::byte> bytes();
  // Set the address of a tensor that was submitted as OUTPUT without an address, also in its
  // ContinuousTensor.
  void set_address(uint32_t index, uint64_t address, Origin origin);
};

extern PyTypeObject* task_args_type;

inline TaskArgs* task_args_of(PyObject* object) {
  const bool is_exact = Py_TYPE(object) == task_args_type;
  return is_exact || PyObject_TypeCheck(object, task_args_type)
             ? reinterpret_cast<TaskArgs*>(object)
             : nullptr;
}

// A view points into a blob of another owner until detach() copies the blob.
struct TaskArgsView {
  PyObject_HEAD Blob blob;
  PyObject* source;   // the TaskArgs that keeps the memory alive; null in a child
  PyObject* tensors;  // tuple of ContinuousTensors, created on demand; may be null
  std::byte* copy;    // copy of the blob, if this view owns one; may be null
  bool has_kinds;     // see PTO_FRAME_HAS_KINDS

  void point_at(const Blob& to, bool states_kinds);
  // Copy the blob, because its memory is about to be freed while the view is still referenced.
  // Return false, with the exception set, if memory is exhausted.
  bool detach();
};

extern PyTypeObject* task_args_view_type;

// Return a new reference to an empty view, or to a view of the present content of `args`. Throws
// python_error.
TaskArgsView* make_view();
TaskArgsView* make_view(TaskArgs* args);

void bind_task_args(nb::module_& module);
void bind_task_args_view(nb::module_& module);

}  // namespace pto::worker
