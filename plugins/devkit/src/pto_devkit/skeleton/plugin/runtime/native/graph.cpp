#include "graph.hpp"

namespace pto_runtime_template {

bool Graph::create() {
  pto::engine::Memory& memory = context_.memory;
  return kernels_.create(memory) && tasks_.create(memory) && edges_.create(memory) &&
         payloads_.create(memory);
}

void Graph::destroy() {
  payloads_.destroy();
  edges_.destroy();
  tasks_.destroy();
  kernels_.destroy();
}

pto_status Graph::begin(const pto_run& run) {
  kernels_.clear();
  payloads_.restart();
  task_count_ = edge_count_ = 0;
  for (uint32_t i = 0; i < run.num_kernels; ++i) {
    if (kernels_.add(run.kernels[i], context_.latch) != PTO_OK) break;
  }
  return context_.latch.status();
}

int64_t Graph::add_task(const pto_task& submitted) {
  if (context_.latch.is_set()) return -1;
  const int32_t core_type =
      submitted.core_type == -1 ? kernels_.core_type(submitted.func_id) : submitted.core_type;
  const uint64_t kernel =
      submitted.kernel != 0 ? submitted.kernel : kernels_.address(submitted.func_id);
  if (check(submitted, core_type, kernel) != PTO_OK) return -1;
  const int64_t id = task_count_;
  const uint32_t length =
      static_cast<uint32_t>(sizeof(pto_payload) + submitted.num_args * sizeof(uint64_t));
  auto* payload = static_cast<pto_payload*>(payloads_.allocate(length));
  if (payload == nullptr || !tasks_.grow_to(static_cast<uint64_t>(id))) {
    return out_of_memory("another task"), -1;
  }
  *payload = {
      kernel, static_cast<uint64_t>(id), submitted.cookie, submitted.func_id, submitted.num_args,
      0};
  uint64_t* args = pto_payload_args(payload);
  for (uint32_t i = 0; i < submitted.num_args; ++i) args[i] = submitted.args[i];
  task(id) = {payload, length, core_type, 0, kNone, kNone, kNone, false};
  task_count_ = id + 1;
  pto_trace(context_.platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_SUBMIT, static_cast<uint64_t>(id),
            static_cast<uint64_t>(submitted.func_id));
  return id;
}

pto_status Graph::check(const pto_task& submitted, int32_t core_type, uint64_t kernel) {
  const int32_t func_id = submitted.func_id;
  if (submitted.num_args > PTO_MAX_KERNEL_ARGS) {
    return context_.fail(
        {PTO_ERROR_CAPACITY, -1, -1, func_id, submitted.num_args, PTO_MAX_KERNEL_ARGS},
        "a task has ", submitted.num_args, " arguments; use at most ", PTO_MAX_KERNEL_ARGS);
  }
  if (kernel == 0) {
    return context_.fail({PTO_ERROR_USAGE, -1, -1, func_id}, "no kernel has the function id ",
                         func_id, "; add it to the kernels of the run");
  }
  if (core_type != PTO_CORE_AIC && core_type != PTO_CORE_AIV) {
    return context_.fail({PTO_ERROR_USAGE, -1, -1, func_id}, "a task is for the core type ",
                         core_type, "; use ", PTO_CORE_AIC, " (AIC) or ", PTO_CORE_AIV, " (AIV)");
  }
  const pto_platform* platform = context_.platform;
  for (uint32_t i = 0; platform->checking && i < submitted.num_args; ++i) {
    pto_error error{};
    if (platform->check_value(platform->self, submitted.args[i], &error) == PTO_OK) continue;
    error.func_id = func_id;
    context_.latch.latch(error);
    return error.status;
  }
  return PTO_OK;
}

pto_status Graph::add_edge(int64_t from, int64_t to) {
  if (context_.latch.is_set()) return context_.latch.status();
  const int64_t id = from < 0 || from >= task_count_ ? from : to;
  if (id < 0 || id >= task_count_) {
    return context_.fail({PTO_ERROR_USAGE, id}, "there is no task ", id,
                         " to add an edge to; there are ", task_count_.load(), " tasks");
  }
  if (from == to) {
    return context_.fail({PTO_ERROR_USAGE, to}, "task ", to,
                         " cannot wait for itself; remove the edge");
  }
  const int64_t index = edge_count_;
  if (!edges_.grow_to(static_cast<uint64_t>(index))) return out_of_memory("another edge");
  edge(index) = {to, task(from).first_edge};
  task(from).first_edge = index;
  ++task(to).waits;
  edge_count_ = index + 1;
  pto_trace(context_.platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_EDGE, static_cast<uint64_t>(from),
            static_cast<uint64_t>(to));
  return PTO_OK;
}

pto_status Graph::out_of_memory(const char* what) {
  return context_.fail({PTO_ERROR_MEMORY}, "no memory for ", what, ": the graph has ",
                       task_count_.load(), " tasks and ", edge_count_.load(),
                       " edges; build a smaller graph or free memory");
}

// Links each remaining task to one of its remaining predecessors. Such links end in a cycle, so
// after as many steps as there are tasks the search is on it. Returns a task of the cycle, or kNone
// if a remaining task has no remaining predecessor.
int64_t Graph::find_cycle() const {
  int64_t found = kNone;
  for (int64_t id = 0; id < task_count_; ++id) task(id).producer = kNone;
  for (int64_t id = 0; id < task_count_; ++id) {
    if (task(id).is_complete) continue;
    found = id;
    for (int64_t at = task(id).first_edge; at != kNone; at = edge(at).next) {
      task(edge(at).to).producer = id;
    }
  }
  for (int64_t step = 0; step < task_count_ && found != kNone; ++step) found = task(found).producer;
  return found;
}

}  // namespace pto_runtime_template
