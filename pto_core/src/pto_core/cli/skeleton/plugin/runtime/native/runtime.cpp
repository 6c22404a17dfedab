#include "runtime.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace pto_runtime_template {
namespace {

using pto::engine::ErrorFacts;

constexpr size_t kHeaderWords = sizeof(pto_payload) / sizeof(uint64_t);

bool has(const pto_core_mask& cores, uint32_t core) {
  return (cores.words[core / 64] >> core % 64 & 1) != 0;
}

pto_payload& header_of(Task& task) {
  return *reinterpret_cast<pto_payload*>(task.payload.data());
}

}  // namespace

// --- Building: one thread, before any scheduler steps -------------------------------------------

pto_status Runtime::begin(const pto_run& run) {
  run_ = &run;
  edges_ = ready_peak_ = 0;
  std::fill(std::begin(running_), std::end(running_), -1);
  for (uint32_t i = 0; i < run.num_kernels; ++i) kernels_[run.kernels[i].func_id] = run.kernels[i];
  return latch_.status();
}

pto_status Runtime::orchestrate(const pto_runtime_api& api) {
  using Entry = int32_t (*)(const pto_runtime_api*, void*, const pto_platform*, const pto_run*);
  void* symbol = nullptr;
  int32_t result = -1;
  if (platform_.resolve(platform_.self, run_->library, "pto_template_orchestrate", &symbol) !=
      PTO_OK) {
    fail({PTO_ERROR_LOAD},
         "the orchestration does not export pto_template_orchestrate, so it was "
         "not built for this runtime; build it with its headers");
  } else {
    result = reinterpret_cast<Entry>(symbol)(&api, this, &platform_, run_);
  }
  orchestration_done(result);
  return latch_.status();
}

int64_t Runtime::submit(const pto_task& task) {
  if (latch_.is_set() || check(task) != PTO_OK) return -1;
  const int64_t id = add(task);
  pto_trace(&platform_, PTO_TRACE_SUBMIT, static_cast<uint64_t>(id),
            static_cast<uint64_t>(task.func_id));
  return id;
}

int64_t Runtime::add(const pto_task& task) {
  const auto kernel = kernels_.find(task.func_id);
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<int64_t>(tasks_.size());
  Task& added = tasks_.emplace_back();
  added.core_type = task.core_type >= 0 ? task.core_type : kernel->second.core_type;
  added.payload.resize(kHeaderWords + task.num_args);
  pto_payload& header = header_of(added);
  header.kernel = task.kernel != 0 ? task.kernel : kernel->second.address;
  header.task = static_cast<uint64_t>(id);
  header.cookie = task.cookie;
  header.func_id = task.func_id;
  header.num_args = task.num_args;
  std::copy_n(task.args, task.num_args, added.payload.begin() + kHeaderWords);
  return id;
}

pto_status Runtime::check(const pto_task& task) {
  if (task.num_args > PTO_MAX_KERNEL_ARGS) {
    return fail({PTO_ERROR_CAPACITY, -1, -1, task.func_id, task.num_args, PTO_MAX_KERNEL_ARGS},
                "a task has ", task.num_args, " arguments; use at most ", PTO_MAX_KERNEL_ARGS);
  }
  if (task.core_type < -1 || task.core_type >= PTO_CORE_TYPES) {
    return fail({PTO_ERROR_USAGE, -1, -1, task.func_id}, "a task is for the core type ",
                task.core_type, "; use ", PTO_CORE_AIC, " (AIC), ", PTO_CORE_AIV,
                " (AIV), or -1 for the core type of its kernel");
  }
  const bool is_known = kernels_.count(task.func_id) != 0;
  if (!is_known && (task.kernel == 0 || task.core_type < 0)) {
    return fail({PTO_ERROR_USAGE, -1, -1, task.func_id}, "no kernel has the function id ",
                task.func_id, "; add it to the kernels of the run");
  }
  for (uint32_t i = 0; platform_.checking && i < task.num_args; ++i) {
    pto_error error{};
    if (platform_.check_value(platform_.self, task.args[i], &error) == PTO_OK) continue;
    error.func_id = task.func_id;
    latch_.latch(error);
    return error.status;
  }
  return PTO_OK;
}

pto_status Runtime::add_edge(int64_t from, int64_t to) {
  if (latch_.is_set()) return latch_.status();
  const std::lock_guard lock(mutex_);
  for (const int64_t task : {from, to}) {
    if (!has_task(task)) {
      return fail({PTO_ERROR_USAGE, task}, "there is no task ", task,
                  " to add an edge to; there are ", static_cast<uint64_t>(tasks_.size()), " tasks");
    }
  }
  if (from == to) {
    return fail({PTO_ERROR_USAGE, to}, "task ", to, " cannot wait for itself; remove the edge");
  }
  tasks_[static_cast<size_t>(from)].successors.push_back(to);
  ++tasks_[static_cast<size_t>(to)].waits;
  ++edges_;
  return PTO_OK;
}

bool Runtime::has_task(int64_t task) const {
  return task >= 0 && static_cast<size_t>(task) < tasks_.size();
}

void Runtime::orchestration_done(int32_t result) {
  if (result != 0) {
    fail({PTO_ERROR_ORCHESTRATION, -1, -1, -1, static_cast<uint64_t>(static_cast<int64_t>(result))},
         "the orchestration returned ", result, ", not 0");
  }
  const std::lock_guard lock(mutex_);
  for (size_t task = 0; task < tasks_.size(); ++task) {
    if (tasks_[task].waits == 0) make_ready(static_cast<int64_t>(task));
  }
}

// --- Scheduling: any number of threads, each with cores of its own
// --------------------------------

int32_t Runtime::schedule_step(uint32_t thread) {
  const uint32_t completed = collect(thread);
  if (latch_.is_set()) return PTO_STEP_ERROR;
  pto_dispatch batch[PTO_MAX_CORES];
  uint32_t count = 0;
  bool is_done = false, is_more_ready = false;
  {
    const std::lock_guard lock(mutex_);
    count = fill_cores(thread, batch);
    is_done = complete_ == tasks_.size();
    is_more_ready = !ready_[PTO_CORE_AIC].empty() || !ready_[PTO_CORE_AIV].empty();
  }
  if (count > 0) platform_.dispatch(platform_.self, thread, batch, count);
  if (completed > 0 && (is_done || is_more_ready)) wake_others(thread);
  if (is_done) return PTO_STEP_DONE;
  return completed + count > 0 ? PTO_STEP_PROGRESS : PTO_STEP_IDLE;
}

// Returns the number of tasks of this thread's cores that have completed since the last call.
uint32_t Runtime::collect(uint32_t thread) {
  pto_poll_result finished{};
  platform_.poll(platform_.self, thread, &finished);
  uint32_t count = 0;
  for (uint32_t core = 0; core < platform_.topology->cores; ++core) {
    if (!has(finished.done, core)) continue;
    if (has(finished.faulted, core)) {
      latch_fault(core);
    } else {
      complete(core);
      ++count;
    }
  }
  return count;
}

void Runtime::latch_fault(uint32_t core) {
  pto_error error{};
  error.line = -1;
  error.other_task = -1;
  platform_.fault(platform_.self, core, &error);
  if (error.status == PTO_OK) error.status = PTO_ERROR_KERNEL;
  error.task = running_[core];
  error.func_id = header_of(tasks_[static_cast<size_t>(error.task)]).func_id;
  error.core = static_cast<int32_t>(core);
  latch_.latch(error);
}

void Runtime::complete(uint32_t core) {
  const int64_t id = running_[core];
  running_[core] = -1;
  {
    const std::lock_guard lock(mutex_);
    Task& task = tasks_[static_cast<size_t>(id)];
    task.is_complete = true;
    ++complete_;
    for (const int64_t successor : task.successors) {
      if (--tasks_[static_cast<size_t>(successor)].waits == 0) make_ready(successor);
    }
  }
  pto_trace(&platform_, PTO_TRACE_COMPLETE, static_cast<uint64_t>(id), core);
}

// The caller holds the lock.
void Runtime::make_ready(int64_t task) {
  ready_[tasks_[static_cast<size_t>(task)].core_type].push_back(task);
  const uint64_t ready = ready_[PTO_CORE_AIC].size() + ready_[PTO_CORE_AIV].size();
  ready_peak_ = std::max(ready_peak_, ready);
}

// The caller holds the lock. Returns the number of tasks in the batch: one for each free core, as
// long as tasks are ready.
uint32_t Runtime::fill_cores(uint32_t thread, pto_dispatch* batch) {
  const pto_topology& topology = *platform_.topology;
  uint32_t count = 0;
  for (uint32_t core = 0; core < topology.cores; ++core) {
    std::deque<int64_t>& ready = ready_[topology.core_type[core]];
    if (!has(topology.thread_cores[thread], core) || running_[core] >= 0 || ready.empty()) continue;
    running_[core] = ready.front();
    ready.pop_front();
    Task& task = tasks_[static_cast<size_t>(running_[core])];
    const auto length = static_cast<uint32_t>(task.payload.size() * sizeof(uint64_t));
    batch[count++] = {core, length, &header_of(task)};
  }
  return count;
}

void Runtime::wake_others(uint32_t thread) {
  for (uint32_t other = 0; other < platform_.topology->schedulers; ++other) {
    if (other != thread) platform_.wake(platform_.self, other);
  }
}

// No task runs and no task is ready, so the remaining tasks wait for each other.
int32_t Runtime::stalled() {
  if (latch_.is_set()) return PTO_STEP_ERROR;
  const std::vector<int64_t> tasks = cycle();
  if (tasks.empty()) {
    fail({PTO_ERROR_INTERNAL}, "no task runs or is ready and there is no cycle, but ",
         static_cast<uint64_t>(complete_), " of ", static_cast<uint64_t>(tasks_.size()),
         " tasks have completed; the runtime template lost some");
    return PTO_STEP_ERROR;
  }
  std::string path;
  for (const int64_t task : tasks) path += std::to_string(task) + " -> ";
  fail({PTO_ERROR_CYCLE, tasks.front()}, "tasks wait for each other: ", path.c_str(), tasks.front(),
       "; remove one of these edges");
  return PTO_STEP_ERROR;
}

// Follows edges backwards from a remaining task, always to a remaining predecessor, until it meets
// a task for the second time. Returns this cycle in the direction of its edges; empty if a
// remaining task has no remaining predecessor.
std::vector<int64_t> Runtime::cycle() const {
  std::map<int64_t, int64_t> producer;  // a remaining predecessor of each remaining task
  for (size_t task = 0; task < tasks_.size(); ++task) {
    if (tasks_[task].is_complete) continue;
    for (const int64_t successor : tasks_[task].successors) {
      producer[successor] = static_cast<int64_t>(task);
    }
  }
  std::vector<int64_t> path;
  std::map<int64_t, size_t> place;  // position of each task in the path
  auto next = producer.begin();
  while (next != producer.end() && place.emplace(next->first, path.size()).second) {
    path.push_back(next->first);
    next = producer.find(next->second);
  }
  if (next == producer.end()) return {};
  path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(place[next->first]));
  std::reverse(path.begin(), path.end());
  return path;
}

// --- End, abort and counters ---------------------------------------------------------------------

void Runtime::end() {
  const std::lock_guard lock(mutex_);
  latch_.clear();
  kernels_.clear();
  tasks_.clear();
  for (std::deque<int64_t>& ready : ready_) ready.clear();
  complete_ = 0;
  run_ = nullptr;
}

void Runtime::abort(const pto_error* cause) {
  if (cause != nullptr) {
    latch_.latch(*cause);
  } else {
    fail({PTO_ERROR_ABORTED}, "the run was aborted");
  }
}

uint32_t Runtime::statistics(pto_statistic* out, uint32_t capacity) const {
  const std::lock_guard lock(mutex_);
  const pto_statistic all[] = {
      {"edges", edges_, 0, 0},
      {"ready_peak", ready_peak_, 1, 0},
  };
  const auto count = static_cast<uint32_t>(std::size(all));
  std::copy_n(all, std::min(count, capacity), out);
  return count;
}

std::string Runtime::explain() const {
  const std::lock_guard lock(mutex_);
  return "template: " + std::to_string(complete_) + " of " + std::to_string(tasks_.size()) +
         " tasks have completed, with " + std::to_string(edges_) + " edges";
}

}  // namespace pto_runtime_template
