#include "kernel_hooks.hpp"

#include <cstring>
#include <new>

#include "pto/abi/tensor.h"

namespace pto::sim {
namespace {

thread_local KernelPlace place_of_thread;

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
  return place.states->find(place.payload->task, key, bytes);
}

}  // namespace pto::sim
