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

  explicit Device(size_t memory_bytes) : memory_(memory_bytes) {}
  Device(const Device&) = delete;

  // Called by the core; see pto/abi/backend.h and pto/host/backend_table.hpp. A function without a
  // result throws a BackendRefusal if it fails.
  void allocate(size_t bytes, uint64_t* address, pto_error*) {
    *address = memory_.allocate(bytes, Owner::kCaller);
  }
  void free(uint64_t address, pto_error*) { memory_.free(address); }
  void copy_in(uint64_t address, const void* host, size_t bytes, pto_error*) {
    memory_.copy_in(address, host, bytes);
  }
  void copy_out(void* host, uint64_t address, size_t bytes, pto_error*) {
    memory_.copy_out(host, address, bytes);
  }
  void load_kernel(const pto_kernel_source* source, uint64_t* address, pto_error*) {
    *address = kernels_.load(*source);
  }
  void unload_kernel(uint64_t address) { kernels_.unload(address); }
  void load_library(const char* path, uint64_t* library, pto_error*) {
    *library = libraries_.load(path);
  }
  void unload_library(uint64_t library) { libraries_.unload(library); }
  pto_status attach(const pto_attachment* attachment, const pto_option* options,
                    uint32_t num_options, const pto_runtime_api** table, void** runtime,
                    pto_error* error);
  void detach();
  void start(const pto_run* run, pto_error*);
  void orchestration_done(int32_t result);
  pto_status wait(int64_t timeout_ns);
  void finish(pto_run_report* report, pto_error*);
  void abort(const pto_error* cause, int32_t is_lost);
  // Returns null: this backend does not report running kernels. A backend that reports them, for
  // messages about hangs and crashes, returns their page here.
  const pto_activity_page* activity() const { return nullptr; }

  Memory& memory() { return memory_; }

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

  pto_platform make_platform();

  Memory memory_;
  Kernels kernels_;
  Libraries libraries_;

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

}  // namespace pto_backend_template
