// A runtime variant that observes the backend which drives it.
//
// It dispatches the tasks of a list, which are independent, one at a time to each free core of the
// matching type. After each dispatch it overwrites its own copy of the payload, as the ABI permits.
// finalise() copies a journal to device memory; after an error end() does.
//
// It follows the rules for variants that run on the processor of a device. The input is therefore
// in the arguments of the run: an Input, its operands, and for each task a TaskHead and the
// payload. probe.py writes the arguments and reads the journal. A run without arguments has no
// tasks and no journal.
#include <atomic>
#include <cstring>

#include "pto/abi/payload.h"
#include "pto/engine/core_mask.hpp"
#include "pto/engine/runtime_table.hpp"

namespace {

using namespace pto::engine;

constexpr uint32_t kAnswers = 16;
constexpr uint32_t kNoTask = 0xFFFFFFFFu;
constexpr uint32_t kNoCore = 0xFFFFFFFFu;
// The header of a payload and the addresses of the recorder kernel, which stay unchanged.
constexpr uint32_t kSparedBytes = sizeof(pto_payload) + 4 * sizeof(uint64_t);

// A use of the platform table, whose results are the answers in the journal.
enum Experiment : uint64_t {
  kNone = 0,
  // finalise() makes one copy to the device for each operand, with that number of bytes, and copies
  // the bytes of the first operand back.
  kCopies = 1,
  // begin() allocates and reserves memory: the status, the address, the number of reserved bytes
  // that are not zero, the offset of the reserved memory in its page, whether now() went backwards,
  // whether memory was reserved.
  kMemory = 2,
  // begin() reserves operand 0 bytes and writes the last byte of the first operand 1: touched()
  // before and after the write, pto_platform.planning, whether memory was reserved.
  kPlanning = 3,
  // begin() checks values, whose number is operand 0, then ranges (address, bytes):
  // pto_platform.checking, then the status of each check.
  kChecks = 4
};

struct Input {
  uint64_t journal;  // address in device memory
  uint64_t experiment;
  uint64_t operands;
  uint64_t tasks;
};

struct TaskHead {
  uint32_t core_type;
  uint32_t bytes;  // of the payload, which follows, padded to 8 bytes
};

struct Journal {
  pto_topology topology;
  uint64_t unexpected;       // completions of cores that had no task
  uint64_t unexpected_core;  // the last of them
  uint64_t stalls;           // calls of stalled()
  uint64_t answers[kAnswers];
  // for each task a TaskResult
};
static_assert(sizeof(Journal) == 152 + 24 + 8 * kAnswers, "probe.py reads the journal");

struct TaskResult {
  uint32_t core;
  uint32_t completions;
};

struct Task {
  char* payload;
  uint32_t bytes;
  uint32_t core_type;
};

void use_memory(const pto_platform* platform, uint64_t* answers) {
  constexpr size_t kAllocated = 1 << 20;
  constexpr size_t kReserved = 100000;
  constexpr uint64_t kPage = 4096;
  answers[0] = static_cast<uint64_t>(platform->allocate(platform->self, kAllocated, &answers[1]));
  auto* reserved = static_cast<char*>(platform->reserve(platform->self, kReserved));
  answers[5] = reserved != nullptr;
  if (reserved == nullptr) return;
  for (size_t byte = 0; byte < kReserved; ++byte) answers[2] += reserved[byte] != 0;
  answers[3] = reinterpret_cast<uint64_t>(reserved) % kPage;
  platform->release(platform->self, reserved, kReserved);
  const uint64_t first = platform->now(platform->self);
  answers[4] = platform->now(platform->self) < first;
}

void plan(const pto_platform* platform, size_t bytes, size_t some, uint64_t* answers) {
  auto* memory = static_cast<char*>(platform->reserve(platform->self, bytes));
  answers[3] = memory != nullptr;
  if (memory == nullptr) return;
  answers[0] = platform->touched(platform->self, memory, some);
  memory[some - 1] = 1;
  answers[1] = platform->touched(platform->self, memory, some);
  answers[2] = platform->planning;
  platform->release(platform->self, memory, bytes);
}

void check(const pto_platform* platform, const uint64_t* operands, uint64_t count,
           uint64_t* answers) {
  *answers++ = platform->checking;
  if (platform->checking == 0) return;
  const uint64_t values = operands[0];
  pto_error error;
  for (uint64_t index = 1; index < count; ++answers) {
    const uint64_t value = operands[index++];
    const pto_status status =
        index <= values + 1
            ? platform->check_value(platform->self, value, &error)
            : platform->check_range(platform->self, value, operands[index++], &error);
    *answers = static_cast<uint64_t>(status);
  }
}

pto_status copy(const pto_platform* platform, const uint64_t* sizes, uint64_t count) {
  size_t largest = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (sizes[i] > largest) largest = sizes[i];
  }
  void* host = platform->reserve(platform->self, largest);
  if (host == nullptr) return PTO_ERROR_MEMORY;
  uint64_t device = 0;
  pto_status status = platform->allocate(platform->self, largest, &device);
  for (uint64_t i = 0; i < count && status == PTO_OK; ++i) {
    status = platform->copy_in(platform->self, device, host, sizes[i]);
  }
  if (status == PTO_OK) status = platform->copy_out(platform->self, host, device, sizes[0]);
  platform->release(platform->self, host, largest);
  return status;
}

void wake_others(const pto_platform* platform, uint32_t thread) {
  for (uint32_t other = 0; other < platform->topology->schedulers; ++other) {
    if (other != thread) platform->wake(platform->self, other);
  }
}

class Probe {
 public:
  struct Options {
    pto_status read(const pto_option* options, uint32_t count, pto_error* error) {
      if (count == 0) return PTO_OK;
      return report(error, PTO_ERROR_USAGE, "the probe has no option \"", options[0].key,
                    "\"; pass none");
    }
  };

  static const char* variant_name() { return "conformance_probe"; }

  Probe(const pto_platform* platform, const Options&) : context_(platform) {}

  Shortage create() { return {}; }
  void destroy() { context_.memory.release(memory_, bytes_); }

  pto_status begin(const pto_run& run);
  pto_status orchestrate() {
    return context_.fail({PTO_ERROR_UNSUPPORTED}, "the probe runs no orchestration");
  }
  void orchestration_done(int32_t) {}
  pto_status add_edge(int64_t, int64_t) {
    return context_.fail({PTO_ERROR_UNSUPPORTED}, "the tasks of the probe have no edges");
  }
  int32_t step(uint32_t thread);
  int32_t stalled();
  pto_status finalise();
  void end();
  void abort(const pto_error* cause) { context_.abort(cause, 0); }

  const pto_error* last_error() { return context_.latch.error(); }
  uint32_t statistics(pto_statistic*, uint32_t) const { return 0; }
  size_t explain(char*, size_t) const { return 0; }
  Context& context() { return context_; }

 private:
  bool take_over(const pto_run& run);
  void add_tasks(char* at);
  void forget();

  uint32_t collect(uint32_t thread);
  void complete(uint32_t core);
  uint32_t dispatch(uint32_t thread);
  uint32_t next_task(uint32_t core_type);
  pto_status write_journal();
  const uint64_t* operands() const { return reinterpret_cast<const uint64_t*>(memory_); }

  Context context_;
  Input input_{};
  char* memory_ = nullptr;  // the operands, payloads, tasks and journal of a run
  size_t bytes_ = 0;
  Task* tasks_ = nullptr;
  Journal* journal_ = nullptr;
  TaskResult* results_ = nullptr;               // written by the thread that owns the core
  std::atomic<uint32_t> next_[PTO_CORE_TYPES];  // the next task that may have the type
  std::atomic<uint32_t> left_{0};               // tasks that have not completed
  std::atomic<uint64_t> unexpected_{0};
  std::atomic<uint64_t> unexpected_core_{0};
  uint32_t on_core_[PTO_MAX_CORES];  // the task of each core; written by the core's thread
};

pto_status Probe::begin(const pto_run& run) {
  context_.latch.clear();
  forget();
  if (run.num_args == 0) return PTO_OK;
  if (!take_over(run)) return context_.fail({PTO_ERROR_MEMORY}, "no memory for the probe");
  journal_->topology = *context_.platform->topology;
  uint64_t* const answers = journal_->answers;
  switch (input_.experiment) {
    case kMemory:
      use_memory(context_.platform, answers);
      break;
    case kPlanning:
      plan(context_.platform, operands()[0], operands()[1], answers);
      break;
    case kChecks:
      check(context_.platform, operands(), input_.operands, answers);
      break;
  }
  return PTO_OK;
}

void Probe::forget() {
  input_ = {};
  for (uint32_t& task : on_core_) task = kNoTask;
  for (std::atomic<uint32_t>& next : next_) next.store(0, std::memory_order_relaxed);
  left_.store(0, std::memory_order_relaxed);
  unexpected_.store(0, std::memory_order_relaxed);
  journal_ = nullptr;
}

// The arguments belong to the caller, so the probe writes to a copy.
bool Probe::take_over(const pto_run& run) {
  std::memcpy(&input_, run.args, sizeof input_);
  const size_t inputs = run.num_args * sizeof(uint64_t) - sizeof input_;
  const size_t journal = sizeof(Journal) + input_.tasks * sizeof(TaskResult);
  const size_t needed = inputs + input_.tasks * sizeof(Task) + journal;
  if (needed > bytes_) {
    context_.memory.release(memory_, bytes_);
    bytes_ = needed;
    memory_ = static_cast<char*>(context_.memory.reserve(needed));
    if (memory_ == nullptr) return bytes_ = 0, false;
  }
  std::memcpy(memory_, reinterpret_cast<const char*>(run.args) + sizeof input_, inputs);
  tasks_ = reinterpret_cast<Task*>(memory_ + inputs);
  journal_ = reinterpret_cast<Journal*>(tasks_ + input_.tasks);
  results_ = reinterpret_cast<TaskResult*>(journal_ + 1);
  std::memset(static_cast<void*>(journal_), 0, journal);
  add_tasks(memory_ + input_.operands * sizeof(uint64_t));
  left_.store(static_cast<uint32_t>(input_.tasks), std::memory_order_release);
  return true;
}

void Probe::add_tasks(char* at) {
  for (uint64_t index = 0; index < input_.tasks; ++index) {
    TaskHead head;
    std::memcpy(&head, at, sizeof head);
    tasks_[index] = {at + sizeof head, head.bytes, head.core_type};
    results_[index] = {kNoCore, 0};
    at += sizeof head + (head.bytes + 7) / 8 * 8;
  }
}

int32_t Probe::step(uint32_t thread) {
  const uint32_t completions = collect(thread);
  if (context_.latch.is_set()) return PTO_STEP_ERROR;
  const uint32_t dispatched = dispatch(thread);
  if (left_.load(std::memory_order_acquire) == 0) {
    if (completions > 0) wake_others(context_.platform, thread);
    return PTO_STEP_DONE;
  }
  return completions + dispatched > 0 ? PTO_STEP_PROGRESS : PTO_STEP_IDLE;
}

// Returns the number of completions.
uint32_t Probe::collect(uint32_t thread) {
  const pto_platform* platform = context_.platform;
  pto_poll_result result;
  std::memset(&result, 0, sizeof result);
  platform->poll(platform->self, thread, &result);
  while (!empty(result.faulted)) {
    pto_error error;
    std::memset(&error, 0, sizeof error);
    platform->fault(platform->self, take_first(result.faulted), &error);
    context_.latch.latch(error);
  }
  uint32_t completions = 0;
  for (; !empty(result.done); ++completions) complete(take_first(result.done));
  return completions;
}

void Probe::complete(uint32_t core) {
  const uint32_t task = on_core_[core];
  if (task == kNoTask) {
    unexpected_core_.store(core, std::memory_order_relaxed);
    unexpected_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  on_core_[core] = kNoTask;
  ++results_[task].completions;
  left_.fetch_sub(1, std::memory_order_acq_rel);
}

// Dispatches a task to each free core of the thread. Returns the number of dispatches.
uint32_t Probe::dispatch(uint32_t thread) {
  const pto_platform* platform = context_.platform;
  const pto_topology& topology = *platform->topology;
  pto_dispatch batch[PTO_MAX_CORES];
  uint32_t count = 0;
  for (pto_core_mask own = topology.thread_cores[thread]; !empty(own);) {
    const uint32_t core = take_first(own);
    if (on_core_[core] != kNoTask) continue;
    const uint32_t task = next_task(topology.core_type[core]);
    if (task == kNoTask) continue;
    on_core_[core] = task;
    results_[task].core = core;
    batch[count++] = {core, static_cast<uint16_t>(tasks_[task].bytes), 0,
                      reinterpret_cast<const pto_payload*>(tasks_[task].payload)};
  }
  if (count > 0) platform->dispatch(platform->self, thread, batch, count);
  for (uint32_t i = 0; i < count; ++i) {
    if (batch[i].length <= kSparedBytes) continue;
    char* const payload = tasks_[on_core_[batch[i].core]].payload;
    std::memset(payload + kSparedBytes, 0xA5, batch[i].length - kSparedBytes);
  }
  return count;
}

// Returns the next task of this type, and marks it as taken.
uint32_t Probe::next_task(uint32_t core_type) {
  const auto tasks = static_cast<uint32_t>(input_.tasks);
  std::atomic<uint32_t>& next = next_[core_type];
  for (;;) {
    if (next.load(std::memory_order_relaxed) >= tasks) return kNoTask;
    const uint32_t task = next.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks) return kNoTask;
    if (tasks_[task].core_type == core_type) return task;
  }
}

int32_t Probe::stalled() {
  if (journal_ != nullptr) ++journal_->stalls;
  context_.fail({PTO_ERROR_DEADLOCK}, "the backend reported a stall, but ",
                left_.load(std::memory_order_acquire), " tasks of the probe can complete");
  return PTO_STEP_ERROR;
}

pto_status Probe::finalise() {
  if (input_.experiment == kCopies) {
    const pto_status status = copy(context_.platform, operands(), input_.operands);
    if (status != PTO_OK) return context_.fail({status}, "the copies of the probe failed");
  }
  return write_journal();
}

void Probe::end() {
  write_journal();
  context_.latch.clear();
}

// Copies the journal to the device, once in a run.
pto_status Probe::write_journal() {
  if (journal_ == nullptr) return PTO_OK;
  journal_->unexpected = unexpected_.load(std::memory_order_acquire);
  journal_->unexpected_core = unexpected_core_.load(std::memory_order_relaxed);
  const void* journal = journal_;
  journal_ = nullptr;
  const pto_platform* platform = context_.platform;
  const pto_status status = platform->copy_in(platform->self, input_.journal, journal,
                                              sizeof(Journal) + input_.tasks * sizeof(TaskResult));
  if (status == PTO_OK) return status;
  return context_.fail({status}, "the journal of the probe could not be copied to the device");
}

pto_runtime_api make_api() {
  pto_runtime_api api = runtime_table<Probe>();
  api.capabilities = PTO_RUNTIME_HOST_ORCHESTRATION;
  api.max_args = PTO_MAX_KERNEL_ARGS;
  return api;
}

const pto_runtime_api api = make_api();

}  // namespace

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  return std::strcmp(variant, api.variant) == 0 ? &api : nullptr;
}
