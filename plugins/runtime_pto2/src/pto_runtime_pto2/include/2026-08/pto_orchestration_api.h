// The interface of tensormap_and_ringbuffer orchestrations of August 2026.
//
//   extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs&) {
//     return PTO2OrchestrationConfig{2};
//   }
//   extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args) {
//     const ChipTensor& in = args.tensor(0).ref();
//     const ChipTensor& out = args.tensor(1).ref();
//     TensorCreateInfo squares(in.shapes, in.ndims);
//     CoreTaskArgs first;
//     first.add_input(in);
//     first.add_output(squares);
//     TaskOutputTensors made = rt_submit_aiv_task(0, first);
//     CoreTaskArgs second;
//     second.add_input(made.get_ref(0));
//     second.add_output(out);
//     rt_submit_aiv_task(1, second);
//   }
//
// Tasks run while the orchestration continues. A submit waits while the rings have no free space. A
// task starts after the tasks that write what it reads. A task that writes does not wait for tasks
// that read the same memory, unless the run has the setting hazards=full. The buffers that a submit
// allocates live until its scope has ended and all tasks that use them have completed.
//
// The first error of any call ends the run with that error. Later calls do nothing.
#ifndef PTO_ORCHESTRATION_API_H
#define PTO_ORCHESTRATION_API_H

// Published sources use these names without including their headers.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/core_type.h"
#include "pto_assert.h"
#include "pto_graph.h"
#include "pto_log.h"
#include "pto_submit.h"
#include "pto_task_args.h"
#include "tensor.h"

struct PTO2OrchestrationConfig {
  int expected_arg_count;
};

namespace pto_orchestration {

inline TaskOutputTensors submit(int32_t kernel_id, int32_t core_type, const CoreTaskArgs& args,
                                Location at) {
  return CoreTaskArgsReader(*current_run, args).submit(kernel_id, core_type, at);
}

}  // namespace pto_orchestration

// --- Tasks --------------------------------------------------------------------------------------

// Submit a kernel to an AIC core. Its arguments are pointers to the ChipTensors, and then the
// scalars.
inline TaskOutputTensors rt_submit_aic_task(int32_t kernel_id, const CoreTaskArgs& args,
                                            const char* file = __builtin_FILE(),
                                            int32_t line = __builtin_LINE()) {
  return pto_orchestration::submit(kernel_id, PTO_CORE_AIC, args, {file, line});
}

// Submit a kernel to an AIV core.
inline TaskOutputTensors rt_submit_aiv_task(int32_t kernel_id, const CoreTaskArgs& args,
                                            const char* file = __builtin_FILE(),
                                            int32_t line = __builtin_LINE()) {
  return pto_orchestration::submit(kernel_id, PTO_CORE_AIV, args, {file, line});
}

// Submit one task that runs on several cores of one cluster at the same time. All kernels receive
// the same arguments.
inline TaskOutputTensors rt_submit_task(const MixedKernels& kernels, const CoreTaskArgs& args,
                                        const char* file = __builtin_FILE(),
                                        int32_t line = __builtin_LINE()) {
  pto_orchestration::Run& run = *pto_orchestration::current_run;
  if (kernels.aic_kernel_id < 0 && kernels.aiv0_kernel_id < 0 && kernels.aiv1_kernel_id < 0) {
    run.fail(PTO2_ERROR_INVALID_ARGS, "MixedKernels names no kernel; set at least one of its ids",
             {file, line});
    return {};
  }
  return CoreTaskArgsReader(run, args).submit(-1, -1, {file, line}, kernels);
}

// Submit a task that runs no kernel. It completes when the tasks that it waits for have completed.
inline TaskOutputTensors rt_submit_dummy_task(const CoreTaskArgs& args,
                                              const char* file = __builtin_FILE(),
                                              int32_t line = __builtin_LINE()) {
  return pto_orchestration::submit(-1, -1, args, {file, line});
}

// Allocate the outputs of `args`, which are not written by a task.
inline TaskOutputTensors alloc_tensors(const CoreTaskArgs& args,
                                       const char* file = __builtin_FILE(),
                                       int32_t line = __builtin_LINE()) {
  return rt_submit_dummy_task(args, file, line);
}
inline TaskOutputTensors alloc_tensors(const TensorCreateInfo infos[], uint32_t count,
                                       const char* file = __builtin_FILE(),
                                       int32_t line = __builtin_LINE()) {
  CoreTaskArgs args;
  for (uint32_t i = 0; i < count; ++i) args.add_output(infos[i]);
  return rt_submit_dummy_task(args, file, line);
}

namespace pto_orchestration {

// A TensorCreateInfo with the position of the call.
struct PlacedInfo {
  PlacedInfo(const TensorCreateInfo& given, const char* in = __builtin_FILE(),
             int32_t at = __builtin_LINE())
      : info(given), file(in), line(at) {}
  const TensorCreateInfo& info;
  const char* file;
  int32_t line;
};

}  // namespace pto_orchestration

template <class... Infos,
          class = std::enable_if_t<(std::is_same_v<std::decay_t<Infos>, TensorCreateInfo> && ...)>>
TaskOutputTensors alloc_tensors(pto_orchestration::PlacedInfo first, const Infos&... others) {
  CoreTaskArgs args;
  args.add_output(first.info, others...);
  return rt_submit_dummy_task(args, first.file, first.line);
}

// --- Graphs -------------------------------------------------------------------------------------

// Submit the tasks that `body(args, config...)` submits, in a scope of their own. See pto_graph.h.
template <class Body, class... Config>
void rt_submit_graph(const pto_orchestration::GraphKey& key, Body body, const GraphTaskArgs& args,
                     const Config&... config) {
  pto_orchestration::submit_graph(key, body, args, config...);
}
template <class Body, class... Config>
void rt_submit_graph(Body body, pto_orchestration::PlacedArgs given, const Config&... config) {
  const pto_orchestration::GraphKey key(pto_orchestration::number_of(body), given.at.file,
                                        given.at.line);
  pto_orchestration::submit_graph(key, body, given.args, config...);
}

// --- Scopes -------------------------------------------------------------------------------------

inline void rt_scope_begin(PTO2ScopeMode mode = PTO2ScopeMode::AUTO,
                           const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) {
  pto_orchestration::current_run->begin_scope(mode, {file, line});
}
inline void rt_scope_end(const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) {
  pto_orchestration::current_run->end_scope({file, line});
}

// A scope that ends with the C++ block in which it is declared.
class PTO2ScopeGuard {
 public:
  explicit PTO2ScopeGuard(PTO2ScopeMode mode = PTO2ScopeMode::AUTO,
                          const char* file = __builtin_FILE(), int32_t line = __builtin_LINE())
      : file_(file), line_(line) {
    rt_scope_begin(mode, file, line);
  }
  PTO2ScopeGuard(const PTO2ScopeGuard&) = delete;
  PTO2ScopeGuard& operator=(const PTO2ScopeGuard&) = delete;
  ~PTO2ScopeGuard() { rt_scope_end(file_, line_); }

 private:
  const char* file_;
  int32_t line_;
};

#define PTO2_JOIN_EXPANDED(left, right) left##right
#define PTO2_JOIN(left, right) PTO2_JOIN_EXPANDED(left, right)
#define PTO2_SCOPE_GUARD(...)                                                       \
  [[maybe_unused]] const PTO2ScopeGuard PTO2_JOIN(pto2_scope_guard_, __COUNTER__) { \
    __VA_ARGS__                                                                     \
  }

// PTO2_SCOPE() { ... } opens a scope for the block. It expands to an `if`, not a loop, so that
// break and continue refer to the surrounding loop. It has an `else`, so that a following `else`
// belongs to an earlier `if`.
#define PTO2_SCOPE(...)                       \
  if (PTO2_SCOPE_GUARD(__VA_ARGS__); false) { \
  } else

// --- Data of tensors ----------------------------------------------------------------------------

namespace pto_orchestration {

// Wait until the orchestration may access an element. Return its address, or null if the run has
// failed.
inline void* wait_for_element(const ChipTensor& tensor, uint32_t count, const uint32_t indices[],
                              size_t bytes, bool for_write, Location at) {
  Run& run = *current_run;
  bool is_inside =
      count == tensor.ndims && tensor.buffer.addr != 0 && bytes >= get_element_size(tensor.dtype);
  for (uint32_t i = 0; i < count && is_inside; ++i) is_inside = indices[i] < tensor.shapes[i];
  if (!is_inside) {
    if (run.has_failed()) return nullptr;
    char text[256];
    std::snprintf(
        text, sizeof text,
        "an access with %u indices of %zu bytes to a tensor with %u dimensions of %u-byte "
        "elements; the indices must lie in its shape, and it must have memory",
        count, bytes, tensor.ndims, static_cast<unsigned>(get_element_size(tensor.dtype)));
    run.fail(PTO2_ERROR_INVALID_ARGS, text, at);
    return nullptr;
  }
  if (run.observer() != nullptr) run.observer()->cannot_record();
  pto_tensor_data memory;
  describe_memory(tensor, memory);
  if (run.calls().wait_for_tensor(run.runtime(), &memory, for_write, at.file, at.line) != 0) {
    return nullptr;
  }
  const uint64_t offset = tensor.compute_flat_offset(indices, count);
  return reinterpret_cast<void*>(
      static_cast<uintptr_t>(tensor.buffer.addr + offset * get_element_size(tensor.dtype)));
}

}  // namespace pto_orchestration

// Wait until the tasks that write the tensor have completed, and return one element. Return 0 if
// the run has failed.
template <class Value = uint64_t>
Value get_tensor_data(const ChipTensor& tensor, uint32_t count, const uint32_t indices[],
                      const char* file = __builtin_FILE(), int32_t line = __builtin_LINE()) {
  Value value{};
  const void* at = pto_orchestration::wait_for_element(tensor, count, indices, sizeof value, false,
                                                       {file, line});
  if (at != nullptr) std::memcpy(&value, at, get_element_size(tensor.dtype));
  return value;
}

// Wait until the tasks that write or read the tensor have completed, and set one element.
template <class Value = uint64_t>
void set_tensor_data(const ChipTensor& tensor, uint32_t count, const uint32_t indices[],
                     Value value, const char* file = __builtin_FILE(),
                     int32_t line = __builtin_LINE()) {
  void* at =
      pto_orchestration::wait_for_element(tensor, count, indices, sizeof value, true, {file, line});
  if (at != nullptr) std::memcpy(at, &value, get_element_size(tensor.dtype));
}

// --- The run ------------------------------------------------------------------------------------

// Return the number of clusters: one AIC core and two AIV cores each.
inline int32_t rt_available_cluster_count() {
  const pto_orchestration::Run& run = *pto_orchestration::current_run;
  return run.calls().core_count(run.runtime(), PTO_CORE_AIC);
}
// Return the number of AIV cores.
inline int32_t rt_available_aiv_count() {
  const pto_orchestration::Run& run = *pto_orchestration::current_run;
  return run.calls().core_count(run.runtime(), PTO_CORE_AIV);
}
// Return whether the run has failed.
inline bool rt_is_fatal() {
  return pto_orchestration::current_run->has_failed();
}
// Does nothing: a return from the entry states that no submit follows.
inline void rt_orchestration_done() {}

namespace pto_orchestration {

__attribute__((format(printf, 3, 4))) inline void report_fatal(Location at, int32_t code,
                                                               const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  current_run->fail(code, text, at);
}

}  // namespace pto_orchestration

// rt_report_fatal(code, format, ...) ends the run with one of the codes PTO2_ERROR_*.
#define rt_report_fatal(code, ...) \
  pto_orchestration::report_fatal({__FILE__, __LINE__}, code, __VA_ARGS__)

// Mark a part of the orchestration in the trace of the run, under a name that is copied. Ranges
// nest. Without a trace these calls do nothing.
inline void pto_range_begin(const char* name) {
  const pto_orchestration::Run& run = *pto_orchestration::current_run;
  if (run.observer() != nullptr) run.observer()->cannot_record();
  run.calls().range_begin(run.runtime(), name);
}
inline void pto_range_end() {
  const pto_orchestration::Run& run = *pto_orchestration::current_run;
  run.calls().range_end(run.runtime());
}

#endif
