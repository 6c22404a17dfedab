// The variant that the check of a card runs. abi/probe.h describes its graph.
#include <cstring>

#include "abi/probe.h"
#include "pto/abi/payload.h"
#include "pto/engine/core_mask.hpp"
#include "pto/engine/runtime_table.hpp"

namespace pto::a2a3 {
namespace {

using namespace engine;

constexpr uint32_t kArguments = 3;

class Probe {
 public:
  struct Options {
    pto_status read(const pto_option* options, uint32_t count, pto_error* error) {
      if (count == 0) return PTO_OK;
      return report(error, PTO_ERROR_USAGE, PTO_A2A3_PROBE_VARIANT " has no option \"",
                    options[0].key, "\"; pass none");
    }
  };

  static const char* variant_name() { return PTO_A2A3_PROBE_VARIANT; }

  Probe(const pto_platform* platform, const Options&) : context_(platform) {}

  Shortage create() { return {}; }
  void destroy() {}

  pto_status begin(const pto_run& run);
  pto_status import_graph(const void* image, size_t bytes);
  pto_status orchestrate() { return refuse(); }
  void orchestration_done(int32_t) {}
  pto_status add_edge(int64_t, int64_t) { return refuse(); }

  // Schedules on thread 0 only.
  int32_t step(uint32_t thread);
  int32_t stalled();
  pto_status finalise() { return context_.latch.status(); }
  void end() { context_.latch.clear(); }
  void abort(const pto_error* cause) { context_.abort(cause, finished_); }

  const pto_error* last_error() { return context_.latch.error(); }
  uint32_t statistics(pto_statistic*, uint32_t) const { return 0; }
  size_t explain(char*, size_t) const { return 0; }
  Context& context() { return context_; }

 private:
  pto_status refuse() {
    return context_.fail({PTO_ERROR_UNSUPPORTED},
                         "the variant " PTO_A2A3_PROBE_VARIANT " only runs the check of a card");
  }
  void collect(uint32_t thread);
  bool dispatch(uint32_t thread);

  Context context_;
  pto_a2a3_probe graph_{};
  pto_kernel_entry kernel_{};
  bool is_busy_ = false;
  int64_t finished_ = 0;
};

pto_status Probe::begin(const pto_run& run) {
  context_.latch.clear();
  graph_ = {};
  kernel_ = {};
  if (run.num_kernels > 0) kernel_ = run.kernels[0];
  is_busy_ = false;
  finished_ = 0;
  return PTO_OK;
}

pto_status Probe::import_graph(const void* image, size_t bytes) {
  if (bytes == sizeof graph_) std::memcpy(&graph_, image, sizeof graph_);
  if (graph_.magic == PTO_A2A3_PROBE_MAGIC) return PTO_OK;
  return context_.fail({PTO_ERROR_USAGE}, "the ", uint64_t{bytes}, " bytes are no graph of ",
                       variant_name());
}

int32_t Probe::step(uint32_t thread) {
  if (thread != 0) return PTO_STEP_DONE;
  collect(thread);
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  if (finished_ == graph_.tasks) return PTO_STEP_DONE;
  return !is_busy_ && dispatch(thread) ? PTO_STEP_PROGRESS : PTO_STEP_IDLE;
}

void Probe::collect(uint32_t thread) {
  const pto_platform* platform = context_.platform;
  pto_poll_result result;
  platform->poll(platform->self, thread, &result);
  if (empty(result.done)) return;
  is_busy_ = false;
  ++finished_;
  if (empty(result.faulted)) return;
  pto_error error;
  std::memset(&error, 0, sizeof error);
  platform->fault(platform->self, take_first(result.faulted), &error);
  context_.latch.latch(error);
}

bool Probe::dispatch(uint32_t thread) {
  struct {
    pto_payload head;
    uint64_t arguments[kArguments];
  } payload = {};
  const pto_platform* platform = context_.platform;
  const pto_topology& topology = *platform->topology;
  payload.head.kernel = kernel_.address;
  payload.head.task = static_cast<uint64_t>(finished_);
  payload.head.func_id = kernel_.func_id;
  payload.head.num_args = kArguments;
  payload.arguments[0] = graph_.in;
  payload.arguments[1] = graph_.out;
  payload.arguments[2] = graph_.count;
  for (pto_core_mask own = topology.thread_cores[thread]; !empty(own);) {
    const uint32_t core = take_first(own);
    if (topology.core_type[core] != PTO_CORE_AIV) continue;
    const pto_dispatch batch = {core, sizeof payload, 0, &payload.head};
    platform->dispatch(platform->self, thread, &batch, 1);
    is_busy_ = true;
    return true;
  }
  return false;
}

int32_t Probe::stalled() {
  context_.fail({PTO_ERROR_INTERNAL}, "the device reported a stall after ", finished_, " of ",
                graph_.tasks, " tasks");
  return PTO_STEP_ERROR;
}

pto_runtime_api make_api() {
  pto_runtime_api api = runtime_table<Probe>();
  api.capabilities = PTO_RUNTIME_HOST_ORCHESTRATION;
  api.max_args = kArguments;
  api.import_graph = [](void* runtime, const void* image, size_t bytes) {
    return instance_of<Probe>(runtime).import_graph(image, bytes);
  };
  return api;
}

const pto_runtime_api api = make_api();

}  // namespace
}  // namespace pto::a2a3

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  return std::strcmp(variant, PTO_A2A3_PROBE_VARIANT) == 0 ? &pto::a2a3::api : nullptr;
}
