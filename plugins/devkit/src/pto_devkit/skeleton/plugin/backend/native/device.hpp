// An open device with its attached runtime and its current run.
//
// The calling thread does all work. A kernel runs when the runtime dispatches it. The runtime takes
// its steps inside wait(), or while the orchestrator waits for free space. Other threads may only
// copy and call abort().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "kernels.hpp"
#include "memory.hpp"
#include "pto/abi/backend.h"

namespace pto_backend_template {

class Device {
 public:
  // each block has one AIC core and two AIV cores
  static constexpr uint32_t kBlocks = PTO_MAX_BLOCKS;

  explicit Device(size_t memory_bytes) : memory(memory_bytes) {}
  Device(const Device&) = delete;

  Memory memory;
  Kernels kernels;
  Libraries libraries;

  // Called by the core, in this order; see pto/abi/backend.h.
  pto_status attach(const pto_runtime_api& api, const pto_option* options, uint32_t num_options,
                    void** runtime, pto_error* error);
  void detach();
  void start(const pto_run& run);
  void orchestration_done(int32_t result);
  pto_status wait(int64_t timeout_ns);
  void finish(pto_run_report& report);
  void abort(const pto_error* cause, bool is_lost);

  // Called by the runtime; see pto/abi/platform.h.
  void dispatch(const pto_dispatch* batch, uint32_t count);
  void poll(pto_poll_result& result);
  pto_error fault(uint32_t core) const { return faults_.at(core); }
  pto_status wait_for_change(const uint32_t* word, uint32_t expected);
  void attend();

 private:
  int32_t step();
  void run_kernel(const pto_dispatch& item);
  void leave_run();

  pto_platform platform_{};
  pto_topology topology_{};
  const pto_runtime_api* api_ = nullptr;
  void* runtime_ = nullptr;

  pto_run run_{};
  pto_run_report report_{};
  uint64_t start_ns_ = 0, built_ns_ = 0, attended_ns_ = 0;
  bool is_built_ = false;                 // the orchestration has ended
  bool is_over_ = false;                  // the runtime returned DONE or ERROR
  pto_poll_result finished_{};            // number of completions since the last poll
  std::map<uint32_t, pto_error> faults_;  // dispatches of each core in this run

  // Any thread may call abort(). abort() calls the runtime only between begin() and end().
  std::mutex abort_mutex_;
  bool is_in_run_ = false;
  std::atomic<bool> is_lost_{false};
};

// Conversions between the opaque handles of the function tables and the objects.
inline Device& device_of(void* handle) {
  return *static_cast<Device*>(handle);
}

}  // namespace pto_backend_template
