#include "instance.hpp"

#include <cstring>

#include "explain.hpp"
#include "pto/engine/runtime_table.hpp"

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
                   static_cast<int32_t>(run_->num_args), run_->arguments);
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

bool Instance::knows_edges() const {
  const pto_platform* platform = context_.platform;
  const bool has_log = run_->config != nullptr && run_->config->enable_dep_gen != 0;
  return run_->hazards != PTO_HAZARDS_FULL && !has_log && platform->checking == 0 &&
         platform->tracing == 0;
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

// The functions of the table that an orchestration library receives.

namespace {

Instance& self(void* runtime) {
  return *static_cast<Instance*>(runtime);
}

int64_t submit(void* runtime, pto_tensor_task* task) {
  return self(runtime).orchestrator().submit(*task);
}

void add_dep(void* runtime, int64_t from, int64_t to, const char* file, int32_t line) {
  self(runtime).orchestrator().add_dep(from, to, {file, line});
}

void scope_begin(void* runtime, const char* file, int32_t line) {
  self(runtime).orchestrator().scope_begin(file, line);
}

void scope_end(void* runtime, const char* file, int32_t line) {
  self(runtime).orchestrator().scope_end({file, line});
}

int32_t allocate_cluster(void* runtime, const char* file, int32_t line) {
  return self(runtime).orchestrator().allocate_cluster(file, line);
}

void free_cluster(void* runtime, int32_t cluster, const char* file, int32_t line) {
  self(runtime).orchestrator().free_cluster(cluster, {file, line});
}

void orchestration_done(void* runtime, const char* file, int32_t line) {
  self(runtime).orchestrator().close({file, line});
}

int32_t wait_for_tensor(void* runtime, const pto_tensor_data* tensor, int32_t for_write,
                        const char* file, int32_t line) {
  return self(runtime).orchestrator().wait_for_tensor(*tensor, for_write != 0, {file, line});
}

int32_t core_count(void* runtime, int32_t core_type) {
  const auto blocks = static_cast<int32_t>(self(runtime).context().platform->topology->blocks);
  return core_type == PTO_CORE_AIC ? blocks : 2 * blocks;
}

int32_t knows_edges(void* runtime) {
  return self(runtime).knows_edges();
}

int32_t has_failed(void* runtime) {
  return self(runtime).last_error()->status != PTO_OK;
}

void log(void* runtime, int32_t level, const char* function, const char* message) {
  const pto_platform* platform = self(runtime).context().platform;
  char line[2048];
  Text(line, sizeof line).add(function, ": ", message);
  const bool is_known = level >= PTO_LOG_ALWAYS && level <= PTO_LOG_DEBUG;
  platform->log(platform->self, is_known ? level : PTO_LOG_ALWAYS, line);
}

void range_begin(void* runtime, const char* name) {
  pto_record_range_begin(self(runtime).context().platform, PTO_TRACK_ORCHESTRATOR, name);
}

void range_end(void* runtime) {
  pto_record_range_end(self(runtime).context().platform, PTO_TRACK_ORCHESTRATOR);
}

// An error with a source position is a usage error. An error without one is an exception of the
// orchestration.
void fail(void* runtime, const char* what, const char* file, int32_t line) {
  const pto_status status = file != nullptr ? PTO_ERROR_USAGE : PTO_ERROR_ORCHESTRATION;
  self(runtime).orchestrator().fail(status, what, file, line);
}

void fail_with_code(void* runtime, int32_t code, const char* what, const char* file, int32_t line) {
  if (has_failed(runtime)) return;
  ErrorFacts facts{code == PTO2_ERROR_INVALID_ARGS ? PTO_ERROR_USAGE : PTO_ERROR_ORCHESTRATION};
  facts.value = static_cast<uint64_t>(static_cast<int64_t>(-code));
  facts.code = -code;
  self(runtime).context().fail_at(file, line, facts, what, " (code ", code, ")");
}

}  // namespace

pto2_calls orchestration_calls() {
  pto2_calls calls{};
  calls.version = PTO2_CALLS_VERSION;
  calls.submit = submit;
  calls.add_dep = add_dep;
  calls.scope_begin = scope_begin;
  calls.scope_end = scope_end;
  calls.allocate_cluster = allocate_cluster;
  calls.free_cluster = free_cluster;
  calls.orchestration_done = orchestration_done;
  calls.wait_for_tensor = wait_for_tensor;
  calls.core_count = core_count;
  calls.knows_edges = knows_edges;
  calls.has_failed = has_failed;
  calls.log = log;
  calls.range_begin = range_begin;
  calls.range_end = range_end;
  calls.fail = fail;
  calls.fail_with_code = fail_with_code;
  return calls;
}

// The runtime table of this variant, and the one symbol that the library exports.

namespace {

Orchestrator& orchestrator(void* runtime) {
  return engine::instance_of<Instance>(runtime).orchestrator();
}

constexpr pto_runtime_api make_api() {
  pto_runtime_api api = engine::runtime_table<Instance>();
  api.capabilities = PTO_RUNTIME_CONCURRENT_BUILD | PTO_RUNTIME_SCOPES |
                     PTO_RUNTIME_BLOCKING_SUBMIT | PTO_RUNTIME_TENSORS | PTO_RUNTIME_CLUSTERS |
                     PTO_RUNTIME_RING_IDS | PTO_RUNTIME_PLANNING;
  api.max_args = PTO_MAX_TASK_TENSORS + PTO_MAX_TASK_SCALARS;
  api.submit_tensors = [](void* runtime, pto_tensor_task* task) {
    return orchestrator(runtime).submit(*task);
  };
  api.scope_begin = [](void* runtime, const char* file, int32_t line) {
    return orchestrator(runtime).scope_begin(file, line);
  };
  api.scope_end = [](void* runtime) { return orchestrator(runtime).scope_end(); };
  api.allocate_cluster = [](void* runtime, const char* file, int32_t line) {
    return orchestrator(runtime).allocate_cluster(file, line);
  };
  api.free_cluster = [](void* runtime, int32_t cluster) {
    return orchestrator(runtime).free_cluster(cluster);
  };
  api.access_log = [](void* runtime, pto_access_log* log) {
    *log = orchestrator(runtime).access_log();
  };
  api.attend = [](void* runtime) { orchestrator(runtime).wait().log_long_wait(); };
  return api;
}

constexpr pto_runtime_api api = make_api();

}  // namespace
}  // namespace pto::ring_buffer

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  if (std::strcmp(variant, pto::ring_buffer::kVariant) != 0) return nullptr;
  return &pto::ring_buffer::api;
}
