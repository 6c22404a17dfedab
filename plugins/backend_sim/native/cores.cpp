#include "cores.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <vector>

#include "activity.hpp"
#include "error.hpp"
#include "loader.hpp"
#include "options.hpp"
#include "pto/engine/task_name.hpp"
#include "waiting.hpp"

namespace pto::sim {
namespace {

// Two cache lines more than the largest payload. The first lines of the payloads are then in
// different cache sets.
constexpr size_t kPayloadStride = PTO_MAX_PAYLOAD + 128;
constexpr size_t kPayloadBytes = kPayloadStride * PTO_MAX_CORES;
constexpr uint32_t kMostNaps = 200;  // of 10 ms, for the kernels beside one that crashed

const Kernel& kernel_of(const Core& core) noexcept {
  return *reinterpret_cast<const Kernel*>(core.payload->kernel);
}

}  // namespace

Cores::~Cores() {
  if (payloads_ != nullptr) munmap(payloads_, kPayloadBytes);
}

pto_status Cores::open(pto_error* error) {
  void* memory = mmap(nullptr, kPayloadBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(error, PTO_ERROR_MEMORY, "cannot map %zu bytes for the cores' payloads: %s",
                kPayloadBytes, std::strerror(errno));
  }
  payloads_ = static_cast<char*>(memory);
  faults_ = std::make_unique<pto_error[]>(PTO_MAX_CORES);
  for (size_t i = 0; i < cores_.size(); ++i) {
    cores_[i].payload = reinterpret_cast<pto_payload*>(payloads_ + i * kPayloadStride);
  }
  return PTO_OK;
}

void Cores::set_measurement(const pto_measurement* measurement, bool is_alone) {
  measurement_ = measurement;
  const auto [base, bytes] = memory_.whole();
  if (measurement == nullptr || !is_alone) {
    guard_.reset();
  } else if (!guard_) {
    guard_ = std::make_unique<PageGuard>(base, bytes);
  }
}

void Cores::reset(const pto_topology& topology) noexcept {
  is_observed_ = timing_ || tracer_.has_tasks() || measurement_ != nullptr || dump_.is_on();
  pipe_states_.clear();
  log_.begin_run(topology.blocks, capabilities_);
  for (uint32_t i = 0; i < topology.cores; ++i) {
    Core& core = cores_[i];
    const uint32_t sequence = core.data_main_base.load(std::memory_order_relaxed);
    core.cond.store(sequence | PTO_COND_FINISHED, std::memory_order_relaxed);
    core.faulted = false;
    core.tasks = 0;
    core.busy_ns = 0;
  }
}

void Cores::dispatch(const pto_dispatch& dispatch, uint32_t thread) noexcept {
  Core& core = cores_[dispatch.core];
  core.scheduler = static_cast<uint8_t>(thread);
  std::memcpy(core.payload, dispatch.payload, dispatch.length);
  core.payload_bytes = dispatch.length;
  core.is_together = (dispatch.flags & PTO_DISPATCH_TOGETHER) != 0;
  uint64_t* args = pto_payload_args(core.payload);
  for (uint64_t rest = core.payload->relative_args; rest != 0; rest &= rest - 1) {
    args[__builtin_ctzll(rest)] += reinterpret_cast<uint64_t>(core.payload);
  }
  const Kernel& kernel = kernel_of(core);
  core.has_place = kernel.has_hooks || kernel.has_texts || core.is_together;
  if (kernel.has_hooks) pipe_states_.begin(core.payload->task);
  const uint32_t sequence = next_sequence(core.data_main_base.load(std::memory_order_relaxed));
  core.data_main_base.store(sequence, std::memory_order_release);
}

void Cores::execute(uint32_t index, pto_activity_slot& slot, uint32_t worker) noexcept {
  Core& core = cores_[index];
  note_kernel(slot, *core.payload, index);
  if (core.has_place) {
    clear(faults_[index]);
    set_place({core.payload, &pipe_states_, &log_, &faults_[index], index});
  }
  if (is_observed_) {
    call_observed(core, index, worker);
  } else {
    call(core, index);
  }
  note_return(slot);
  if (core.has_place) {
    set_place({});
    if (kernel_of(core).has_hooks) pipe_states_.end(core.payload->task);
  }
  if (memory_.checking() && !core.faulted) check_buffers(core, index);
  ++core.tasks;
  const uint32_t sequence = core.data_main_base.load(std::memory_order_relaxed);
  core.cond.store(sequence | PTO_COND_FINISHED, std::memory_order_release);
}

void Cores::fail_to_start(uint32_t index) noexcept {
  Core& core = cores_[index];
  fail(&faults_[index], PTO_ERROR_MEMORY,
       "kernel %s (func_id %d) waits for others, so it needs a thread, and the system has no "
       "further threads; permit more threads, or run with a smaller block_dim",
       kernel_of(core).name.c_str(), core.payload->func_id);
  complete_fault(core, index);
  if (kernel_of(core).has_hooks) pipe_states_.end(core.payload->task);
  const uint32_t sequence = core.data_main_base.load(std::memory_order_relaxed);
  core.cond.store(sequence | PTO_COND_FINISHED, std::memory_order_release);
}

bool Cores::calls_back(uint32_t index) const noexcept {
  return kernel_of(cores_[index]).function == nullptr;
}

void Cores::call_observed(Core& core, uint32_t index, uint32_t worker) noexcept {
  const Kernel& kernel = kernel_of(core);
  const Dump::Call call_of_kernel{*core.payload, core.payload_bytes, kernel, index,
                                  core.is_together};
  const bool is_dumped = dump_.is_on() && dump_.selects(kernel, core.payload->task);
  if (is_dumped) dump_.before(call_of_kernel);
  const uint64_t start = timing_ ? clock_ns() : 0;
  const bool is_traced = worker != kUntraced;
  const uint64_t began = is_traced ? tracer_.start_kernel(worker, *core.payload, index) : 0;
  if (measurement_ != nullptr) {
    call_measured(core, index);
  } else {
    call(core, index);
  }
  if (is_traced) tracer_.end_kernel(worker, *core.payload, index, began);
  if (timing_) core.busy_ns += clock_ns() - start;
  if (!is_dumped) return;
  if (memory_.checking() && !core.faulted) check_buffers(core, index);
  dump_.after(call_of_kernel, core.faulted || (core.has_place && has_left_kernel()));
}

void Cores::call_measured(Core& core, uint32_t index) noexcept {
  const auto task = static_cast<int64_t>(core.payload->task);
  std::vector<pto_measured_range> ranges{{task, 0, 0, PTO_MEASURED_CALL, index}};
  if (kernel_of(core).is_measured) {
    call_recorded(core, index, ranges);
  } else if (!call_guarded(core, index, ranges)) {
    return call(core, index);
  }
  const uint64_t* args = pto_payload_args(core.payload);
  for (uint32_t i = 0; i < core.payload->num_args; ++i) {
    pto_measured_range range{task, 0, 0, PTO_MEASURED_BUFFER, index};
    if (memory_.find_buffer(args[i], &range.begin, &range.end)) ranges.push_back(range);
  }
  measurement_->add(measurement_->context, ranges.data(), ranges.size());
}

void Cores::call_recorded(Core& core, uint32_t index,
                          std::vector<pto_measured_range>& ranges) noexcept {
  static thread_local Recorder recorder;
  const auto [base, bytes] = memory_.whole();
  recorder.begin(base, bytes);
  set_recorder(&recorder);
  auto* args = reinterpret_cast<int64_t*>(pto_payload_args(core.payload));
  const auto function = core.has_place ? call_in_place : kernel_of(core).function;
  const int signal = call_until_fault(function, args);
  if (signal != 0) forget_kernel();
  set_recorder(nullptr);
  // an assertion of the kernel has failed
  if (core.has_place && faults_[index].status != PTO_OK) complete_fault(core, index);
  recorder.end(ranges[0].task, index, ranges);
  if (signal != 0) fail_crashed(core, index, signal, recorder.last(), ranges);
}

void Cores::fail_crashed(Core& core, uint32_t index, int signal, const Recorder::Access& access,
                         std::vector<pto_measured_range>& ranges) noexcept {
  const Kernel& kernel = kernel_of(core);
  fail(&faults_[index], PTO_ERROR_KERNEL,
       "kernel %s (func_id %d) crashed with SIG%s; its last access %s %" PRIu64
       " bytes at 0x%" PRIx64,
       kernel.name.c_str(), core.payload->func_id, sigabbrev_np(signal),
       access.is_write ? "wrote" : "read", access.bytes, access.address);
  const auto [base, bytes] = memory_.whole();
  if (access.bytes != 0 && access.address - base >= bytes) {
    const uint32_t kind = access.is_write ? PTO_MEASURED_WRITE : PTO_MEASURED_READ;
    ranges.push_back({ranges[0].task, access.address, access.address + access.bytes, kind, index});
  }
  complete_fault(core, index);
  if (!core.is_together) return;
  // Others may wait for the crashed kernel. A time limit would then blame them.
  const auto is_running = [&](const Core& other) {
    const auto number = static_cast<uint32_t>(&other - cores_.data());
    return other.payload->task == core.payload->task && !other.faulted && !finished(number);
  };
  for (uint32_t naps = 0; std::any_of(cores_.begin(), cores_.end(), is_running); ++naps) {
    if (naps == kMostNaps) std::raise(signal);
    usleep(10'000);
  }
}

bool Cores::call_guarded(Core& core, uint32_t index,
                         std::vector<pto_measured_range>& ranges) noexcept {
  if (calls_back(index) || core.is_together || !guard_ || !guard_->begin()) return false;
  call(core, index);
  ranges[0].kind = PTO_MEASURED_PAGES;
  guard_->end(ranges[0].task, index, ranges);
  return true;
}

void Cores::call(Core& core, uint32_t index) noexcept {
  const Kernel& kernel = kernel_of(core);
  if (kernel.function == nullptr) return call_back(core, index);
  const auto function = core.has_place ? call_in_place : kernel.function;
  function(reinterpret_cast<int64_t*>(pto_payload_args(core.payload)));
  // an assertion of the kernel has failed
  if (core.has_place && faults_[index].status != PTO_OK) complete_fault(core, index);
}

void Cores::call_back(Core& core, uint32_t index) noexcept {
  const Kernel& kernel = kernel_of(core);
  pto_error& error = faults_[index];
  clear(error);
  const int32_t result = kernel.callback(kernel.context, core.payload, index, &error);
  if (result == 0) return;
  if (error.message[0] == 0) {
    fail(&error, PTO_ERROR_KERNEL, "kernel %s (func_id %d) returned %d", kernel.name.c_str(),
         core.payload->func_id, result);
  }
  complete_fault(core, index);
}

// Checks the buffer to which each word of the payload points, because the kernel may have written
// to it. If a word is a number that only looks like an address, the additional check does no harm.
void Cores::check_buffers(Core& core, uint32_t index) noexcept {
  const size_t words = (core.payload_bytes - sizeof(pto_payload)) / sizeof(uint64_t);
  const uint64_t* args = pto_payload_args(core.payload);
  for (size_t i = 0; i < words; ++i) {
    pto_error damage;
    if (memory_.check_buffer(args[i], &damage) == PTO_OK) continue;
    pto_error& error = faults_[index];
    char task[64];
    engine::Text(task, sizeof task)
        .add(engine::TaskName{static_cast<int64_t>(core.payload->task), capabilities_});
    fail(&error, PTO_ERROR_ADDRESS, "after kernel %s (func_id %d), %s: %.900s",
         kernel_of(core).name.c_str(), core.payload->func_id, task, damage.message);
    error.value = damage.value;
    error.limit = damage.limit;
    complete_fault(core, index);
    return;
  }
}

void Cores::complete_fault(Core& core, uint32_t index) noexcept {
  pto_error& error = faults_[index];
  if (error.status == PTO_OK) error.status = PTO_ERROR_KERNEL;
  error.func_id = core.payload->func_id;
  error.task = static_cast<int64_t>(core.payload->task);
  error.core = static_cast<int32_t>(index);
  core.faulted = true;
}

}  // namespace pto::sim
