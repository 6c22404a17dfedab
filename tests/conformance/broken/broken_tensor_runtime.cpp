// A working runtime that derives edges, with one defect, which the environment variable PTO_BREAK
// names. The conformance kit has to find each defect. It wraps PTO_WORKING_VARIANT of
// PTO_WORKING_LIBRARY.
#include <dlfcn.h>

#include <cstring>
#include <vector>

#include "pto/abi/runtime.h"

#define DEFECTS(X)             \
  X(nothing)                   \
  X(loses_an_edge)             \
  X(keeps_scopes_open)         \
  X(gives_overlapping_buffers) \
  X(proves_no_deadlock)        \
  X(ignores_clusters)
#include "defect.hpp"

namespace {

// the defect affects each fifth tensor that is only read
constexpr int kUnluckyReads = 5;

const pto_runtime_api* working = nullptr;
int reads = 0;
uint64_t last_address = 0;

int64_t submit_tensors(void* instance, pto_tensor_task* task) {
  pto_tensor_task given = *task;
  std::vector<pto_param> params(task->params, task->params + task->num_params);
  pto_tensor_data* allocated = nullptr;
  for (pto_param& param : params) {
    if (param.tag == PTO_TAG_INPUT && ++reads % kUnluckyReads == 0 &&
        breaks(Defect::loses_an_edge)) {
      param.tag = PTO_TAG_NO_DEP;
    }
    if (param.tag == PTO_TAG_OUTPUT && param.value.tensor->buffer.addr == 0) {
      allocated = param.value.tensor;
    }
  }
  given.params = params.data();
  if (breaks(Defect::ignores_clusters)) given.clusters = nullptr;
  const int64_t id = working->submit_tensors(instance, &given);
  if (breaks(Defect::gives_overlapping_buffers) && allocated != nullptr) {
    if (last_address != 0) allocated->buffer.addr = last_address;
    last_address = allocated->buffer.addr;
  }
  return id;
}

pto_status scope_begin(void* instance, const char* file, int32_t line) {
  return breaks(Defect::keeps_scopes_open) ? PTO_OK : working->scope_begin(instance, file, line);
}

pto_status scope_end(void* instance) {
  return breaks(Defect::keeps_scopes_open) ? PTO_OK : working->scope_end(instance);
}

pto_status last_error(void* instance, pto_error* out) {
  const pto_status status = working->last_error(instance, out);
  if (!breaks(Defect::proves_no_deadlock) || status != PTO_ERROR_DEADLOCK) return status;
  if (out != nullptr) out->status = PTO_ERROR_ABORTED;
  return PTO_ERROR_ABORTED;
}

}  // namespace

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  static const pto_runtime_api table = [] {
    void* library = dlopen(PTO_WORKING_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void* entry = dlsym(library, PTO_RUNTIME_ENTRY_SYMBOL);
    working = reinterpret_cast<pto_runtime_entry_fn>(entry)(PTO_WORKING_VARIANT);
    pto_runtime_api broken = *working;
    broken.variant = "broken";
    broken.submit_tensors = submit_tensors;
    broken.scope_begin = scope_begin;
    broken.scope_end = scope_end;
    broken.last_error = last_error;
    return broken;
  }();
  return std::strcmp(variant, table.variant) == 0 ? &table : nullptr;
}
