#include "instance.hpp"

#include <cstring>

#include "graph_image.hpp"
#include "pto/engine/runtime_table.hpp"

namespace pto::build_graph {

void Instance::destroy() {
  scheduler_.destroy();
  graph_.destroy();
}

pto_status Instance::begin(const pto_run& run) {
  run_ = &run;
  context_.latch.clear();
  graph_.begin({variant.is_concurrent && build_mode_ == 1, variant.explicit_publish}, run.config);
  scheduler_.begin();
  for (uint32_t index = 0; index < run.num_kernels; ++index) {
    const pto_status status = graph_.kernels().add(run.kernels[index], context_.latch);
    if (status != PTO_OK) return status;
  }
  return PTO_OK;
}

pto_status Instance::orchestrate() {
  const auto entry = context_.find_orchestration<pto_build_graph_orchestrate_fn>(
      *run_, variant.orchestrate, variant.name);
  int32_t result = -1;
  if (entry != nullptr) {
    const pto_build_graph_calls calls = orchestration_calls(build_mode_);
    result = entry(&calls, this, run_->args, static_cast<int32_t>(run_->num_args));
  }
  orchestration_done(result);
  return context_.latch.status();
}

void Instance::orchestration_done(int32_t result) {
  if (result != 0) {
    context_.fail(
        {PTO_ERROR_ORCHESTRATION, -1, -1, -1, static_cast<uint64_t>(static_cast<int64_t>(result))},
        "the orchestration returned ", result, ", not 0; the graph had ", graph_.task_count(),
        " tasks by then");
  } else if (variant.explicit_publish && graph_.published() != graph_.task_count() &&
             !context_.latch.is_set()) {
    latch_unpublished(context_, graph_);
  } else if (!graph_.rules().concurrent && graph_.may_have_cycle()) {
    latch_cycle(context_, graph_);
  }
  scheduler_.build_done();
  if (variant.is_concurrent) scheduler_.wake_all();
}

pto_status Instance::publish(int64_t task) {
  if (graph_.publish(task)) {
    pto_trace(context_.platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_READY,
              static_cast<uint64_t>(task), 0);
    scheduler_.admit(static_cast<int32_t>(task));
  }
  if (graph_.rules().concurrent) pto_yield(context_.platform, PTO_YIELD_SUBMIT);
  return context_.latch.status();
}

size_t Instance::export_graph(void* out, size_t capacity) {
  return context_.latch.is_set() ? 0 : write_graph(graph_, out, capacity);
}

pto_status Instance::import_graph(const void* image, size_t bytes) {
  if (context_.latch.is_set()) return context_.latch.status();
  return read_graph(image, bytes, graph_, context_);
}

int32_t Instance::stalled() {
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  const Progress progress = scheduler_.progress();
  const int64_t tasks = graph_.task_count();
  if (scheduler_.has_ready_task() || progress.completed == tasks) {
    scheduler_.wake_all();
    return PTO_STEP_PROGRESS;
  }
  if (latch_cycle(context_, graph_)) return PTO_STEP_ERROR;
  context_.fail({PTO_ERROR_DEADLOCK, -1, -1, -1, static_cast<uint64_t>(tasks - progress.completed)},
                tasks - progress.completed, " of ", tasks,
                " tasks wait for predecessors that are neither on a core nor on a cycle; a kernel "
                "or the orchestration has overwritten the runtime's memory");
  return PTO_STEP_ERROR;
}

pto_status Instance::finalise() {
  if (context_.latch.is_set()) return context_.latch.status();
  return graph_.copy_back();
}

void Instance::end() {
  run_ = nullptr;
  context_.latch.clear();
}

void Instance::abort(const pto_error* cause) {
  context_.abort(cause, scheduler_.progress().completed);
}

uint32_t Instance::statistics(pto_statistic* out, uint32_t capacity) const {
  uint32_t count = 0;
  const auto add = [&](uint64_t value, bool is_peak, auto... name) {
    if (count < capacity) {
      out[count] = {};
      Text(out[count].name, sizeof out[count].name).add(name...);
      out[count].value = value;
      out[count].is_peak = is_peak;
    }
    ++count;
  };
  LaneStatistics all{};
  for (uint32_t thread = 0; thread < scheduler_.threads(); ++thread) {
    const LaneStatistics& lane = scheduler_.statistics(thread);
    all.batches += lane.batches;
    all.shared += lane.shared;
    all.taken += lane.taken;
    if (lane.ready_peak > all.ready_peak) all.ready_peak = lane.ready_peak;
  }
  add(static_cast<uint64_t>(graph_.task_count()), false, "tasks");
  add(graph_.edges(), false, "edges");
  add(graph_.edges_to_completed(), false, "edges_to_completed");
  add(graph_.tensor_pairs(), false, "tensor_pairs");
  add(all.ready_peak, true, "ready_peak");
  add(all.batches, false, "dispatch_batches");
  add(all.shared, false, "tasks_shared");
  add(all.taken, false, "tasks_taken");
  add(context_.memory.bytes(), true, "reserved_bytes");
  for (uint32_t thread = 0; thread < scheduler_.threads(); ++thread) {
    add(scheduler_.statistics(thread).dispatches, false, "dispatches_", thread);
  }
  return count;
}

// The runtime table of the two variants, and the only symbol that a library exports.

namespace {

Instance& self(void* runtime) {
  return engine::instance_of<Instance>(runtime);
}

pto_runtime_api make_api() {
  pto_runtime_api api = engine::runtime_table<Instance>();
  api.capabilities = variant.capabilities;
  api.max_args = PTO_MAX_KERNEL_ARGS;
  api.max_tasks = Graph::kMaxTasks;
  api.submit = [](void* runtime, const pto_task* task) { return self(runtime).submit(*task); };
  api.access_log = [](void* runtime, pto_access_log* log) {
    *log = self(runtime).graph().log.content();
  };
  api.publish = [](void* runtime, int64_t task) { return self(runtime).publish(task); };
  if ((variant.capabilities & PTO_RUNTIME_HOST_ORCHESTRATION) == 0) return api;
  api.export_graph = [](void* runtime, void* out, size_t capacity) {
    return self(runtime).export_graph(out, capacity);
  };
  api.import_graph = [](void* runtime, const void* image, size_t bytes) {
    return self(runtime).import_graph(image, bytes);
  };
  return api;
}

const pto_runtime_api api = make_api();

}  // namespace

pto_status Options::read(const pto_option* options, uint32_t count, pto_error* error) {
  for (uint32_t index = 0; index < count; ++index) {
    const char* value = options[index].value;
    if (std::strcmp(options[index].key, "build_mode") != 0) {
      return engine::report(error, PTO_ERROR_USAGE, variant.name, " has no option \"",
                            options[index].key, "\"; its only option is build_mode");
    }
    if (std::strcmp(value, "0") != 0 && std::strcmp(value, "1") != 0) {
      return engine::report(
          error, PTO_ERROR_USAGE, "build_mode is \"", value,
          "\"; use 1 (schedule during the build) or 0 (first build, then schedule)");
    }
    build_mode = static_cast<uint32_t>(value[0] - '0');
  }
  return PTO_OK;
}

}  // namespace pto::build_graph

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  if (std::strcmp(variant, pto::build_graph::variant.name) != 0) return nullptr;
  return &pto::build_graph::api;
}
