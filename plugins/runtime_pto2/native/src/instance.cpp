#include "instance.hpp"

#include "explain.hpp"

namespace pto::ring_buffer {

Shortage Instance::create() {
  const Shortage shortage = orchestrator_.create(options_);
  if (shortage.what != nullptr) return shortage;
  if (!scheduler_.create(static_cast<uint32_t>(options_.ready_queue_shards))) {
    return {"the schedulers"};
  }
  return {};
}

void Instance::destroy() {
  scheduler_.destroy();
  orchestrator_.destroy();
}

pto_status Instance::begin(const pto_run& run) {
  run_ = &run;
  context_.latch.clear();
  rings_.clear_phases(orchestrator_.deadlock().is_proven());
  scheduler_.begin();
  orchestrator_.begin(run);
  for (uint32_t index = 0; index < run.num_kernels; ++index) {
    const pto_status status = orchestrator_.kernels().add(run.kernels[index], context_.latch);
    if (status != PTO_OK) return status;
  }
  return PTO_OK;
}

pto_status Instance::orchestrate() {
  const auto entry =
      context_.find_orchestration<pto2_orchestrate_fn>(*run_, PTO2_ORCHESTRATE, kVariant);
  int32_t result = -1;
  if (entry != nullptr) {
    const pto2_calls calls = orchestration_calls();
    // the orchestration may modify its arguments
    result = entry(&calls, this, const_cast<uint64_t*>(run_->args),
                   static_cast<int32_t>(run_->num_args));
  }
  orchestration_done(result);
  return last_error()->status;
}

void Instance::orchestration_done(int32_t result) {
  if (result != 0 && !orchestrator_.deadlock().is_proven()) {
    ErrorFacts facts{PTO_ERROR_ORCHESTRATION};
    facts.value = static_cast<uint64_t>(static_cast<int64_t>(result));
    context_.fail(facts, "the orchestration returned ", result, ", not 0; it had submitted ",
                  orchestrator_.statistics().tasks, " tasks by then");
  }
  orchestrator_.done(result == 0);
  scheduler_.wake_all();
}

int32_t Instance::stalled() {
  if (last_error()->status != PTO_OK) return PTO_STEP_ERROR;
  const bool is_blocked = orchestrator_.wait().is_blocked();
  if (is_blocked && orchestrator_.wait().can_continue()) {
    orchestrator_.wait().wake();
    return PTO_STEP_PROGRESS;
  }
  const Progress progress = scheduler_.progress();
  if (scheduler_.has_work() || (!is_blocked && progress.completed == progress.wired)) {
    scheduler_.wake_all();
    return PTO_STEP_PROGRESS;
  }
  if (is_blocked) {
    scheduler_.halt();
    orchestrator_.deadlock().prove(orchestrator_.wait().proof());
    return PTO_STEP_ERROR;
  }
  ErrorFacts facts{PTO_ERROR_INTERNAL};
  facts.value = static_cast<uint64_t>(progress.wired - progress.completed);
  context_.fail(facts, progress.wired - progress.completed, " of ", progress.wired,
                " tasks wait for producers that are not on a core; a kernel or the orchestration "
                "has overwritten the runtime's memory");
  return PTO_STEP_ERROR;
}

void Instance::end() {
  orchestrator_.end();
  run_ = nullptr;
  context_.latch.clear();
}

void Instance::abort(const pto_error* cause) {
  context_.abort(cause, scheduler_.progress().completed);
}

const pto_error* Instance::last_error() {
  const Deadlock& deadlock = orchestrator_.deadlock();
  return deadlock.is_proven() ? deadlock.error() : context_.latch.error();
}

uint32_t Instance::statistics(pto_statistic* out, uint32_t capacity) const {
  const FreeSpace& space = orchestrator_.space();
  const StatisticsSources sources{orchestrator_.statistics(),
                                  space.map().statistics(),
                                  scheduler_,
                                  clusters_,
                                  {space.use(0), space.use(1), space.use(2), space.use(3)},
                                  context_.memory.bytes()};
  return write_statistics(sources, out, capacity);
}

size_t Instance::explain(char* out, size_t capacity) {
  const RunView view{rings_, scheduler_, options_, orchestrator_.wait().long_wait(),
                     orchestrator_.deadlock()};
  return ring_buffer::explain(view, out, capacity);
}

}  // namespace pto::ring_buffer
