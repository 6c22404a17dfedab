// TaskArgs: the arguments of one task while they are put together, and TaskArgsView: the same as
// whoever runs the task sees them.
//
// A TaskArgs keeps its tensors and scalars as the blob that will travel, so that a submit copies
// bytes. Tensors come before scalars. Used with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "arguments/blob.hpp"
#include "arguments/continuous_tensor.hpp"
#include "engine/interface.hpp"

namespace pto::hierarchy {

// What is known of a tensor beside its bytes in the blob.
struct TensorNote {
  ContinuousTensor* tensor;  // a reference of its own
  Tag tag;
};

struct TaskArgs {
  static constexpr uint32_t kInlineTensors = 4;
  static constexpr uint32_t kInlineScalars = 4;
  static constexpr uint32_t kInlineBytes = blob_bytes(kInlineTensors, kInlineScalars);

  PyObject_HEAD std::byte* blob;  // inline_blob, or memory of PyMem
  TensorNote* notes;              // inline_notes, or memory of PyMem
  PyObject* producers;            // list of what add_dep() was given, or null; the submit takes it
  uint32_t tensor_count;
  uint32_t scalar_count;
  uint32_t blob_capacity;  // bytes
  uint32_t note_capacity;  // tensors
  TensorNote inline_notes[kInlineTensors];
  alignas(8) std::byte inline_blob[kInlineBytes];

  std::span<pto_tensor> tensors() const {
    return {reinterpret_cast<pto_tensor*>(blob + kBlobHeadBytes), tensor_count};
  }
  std::span<uint64_t> scalars() const {
    return {reinterpret_cast<uint64_t*>(blob + blob_bytes(tensor_count, 0)), scalar_count};
  }
  // For a submit: tensors that were added before they had memory get the address that their
  // ContinuousTensors have learnt since.
  void take_addresses();
  // The blob with its counts.
  std::span<const std::byte> bytes();
  // Of a tensor that was submitted as OUTPUT without an address; its ContinuousTensor learns it.
  void set_address(uint32_t index, uint64_t address, Origin origin);
};

extern PyTypeObject* task_args_type;

inline TaskArgs* task_args_of(PyObject* object) {
  return Py_TYPE(object) == task_args_type ? reinterpret_cast<TaskArgs*>(object) : nullptr;
}

// Points into somebody's blob until detach().
struct TaskArgsView {
  PyObject_HEAD Blob blob;
  PyObject* source;   // the TaskArgs whose owners keep the memory; null in a child
  PyObject* tensors;  // tuple of ContinuousTensors, made when asked for; may be null
  std::byte* copy;    // of the blob, where this view keeps it; may be null

  void point_at(const Blob& to);
  // Before the blob goes while somebody may still use the view. False: no memory, exception set.
  bool detach();
};

extern PyTypeObject* task_args_view_type;

// A new reference to a view of nothing, or of what `args` holds now. Throws python_error.
TaskArgsView* make_view();
TaskArgsView* make_view(TaskArgs* args);

void bind_task_args(nb::module_& module);
void bind_task_args_view(nb::module_& module);

}  // namespace pto::hierarchy
