// One simulated device: the object that open() returns. It owns everything that belongs to the
// device.
//
// pto/abi/backend.h defines the threading rules.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "activity.hpp"
#include "cores.hpp"
#include "engine/engine.hpp"
#include "loader.hpp"
#include "memory/device_memory.hpp"
#include "options.hpp"
#include "pto/abi/backend.h"
#include "run/run.hpp"

namespace pto::sim {

class SimDevice {
 public:
  SimDevice(int32_t id, const Options& options);
  SimDevice(const SimDevice&) = delete;
  SimDevice& operator=(const SimDevice&) = delete;
  ~SimDevice();

  pto_status open(pto_error* error);
  // Ends the current run, if any, and waits for its kernels unless the device is lost. Returns
  // false if threads may still use this object; the caller must not destroy it then.
  bool stop();

  // Whether the device was opened by another process, of which this process is a fork. A device
  // cannot be used in a fork.
  bool is_of_another_process() const noexcept;
  // Returns PTO_OK, or the reason why the device cannot be used.
  pto_status usable(pto_error* error) const;

  // The calls of the backend table; see pto/host/backend_table.hpp.
  pto_status allocate(size_t bytes, uint64_t* address, pto_error* error) {
    return memory_.allocate(bytes, Owner::caller, address, error);
  }
  pto_status free(uint64_t address, pto_error* error) { return memory_.free(address, error); }
  pto_status copy_in(uint64_t address, const void* host, size_t bytes, pto_error* error) {
    return memory_.copy_in(address, host, bytes, error);
  }
  pto_status copy_out(void* host, uint64_t address, size_t bytes, pto_error* error) {
    return memory_.copy_out(host, address, bytes, error);
  }
  pto_status load_kernel(const pto_kernel_source* source, uint64_t* address, pto_error* error) {
    const pto_status status = loader_.load_kernel(*source, address, error);
    if (status == PTO_OK && source->name != nullptr) activity_.add_kernel(*address, source->name);
    return status;
  }
  pto_status unload_kernel(uint64_t address) {
    activity_.remove_kernel(address);
    return loader_.unload_kernel(address);
  }
  pto_status load_library(const char* path, uint64_t* library, pto_error* error) {
    return loader_.libraries().load(path, library, error);
  }
  pto_status unload_library(uint64_t library) { return loader_.libraries().unload(library); }
  pto_status attach(const pto_attachment* attachment, const pto_option* options,
                    uint32_t num_options, const pto_runtime_api** table, void** runtime,
                    pto_error* error);
  void detach();

  pto_status start(const pto_run* run, pto_error* error);
  void orchestration_done(int32_t result);
  pto_status wait(int64_t timeout_ns);
  pto_status finish(pto_run_report* report, pto_error* error);
  // Called before each copy that the runtime makes, so that the caller can handle signals while
  // finish() copies.
  void attend_to_copies();
  void abort(const pto_error* cause, int32_t lost);

  DeviceMemory& memory() noexcept { return memory_; }
  Tracer& tracer() noexcept { return tracer_; }
  Loader& loader() noexcept { return loader_; }
  SimRun& run() noexcept { return run_; }
  Engine& engine() noexcept { return *engine_; }
  const Options& options() const noexcept { return options_; }
  const pto_activity_page* activity() const noexcept { return activity_.page(); }
  // Returns the status with which pto_platform.wait ends: OK if the word has changed, otherwise
  // DEADLOCK or ABORTED.
  pto_status wait_status(const uint32_t* word, uint32_t expected) const;
  // See pto_platform.check_value.
  pto_status check_value(uint64_t value, pto_error* error) const;
  // See pto_platform.check_range.
  pto_status check_range(uint64_t address, size_t bytes, pto_error* error) const;
  // Returns PTO_ERROR_ADDRESS if `host` lies in a tensor argument that has fewer than `bytes` bytes
  // from that address on.
  pto_status check_host(const void* host, size_t bytes, pto_error* error) const;
  // Records why a call of the platform table failed, for calls that cannot return a reason. The
  // error of the run includes this reason. Called on the orchestrator's thread, or inside finish().
  void note_cause(const pto_error& error) noexcept { platform_cause_ = error; }

 private:
  void set_finishing(bool finishing);
  pto_status begin(const SimRunShape& shape, pto_error* error);
  pto_status outcome(pto_error* error);
  pto_status latched(pto_status status, pto_error* error) const;
  pto_status last_error(pto_error* error) const;
  void fill_report(pto_run_report& report) const;
  void forget_run();

  const int32_t id_;
  const Options options_;
  const pid_t process_;
  Tracer tracer_;
  DeviceMemory memory_;
  Loader loader_;
  ActivityPage activity_;
  Dump dump_;
  Cores cores_;
  SimRun run_;
  std::unique_ptr<Engine> engine_;

  const pto_runtime_api* api_ = nullptr;
  void* runtime_ = nullptr;
  pto_run graph_{};  // current run, between start and finish
  // the error of a failed call of the platform table; its status is PTO_OK if no call has failed
  pto_error platform_cause_{};

  // serialises abort() with the changes of finishing_ and the end of a run
  std::mutex abort_mutex_;
  // whether the runtime's finalise() is running; written under abort_mutex_
  bool finishing_ = false;
  uint64_t attended_ns_ = 0;  // time of the last call of attend; used by the thread of finish()
  pto_error cause_{};         // reason of the abort; guarded by abort_mutex_
  std::atomic<bool> lost_{false};
};

// Returns the device behind a handle of the backend table or the platform table.
inline SimDevice& device_of(void* handle) noexcept {
  return *static_cast<SimDevice*>(handle);
}

}  // namespace pto::sim
