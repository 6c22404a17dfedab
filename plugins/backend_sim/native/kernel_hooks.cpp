#include "kernel_hooks.hpp"

#include <cstring>
#include <new>

#include "pto/abi/tensor.h"

namespace pto::sim {
namespace {

thread_local KernelPlace place_of_thread;

}  // namespace

void* PipeStates::find(uint32_t cluster, uint64_t task, uint64_t key, size_t bytes) noexcept try {
  const std::lock_guard lock(mutex_);
  State& state = states_[{cluster, key}];
  if (state.memory && state.task == task)
    return bytes <= state.bytes ? state.memory.get() : nullptr;
  if (!state.memory || state.bytes < bytes) {
    const size_t rounded = (bytes + 63) & ~size_t{63};
    state.memory.reset(std::aligned_alloc(64, rounded == 0 ? 64 : rounded));
    state.bytes = state.memory ? bytes : 0;
  }
  if (state.memory) std::memset(state.memory.get(), 0, state.bytes);
  state.task = task;
  return state.memory.get();
} catch (const std::bad_alloc&) {
  return nullptr;
}

void set_place(const KernelPlace& place) noexcept {
  place_of_thread = place;
}

uint32_t get_subblock_id() {
  const pto_payload* payload = place_of_thread.payload;
  constexpr uint32_t kGlobal = PTO_CONTEXT_ARGS + 1;  // only tasks of 2026-08 have contexts
  if (payload->num_args != kGlobal + 1 || (payload->relative_args >> kGlobal & 1) == 0) return 0;
  const uint64_t context = reinterpret_cast<const uint64_t*>(payload + 1)[kGlobal];
  return static_cast<uint32_t>(reinterpret_cast<const pto_global_context*>(context)->sub_block_id);
}

void* get_pipe_shared_state(uint64_t key, size_t bytes) {
  const KernelPlace& place = place_of_thread;
  return place.states->find(place.cluster, place.payload->task, key, bytes);
}

}  // namespace pto::sim
