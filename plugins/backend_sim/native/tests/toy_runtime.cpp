#include "toy_runtime.hpp"

#include <cstdio>
#include <cstring>

namespace toy {
namespace {

Runtime& self(void* runtime) {
  return *static_cast<Runtime*>(runtime);
}

bool has(const pto_core_mask& mask, uint32_t core) {
  return (mask.words[core / 64] >> (core % 64) & 1) != 0;
}

pto_status create(const pto_platform* platform, const pto_option*, uint32_t, void** runtime,
                  pto_error*) {
  *runtime = new Runtime(platform);
  return PTO_OK;
}

pto_runtime_api make_table(const char* name, uint32_t capabilities) {
  pto_runtime_api api{};
  api.abi_version = PTO_ABI_VERSION;
  api.struct_size = sizeof api;
  api.variant = name;
  api.capabilities = capabilities;
  api.max_args = 8;
  api.create = create;
  api.destroy = [](void* runtime) { delete &self(runtime); };
  api.begin = [](void* runtime, const pto_run* run) { return self(runtime).begin(run); };
  api.orchestrate = [](void* runtime) { return self(runtime).orchestrate(); };
  api.orchestration_done = [](void* runtime, int32_t result) {
    self(runtime).orchestration_done(result);
  };
  api.submit = [](void* runtime, const pto_task* task) { return self(runtime).submit(*task); };
  api.add_edge = [](void* runtime, int64_t from, int64_t to) {
    return self(runtime).add_edge(from, to);
  };
  api.publish = [](void*, int64_t) { return pto_status{PTO_ERROR_UNSUPPORTED}; };
  api.scope_begin = [](void*, const char*, int32_t) { return pto_status{PTO_ERROR_UNSUPPORTED}; };
  api.scope_end = [](void*) { return pto_status{PTO_ERROR_UNSUPPORTED}; };
  api.schedule_step = [](void* runtime, uint32_t thread) {
    return self(runtime).schedule_step(thread);
  };
  api.stalled = [](void* runtime) { return self(runtime).stalled(); };
  api.attend = [](void* runtime) { self(runtime).attended.fetch_add(1); };
  api.finalise = [](void*) { return pto_status{PTO_OK}; };
  api.end = [](void* runtime) { self(runtime).end(); };
  api.abort = [](void* runtime, const pto_error* cause) { self(runtime).abort(cause); };
  api.last_error = [](void* runtime, pto_error* out) {
    const pto_error* error = self(runtime).last_error();
    if (out != nullptr && error->status != PTO_OK) *out = *error;
    return error->status;
  };
  api.statistics = [](void*, pto_statistic*, uint32_t) { return uint32_t{0}; };
  api.explain = [](void*, char*, size_t) { return size_t{0}; };
  return api;
}

}  // namespace

const pto_runtime_api* table(Variant variant) {
  static const pto_runtime_api host =
      make_table("toy_host", PTO_RUNTIME_HOST_ORCHESTRATION | PTO_RUNTIME_EXPLICIT_EDGES);
  static const pto_runtime_api device =
      make_table("toy_concurrent", PTO_RUNTIME_CONCURRENT_BUILD | PTO_RUNTIME_EXPLICIT_EDGES |
                                       PTO_RUNTIME_BLOCKING_SUBMIT);
  return variant == host_built ? &host : &device;
}

pto_status Runtime::begin(const pto_run* run) {
  run_ = run;
  submitted_all_ = false;
  for (int64_t& task : on_core_) task = -1;
  return PTO_OK;
}

pto_status Runtime::orchestrate() {
  const auto* program = reinterpret_cast<const Program*>(run_->args[0]);
  orchestration_done((*program)(*this));
  return PTO_OK;
}

void Runtime::orchestration_done(int32_t result) {
  if (result != 0) latch(PTO_ERROR_ORCHESTRATION, "the orchestration failed");
  const std::lock_guard lock(mutex_);
  if (planned_ != 0) {
    std::snprintf(error_.message, sizeof error_.message, "toy: stuck; planned %lld more",
                  static_cast<long long>(planned_));
  }
  submitted_all_ = true;
}

int64_t Runtime::submit(int32_t func_id, int32_t core_type, std::vector<uint64_t> args,
                        std::vector<int64_t> after) {
  pto_task task{func_id, core_type, static_cast<uint32_t>(args.size()), 0, args.data(), 0,
                0,       nullptr};
  const int64_t id = submit(task);
  if (id < 0) return id;
  for (const int64_t from : after) add_edge(from, id);
  make_ready(id);
  pto_yield(&platform_, PTO_YIELD_SUBMIT);
  return id;
}

// An additional dependency keeps the task from starting until its submitter has added all edges.
int64_t Runtime::submit(const pto_task& given) {
  while (window_ != 0) {
    uint32_t seen;
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.size() - completed_ < window_) break;
      seen = completed_;
    }
    is_in_wait = true;
    const pto_status status = platform_.wait(platform_.self, &completed_, seen);
    is_in_wait = false;
    if (status == PTO_ERROR_DEADLOCK && plans_ && !aborted_) return plan();
    if (status != PTO_OK) return -1;
  }
  int64_t id;
  {
    const std::lock_guard lock(mutex_);
    if (error_.status != PTO_OK) return -1;
    id = static_cast<int64_t>(tasks_.size());
    Task task;
    task.func_id = given.func_id;
    task.core_type = given.core_type;
    task.args.assign(given.args, given.args + given.num_args);
    task.waits_for = holds_next_ ? 2 : 1;
    if (holds_next_) held_.push_back(id);
    holds_next_ = false;
    tasks_.push_back(std::move(task));
  }
  // Trace after the lock is released: in deterministic mode the thread that has the turn may need
  // the lock.
  pto_trace(&platform_, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_SUBMIT, static_cast<uint64_t>(id),
            static_cast<uint64_t>(given.func_id));
  return id;
}

// Returns an id for a task that is counted but never runs.
int64_t Runtime::plan() {
  ++planned_;
  return (int64_t{1} << 40) + planned_;
}

pto_status Runtime::add_edge(int64_t from, int64_t to) {
  if (planned_ != 0) return PTO_OK;
  const std::lock_guard lock(mutex_);
  Task& producer = tasks_[static_cast<size_t>(from)];
  if (producer.completed) return PTO_OK;
  producer.successors.push_back(to);
  ++tasks_[static_cast<size_t>(to)].waits_for;
  return PTO_OK;
}

void Runtime::make_ready(int64_t task) {
  if (planned_ != 0) return;
  const uint32_t thread = static_cast<uint32_t>(task) % platform_.topology->schedulers;
  {
    const std::lock_guard lock(mutex_);
    if (--tasks_[static_cast<size_t>(task)].waits_for != 0) return;
    ready_[thread].push_back(task);
  }
  platform_.wake(platform_.self, thread);
}

int32_t Runtime::schedule_step(uint32_t thread) {
  pto_poll_result result;
  platform_.poll(platform_.self, thread, &result);
  bool progress = false;
  for (uint32_t core = 0; core < platform_.topology->cores; ++core) {
    if (!has(result.done, core)) continue;
    progress = true;
    if (has(result.faulted, core)) {
      pto_error error;
      platform_.fault(platform_.self, core, &error);
      const std::lock_guard lock(mutex_);
      if (error_.status == PTO_OK) error_ = error;
    }
    complete(core, thread);
  }
  fill_cores(thread);
  const std::lock_guard lock(mutex_);
  if (error_.status != PTO_OK) return PTO_STEP_ERROR;
  if (submitted_all_ && completed_ == tasks_.size()) return PTO_STEP_DONE;
  return progress ? PTO_STEP_PROGRESS : PTO_STEP_IDLE;
}

void Runtime::complete(uint32_t core, uint32_t) {
  std::vector<int64_t> successors;
  {
    const std::lock_guard lock(mutex_);
    Task& task = tasks_[static_cast<size_t>(on_core_[core])];
    task.completed = true;
    successors.swap(task.successors);
    on_core_[core] = -1;
    __atomic_store_n(&completed_, completed_ + 1, __ATOMIC_RELEASE);
  }
  platform_.notify(platform_.self, &completed_);
  pto_yield(&platform_, PTO_YIELD_COMPLETE);
  for (const int64_t successor : successors) make_ready(successor);
}

void Runtime::fill_cores(uint32_t thread) {
  const std::lock_guard lock(mutex_);
  if (error_.status != PTO_OK) return;
  struct {
    pto_payload header;
    uint64_t args[8];
  } payload;
  std::vector<int64_t>& ready = ready_[thread];
  const pto_topology& topology = *platform_.topology;
  for (size_t i = 0; i < ready.size();) {
    const Task& task = tasks_[static_cast<size_t>(ready[i])];
    uint32_t core = 0;
    while (core < topology.cores &&
           (on_core_[core] >= 0 || topology.core_type[core] != task.core_type ||
            !has(topology.thread_cores[thread], core))) {
      ++core;
    }
    if (core == topology.cores && thread != 0) {
      // If no core of the scheduler has this type, use the first scheduler, which has cores of
      // every type.
      ready_[0].push_back(ready[i]);
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(i));
      platform_.wake(platform_.self, 0);
      continue;
    }
    if (core == topology.cores) {
      ++i;
      continue;
    }
    on_core_[core] = ready[i];
    payload.header = {};
    payload.header.task = static_cast<uint64_t>(ready[i]);
    payload.header.func_id = task.func_id;
    payload.header.num_args = static_cast<uint32_t>(task.args.size());
    for (uint32_t k = 0; k < run_->num_kernels; ++k) {
      if (run_->kernels[k].func_id == task.func_id)
        payload.header.kernel = run_->kernels[k].address;
    }
    if (!task.args.empty()) {
      std::memcpy(payload.args, task.args.data(), task.args.size() * sizeof(uint64_t));
    }
    const pto_dispatch batch{core,
                             static_cast<uint16_t>(sizeof(pto_payload) + 8 * task.args.size()), 0,
                             &payload.header};
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(i));
    platform_.dispatch(platform_.self, thread, &batch, 1);
  }
}

int32_t Runtime::stalled() {
  at_stall();
  std::vector<int64_t> held;
  {
    const std::lock_guard lock(mutex_);
    if (!keeps_hold_) held.swap(held_);
  }
  for (const int64_t task : held) make_ready(task);
  if (!held.empty()) return PTO_STEP_PROGRESS;
  latch(PTO_ERROR_DEADLOCK, "toy: nothing runs and nothing can");
  return PTO_STEP_ERROR;
}

void Runtime::end() {
  const std::lock_guard lock(mutex_);
  tasks_.clear();
  held_.clear();
  for (auto& ready : ready_) ready.clear();
  completed_ = 0;
  planned_ = 0;
  aborted_ = false;
  error_ = {};
}

void Runtime::abort(const pto_error* cause) {
  aborted_ = true;
  latch(cause != nullptr ? cause->status : PTO_ERROR_ABORTED,
        cause != nullptr ? cause->message : "aborted");
}

void Runtime::latch(pto_status status, const char* message) {
  const std::lock_guard lock(mutex_);
  if (error_.status != PTO_OK) return;
  error_.status = status;
  std::snprintf(error_.message, sizeof error_.message, "%s", message);
}

}  // namespace toy
