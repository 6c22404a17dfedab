#include "instance.hpp"

#include "graph_image.hpp"

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

}  // namespace pto::build_graph
