#include "kernel_hooks.hpp"

#include <setjmp.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "error.hpp"
#include "loader.hpp"
#include "pto/abi/tensor.h"

namespace pto::sim {
namespace {

thread_local KernelPlace place_of_thread;
// Where the thread continues when it leaves a kernel. The static storage model: with it, a handler
// can read the variable without allocating memory.
__thread sigjmp_buf* leave_of_thread __attribute__((tls_model("initial-exec"))) = nullptr;
// Whether the thread has left its last kernel, or leaves it when it returns from HostCode.
__thread volatile bool is_leaving __attribute__((tls_model("initial-exec"))) = false;
__thread volatile bool is_in_host_code __attribute__((tls_model("initial-exec"))) = false;

// Code that a kernel calls and that takes locks. A signal must not make the thread leave it.
class HostCode {
 public:
  HostCode() noexcept { is_in_host_code = true; }
  HostCode(const HostCode&) = delete;
  HostCode& operator=(const HostCode&) = delete;
  ~HostCode() {
    is_in_host_code = false;
    if (is_leaving) leave_kernel();
  }
};

const Kernel& kernel_of(const pto_payload& payload) noexcept {
  return *reinterpret_cast<const Kernel*>(payload.kernel);
}

const char* name_of(const char* file) noexcept {
  const char* slash = std::strrchr(file, '/');
  return slash != nullptr ? slash + 1 : file;
}

// Writes the error of a failed assertion.
void fail_assertion(const KernelPlace& place, const char* file, int32_t line, const char* text) {
  const pto_payload& payload = *place.payload;
  fail(place.fault, PTO_ERROR_KERNEL,
       "kernel %s (func_id %d) on %s %u: the assertion at %s:%d failed: %.600s",
       kernel_of(payload).name.c_str(), payload.func_id, place.log->type_of(place.core),
       place.log->number_of(place.core), name_of(file), line, text);
}

}  // namespace

void PipeStates::begin(uint64_t task) noexcept try {
  const std::lock_guard lock(mutex_);
  ++tasks_[task].kernels;
} catch (const std::bad_alloc&) {
  // find() returns null
}

void PipeStates::end(uint64_t task) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = tasks_.find(task);
  if (found != tasks_.end() && --found->second.kernels == 0) tasks_.erase(found);
}

void* PipeStates::find(uint64_t task, uint64_t key, size_t bytes) noexcept try {
  const std::lock_guard lock(mutex_);
  const auto found = tasks_.find(task);
  if (found == tasks_.end()) return nullptr;
  State& state = found->second.states[key];
  if (state.memory) return bytes <= state.bytes ? state.memory.get() : nullptr;
  const size_t rounded = bytes == 0 ? 64 : (bytes + 63) & ~size_t{63};
  state.memory.reset(std::aligned_alloc(64, rounded));
  if (!state.memory) return nullptr;
  state.bytes = bytes;
  return std::memset(state.memory.get(), 0, rounded);
} catch (const std::bad_alloc&) {
  return nullptr;
}

void set_place(const KernelPlace& place) noexcept {
  place_of_thread = place;
}

void call_in_place(int64_t* args) noexcept {
  sigjmp_buf escape;
  is_leaving = false;
  if (sigsetjmp(escape, 0) == 0) {
    leave_of_thread = &escape;
    kernel_of(*place_of_thread.payload).function(args);
  }
  leave_of_thread = nullptr;
}

void forget_kernel() noexcept {
  leave_of_thread = nullptr;
  is_in_host_code = false;
}

void leave_kernel() noexcept {
  if (leave_of_thread == nullptr) return;
  is_leaving = true;
  if (!is_in_host_code) siglongjmp(*leave_of_thread, 1);
}

bool has_left_kernel() noexcept {
  return is_leaving;
}

void take_text(const char* file, int32_t line, int32_t is_failure, const char* text) {
  const HostCode is_running;
  const KernelPlace& place = place_of_thread;
  if (place.payload == nullptr) {  // a thread that the kernel has started
    std::fprintf(stderr, "pto: a thread of a kernel, %s:%d: %s\n", name_of(file), line, text);
  } else if (is_failure == 0) {
    const pto_payload& payload = *place.payload;
    place.log->print(
        {kernel_of(payload).name.c_str(), payload.task, place.core, name_of(file), line, text});
  } else {
    fail_assertion(place, file, line, text);
    leave_kernel();
  }
}

uint32_t get_subblock_id() {
  const pto_payload* payload = place_of_thread.payload;
  if (payload == nullptr) return 0;                   // a thread that the kernel has started
  constexpr uint32_t kGlobal = PTO_CONTEXT_ARGS + 1;  // only tasks of 2026-08 have contexts
  if (payload->num_args != kGlobal + 1 || (payload->relative_args >> kGlobal & 1) == 0) return 0;
  const uint64_t context = reinterpret_cast<const uint64_t*>(payload + 1)[kGlobal];
  return static_cast<uint32_t>(reinterpret_cast<const pto_global_context*>(context)->sub_block_id);
}

void* get_pipe_shared_state(uint64_t key, size_t bytes) {
  const KernelPlace& place = place_of_thread;
  if (place.payload == nullptr) return nullptr;
  const HostCode is_running;
  return place.states->find(place.payload->task, key, bytes);
}

}  // namespace pto::sim
