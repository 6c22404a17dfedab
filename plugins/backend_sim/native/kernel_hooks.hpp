// The functions that a kernel calls: the hooks of the vendor's headers for simulators (the number
// of its lane, and memory that the kernels on the cores of a cluster share), and the texts of
// pto/kernel/print.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "pto/abi/payload.h"
#include "pto/abi/status.h"
#include "pto/host/kernel_log.hpp"

namespace pto::sim {

// The memory that the kernels of a task share: one buffer for each key, zero at first. It lives
// until all kernels of the task have ended. Any thread may call the methods.
class PipeStates {
 public:
  // A kernel of the task is dispatched. Those that run together are dispatched before one starts.
  void begin(uint64_t task) noexcept;
  void end(uint64_t task) noexcept;
  // Returns the buffer, aligned to 64 bytes. Returns null if memory is exhausted, or if another
  // kernel of the task has asked for fewer bytes.
  void* find(uint64_t task, uint64_t key, size_t bytes) noexcept;
  // Called between runs.
  void clear() noexcept { tasks_.clear(); }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  struct State {
    size_t bytes = 0;
    std::unique_ptr<void, Free> memory;
  };
  struct Task {
    uint32_t kernels = 0;  // that have not ended
    std::map<uint64_t, State> states;
  };

  std::mutex mutex_;
  std::map<uint64_t, Task> tasks_;
};

// Where the calling thread runs a kernel.
struct KernelPlace {
  const pto_payload* payload = nullptr;
  PipeStates* states = nullptr;
  host::KernelLog* log = nullptr;
  pto_error* fault = nullptr;  // of a failed assertion
  uint32_t core = 0;
};
void set_place(const KernelPlace& place) noexcept;

// Calls the kernel of the thread's place. It returns early if an assertion of the kernel fails, or
// if leave_kernel() is called on its thread.
void call_in_place(int64_t* args) noexcept;
// Abandons the kernel that call_in_place() runs on this thread, if there is one. A handler of a
// signal may call it.
void leave_kernel() noexcept;
// Whether the last call of call_in_place() on this thread returned early.
bool has_left_kernel() noexcept;
// Called after a jump out of call_in_place(), whose frame then no longer exists.
void forget_kernel() noexcept;

// Returns the AIV lane of the core in a task on several cores: 0 or 1.
uint32_t get_subblock_id();
void* get_pipe_shared_state(uint64_t key, size_t bytes);
// The listener of pto/kernel/print.hpp.
void take_text(const char* file, int32_t line, int32_t is_failure, const char* text);

}  // namespace pto::sim
