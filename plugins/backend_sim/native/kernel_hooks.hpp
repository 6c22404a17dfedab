// The hooks that the vendor's headers for simulators call from a kernel: the number of its lane,
// and memory that the kernels on the cores of a cluster share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "pto/abi/payload.h"

namespace pto::sim {

// The memory that kernels share: one buffer for each cluster and key. A buffer belongs to one task
// at a time. It is zero when a task first asks for it, and lives at least as long as the task.
class PipeStates {
 public:
  // Returns the buffer, aligned to 64 bytes. Returns null if memory is exhausted, or if another
  // lane of the task has asked for fewer bytes. Any thread may call this.
  void* find(uint32_t cluster, uint64_t task, uint64_t key, size_t bytes) noexcept;
  // Called between runs.
  void clear() noexcept { states_.clear(); }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  struct State {
    uint64_t task = 0;
    size_t bytes = 0;
    std::unique_ptr<void, Free> memory;
  };

  std::mutex mutex_;
  std::map<std::pair<uint32_t, uint64_t>, State> states_;
};

// Where the calling thread runs a kernel.
struct KernelPlace {
  const pto_payload* payload = nullptr;
  uint32_t cluster = 0;
  PipeStates* states = nullptr;
};
void set_place(const KernelPlace& place) noexcept;

// Returns the AIV lane of the core in a task on several cores: 0 or 1.
uint32_t get_subblock_id();
void* get_pipe_shared_state(uint64_t key, size_t bytes);

}  // namespace pto::sim
