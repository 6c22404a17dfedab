#include "runtime.hpp"

#include <cstring>

namespace pto_runtime_template {
namespace {

using pto::engine::Text;

bool has(const pto_core_mask& cores, uint32_t core) {
  return (cores.words[core / 64] >> core % 64 & 1) != 0;
}

}  // namespace

pto_status NoOptions::read(const pto_option* options, uint32_t count, pto_error* error) {
  if (count == 0) return PTO_OK;
  return pto::engine::report(error, PTO_ERROR_USAGE, "the runtime template has no option \"",
                             options[0].key, "\"; it has no options");
}

// --- Building: one thread, before any scheduler steps -------------------------------------------

pto_status Runtime::begin(const pto_run& run) {
  run_ = &run;
  context_.latch.clear();
  completed_ = 0;
  ready_count_ = ready_peak_ = 0;
  for (Queue& ready : ready_) ready = {};
  for (int64_t& task : running_) task = kNone;
  return graph_.begin(run);
}

pto_status Runtime::orchestrate() {
  using Entry = int32_t (*)(const pto_runtime_api*, void*, const pto_platform*, const pto_run*);
  const auto entry =
      context_.find_orchestration<Entry>(*run_, "pto_template_orchestrate", variant_name());
  orchestration_done(entry != nullptr ? entry(&table, this, context_.platform, run_) : -1);
  return context_.latch.status();
}

void Runtime::orchestration_done(int32_t result) {
  if (result != 0) {
    const auto value = static_cast<uint64_t>(static_cast<int64_t>(result));
    context_.fail({PTO_ERROR_ORCHESTRATION, -1, -1, -1, value}, "the orchestration returned ",
                  result, ", not 0");
  }
  for (int64_t id = 0; id < graph_.tasks(); ++id) {
    if (graph_.task(id).waits == 0) make_ready(id);
  }
}

void Runtime::make_ready(int64_t id) {
  Queue& ready = ready_[graph_.task(id).core_type];
  graph_.task(id).next_ready = kNone;
  (ready.first == kNone ? ready.first : graph_.task(ready.last).next_ready) = id;
  ready.last = id;
  if (++ready_count_ > ready_peak_) ready_peak_ = ready_count_;
}

// --- Scheduling: any number of threads, each with cores of its own ------------------------------

int32_t Runtime::step(uint32_t thread) {
  if (is_stepping_.test_and_set(std::memory_order_acquire)) return PTO_STEP_PROGRESS;
  const int32_t result = step_alone(thread);
  is_stepping_.clear(std::memory_order_release);
  return result;
}

int32_t Runtime::step_alone(uint32_t thread) {
  const uint32_t completed = collect(thread);
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  pto_dispatch batch[PTO_MAX_CORES];
  const uint32_t count = fill_cores(thread, batch);
  if (count > 0) context_.platform->dispatch(context_.platform->self, thread, batch, count);
  const bool is_done = completed_ == graph_.tasks();
  if (completed > 0 && (is_done || ready_count_ > 0)) wake_others(thread);
  if (is_done) return PTO_STEP_DONE;
  return completed + count > 0 ? PTO_STEP_PROGRESS : PTO_STEP_IDLE;
}

// Returns the number of tasks of this thread's cores that have completed since the last call.
uint32_t Runtime::collect(uint32_t thread) {
  pto_poll_result finished{};
  context_.platform->poll(context_.platform->self, thread, &finished);
  uint32_t count = 0;
  for (uint32_t core = 0; core < context_.platform->topology->cores; ++core) {
    if (!has(finished.done, core)) continue;
    if (has(finished.faulted, core)) {
      latch_fault(core);
    } else {
      complete(thread, core);
      ++count;
    }
  }
  return count;
}

void Runtime::latch_fault(uint32_t core) {
  pto_error error{};
  error.line = -1;
  error.other_task = -1;
  context_.platform->fault(context_.platform->self, core, &error);
  if (error.status == PTO_OK) error.status = PTO_ERROR_KERNEL;
  error.task = running_[core];
  error.func_id = graph_.task(running_[core]).payload->func_id;
  error.core = static_cast<int32_t>(core);
  context_.latch.latch(error);
}

void Runtime::complete(uint32_t thread, uint32_t core) {
  const int64_t id = running_[core];
  running_[core] = kNone;
  graph_.task(id).is_complete = true;
  ++completed_;
  for (int64_t at = graph_.task(id).first_edge; at != kNone; at = graph_.edge(at).next) {
    const int64_t to = graph_.edge(at).to;
    if (--graph_.task(to).waits == 0) make_ready(to);
  }
  pto_trace(context_.platform, PTO_TRACK_SCHEDULER + thread, PTO_TRACE_COMPLETE,
            static_cast<uint64_t>(id), core);
}

// Returns the number of tasks in the batch: one for each free core, as long as tasks are ready.
uint32_t Runtime::fill_cores(uint32_t thread, pto_dispatch* batch) {
  const pto_topology& topology = *context_.platform->topology;
  uint32_t count = 0;
  for (uint32_t core = 0; core < topology.cores; ++core) {
    Queue& ready = ready_[topology.core_type[core]];
    if (!has(topology.thread_cores[thread], core)) continue;
    if (running_[core] != kNone || ready.first == kNone) continue;
    const Task& next = graph_.task(ready.first);
    batch[count++] = {core, static_cast<uint16_t>(next.length), 0, next.payload};
    running_[core] = ready.first;
    ready.first = next.next_ready;
    --ready_count_;
  }
  return count;
}

void Runtime::wake_others(uint32_t thread) {
  for (uint32_t other = 0; other < context_.platform->topology->schedulers; ++other) {
    if (other != thread) context_.platform->wake(context_.platform->self, other);
  }
}

// No task runs and no task is ready, so the remaining tasks wait for each other.
int32_t Runtime::stalled() {
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  const int64_t first = graph_.find_cycle();
  if (first == kNone) {
    context_.fail({PTO_ERROR_INTERNAL}, "no task runs or is ready and there is no cycle, but ",
                  completed_.load(), " of ", graph_.tasks(),
                  " tasks have completed; the runtime template lost some");
    return PTO_STEP_ERROR;
  }
  char path[512];
  Text text(path, sizeof path);
  text.add("task ", first);
  for (int64_t id = graph_.task(first).producer;; id = graph_.task(id).producer) {
    text.add(" waits for task ", id);
    if (id == first) break;
    text.add(", which");
  }
  context_.fail({PTO_ERROR_CYCLE, first}, static_cast<const char*>(path),
                "; remove one of these edges");
  return PTO_STEP_ERROR;
}

// --- Reports ------------------------------------------------------------------------------------

uint32_t Runtime::statistics(pto_statistic* out, uint32_t capacity) const {
  const pto_statistic all[] = {
      {"edges", static_cast<uint64_t>(graph_.edges()), 0, 0},
      {"ready_peak", ready_peak_, 1, 0},
  };
  constexpr uint32_t kCount = sizeof all / sizeof all[0];
  for (uint32_t i = 0; i < kCount && i < capacity; ++i) out[i] = all[i];
  return kCount;
}

size_t Runtime::explain(char* out, size_t capacity) const {
  return Text(out, capacity)
      .add("template: ", completed_.load(), " of ", graph_.tasks(), " tasks have completed, with ",
           graph_.edges(), " edges")
      .length();
}

}  // namespace pto_runtime_template
