// A working runtime variant with one defect, which the environment variable PTO_BREAK names. The
// conformance kit has to find each defect. It wraps PTO_WORKING_VARIANT of the library
// PTO_WORKING_LIBRARY.
#include <dlfcn.h>

#include <cstring>
#include <vector>

#include "pto/abi/runtime.h"

#define DEFECTS(X)           \
  X(nothing)                 \
  X(loses_an_edge)           \
  X(accepts_a_self_edge)     \
  X(runs_unpublished_work)   \
  X(runs_a_task_twice)       \
  X(forgets_the_first_error) \
  X(ignores_options)         \
  X(knows_every_name)
#include "defect.hpp"

namespace {

// The defect shows at this edge or task of each run. Small graphs do not reach it.
constexpr int kUnluckyEdge = 5000;
constexpr int kUnluckyTask = 100'000;

const pto_runtime_api* working = nullptr;
std::vector<bool> published;  // one flag for each task of the run
int neighbour_edges = 0;
int submits = 0;
pto_error last;

pto_status create(const pto_platform* platform, const pto_option* options, uint32_t count,
                  void** out, pto_error* error) {
  return working->create(platform, options, breaks(Defect::ignores_options) ? 0 : count, out,
                         error);
}

pto_status begin(void* instance, const pto_run* run) {
  neighbour_edges = submits = 0;
  published.clear();
  last = {};
  return working->begin(instance, run);
}

int64_t submit(void* instance, const pto_task* task) {
  if (++submits == kUnluckyTask && breaks(Defect::runs_a_task_twice)) {
    working->publish(instance, working->submit(instance, task));
  }
  const int64_t id = working->submit(instance, task);
  if (id >= 0) published.resize(static_cast<size_t>(id) + 1);
  return id;
}

pto_status publish(void* instance, int64_t task) {
  if (task >= 0 && static_cast<size_t>(task) < published.size()) {
    published[static_cast<size_t>(task)] = true;
  }
  return working->publish(instance, task);
}

pto_status add_edge(void* instance, int64_t from, int64_t to) {
  if (breaks(Defect::accepts_a_self_edge) && from == to) return PTO_OK;
  if (breaks(Defect::loses_an_edge) && from + 1 == to && ++neighbour_edges == kUnluckyEdge) {
    return PTO_OK;
  }
  return working->add_edge(instance, from, to);
}

void orchestration_done(void* instance, int32_t result) {
  if (breaks(Defect::runs_unpublished_work)) {
    for (size_t task = 0; task < published.size(); ++task) {
      if (!published[task]) working->publish(instance, static_cast<int64_t>(task));
    }
  }
  if (breaks(Defect::forgets_the_first_error) && result != 0) {
    last = {PTO_ERROR_ORCHESTRATION, -1, -1, -1, -1, -1, 0, 0, {}, {}, {}, 0, 0};
    last.value = static_cast<uint64_t>(result);
    std::strcpy(last.message, "the orchestration returned an error");
  }
  working->orchestration_done(instance, result);
}

pto_status last_error(void* instance, pto_error* out) {
  if (last.status == PTO_OK) return working->last_error(instance, out);
  if (out != nullptr) *out = last;
  return last.status;
}

}  // namespace

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  static const pto_runtime_api table = [] {
    void* library = dlopen(PTO_WORKING_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void* entry = dlsym(library, PTO_RUNTIME_ENTRY_SYMBOL);
    working = reinterpret_cast<pto_runtime_entry_fn>(entry)(PTO_WORKING_VARIANT);
    pto_runtime_api broken = *working;
    broken.variant = "broken";
    broken.create = create;
    broken.begin = begin;
    broken.submit = submit;
    broken.publish = publish;
    broken.add_edge = add_edge;
    broken.orchestration_done = orchestration_done;
    broken.last_error = last_error;
    return broken;
  }();
  if (breaks(Defect::knows_every_name)) return &table;
  return std::strcmp(variant, table.variant) == 0 ? &table : nullptr;
}
