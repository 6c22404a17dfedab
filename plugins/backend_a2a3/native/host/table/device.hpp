// One device of the backend table: the card, the device library on it, and the caller's memory.
//
// pto/abi/backend.h states the order of the calls and which threads may make them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "life/dump.hpp"
#include "life/kernels.hpp"
#include "pto/abi/backend.h"
#include "table/host_graph.hpp"
#include "table/options.hpp"

namespace pto::a2a3 {

// The newest description of a run. Any thread may call.
class Explanation {
 public:
  // A run starts: the description of the run before is gone.
  void restart() { store("", false); }
  // The device has described the run while it ran.
  void keep(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!is_final_) text_ = text;
  }
  // The device has described the end of the run; without a text, it could not.
  void finish(const std::string& text) {
    if (!text.empty()) store(text, true);
  }
  // Returns the newest description, with a first line that says if it is an earlier one.
  std::string text() const {
    const std::lock_guard lock(mutex_);
    if (is_final_ || text_.empty()) return text_;
    return "the device does not describe the end of the run; an earlier state:\n" + text_;
  }

 private:
  void store(const std::string& text, bool is_final) {
    const std::lock_guard lock(mutex_);
    text_ = text;
    is_final_ = is_final;
  }

  mutable std::mutex mutex_;
  std::string text_;
  bool is_final_ = false;
};

// The access log that the device has written (pto_a2a3_access_log). One thread at a time calls.
class CardAccessLog {
 public:
  void clear() { bytes_.clear(); }
  // Copies the log at a device address.
  pto_status read(CardMemory& memory, uint64_t address, pto_error* error);
  pto_access_log content() const;

 private:
  std::vector<char> bytes_;
};

class CardDevice {
 public:
  explicit CardDevice(const cann::CannDriver& driver)
      : driver_(driver), card_(driver), aicpu_(card_), buffers_(card_) {}

  pto_status open(int32_t number, const Options& options, pto_error* error);
  void close(pto_leak_report& leaks);
  // The shape of a device that was opened just now.
  pto_device_shape shape() const noexcept {
    const pto_a2a3_status& answer = aicpu_.answer();  // to INIT
    return {card_.blocks(), 0, aicpu_.has_planning(), answer.machine,
            answer.process, 0, driver_.label()};
  }
  const pto_activity_page* activity() const noexcept { return &activity_; }

  // The calls of the backend table; see pto/host/backend_table.hpp.
  pto_status allocate(size_t bytes, uint64_t* address, pto_error* error) {
    return buffers_.allocate(bytes, address, error);
  }
  pto_status free(uint64_t address, pto_error* error) { return buffers_.free(address, error); }
  pto_status copy_in(uint64_t address, const void* host, size_t bytes, pto_error* error) {
    return card_.memory().copy_in(address, host, bytes, error);
  }
  pto_status copy_out(void* host, uint64_t address, size_t bytes, pto_error* error) {
    return card_.memory().copy_out(host, address, bytes, error);
  }
  pto_status load_kernel(const pto_kernel_source* source, uint64_t* address, pto_error* error) {
    return kernels_.load(*source, address, error);
  }
  pto_status unload_kernel(uint64_t address) { return kernels_.unload(address); }
  pto_status load_library(const char* path, uint64_t* library, pto_error* error);
  pto_status unload_library(uint64_t library);

  pto_status attach(const pto_attachment* attachment, const pto_option* options,
                    uint32_t num_options, const pto_runtime_api** table, void** runtime,
                    pto_error* error);
  void detach();

  pto_status wait_stream(uint64_t stream, int64_t timeout_ns, pto_error* error) {
    return card_.wait_stream(reinterpret_cast<cann::Handle>(stream), timeout_ns, error);
  }
  pto_status start(const pto_run* run, pto_error* error);
  // The caller has submitted all tasks.
  void orchestration_done(int32_t result);
  pto_status wait(int64_t timeout_ns);
  pto_status finish(pto_run_report* report, pto_error* error);
  void abort(const pto_error* cause, int32_t is_lost);

  // Of the last run, until the next one starts.
  uint32_t statistics(pto_statistic* out, uint32_t capacity) const;
  // Of the current run or the last one. Any thread may call it, at any time.
  size_t explain(char* out, size_t capacity);
  pto_access_log access_log() const { return log_of_run_.content(); }
  // The instance that builds the graph; only if attach() returned a table with a submit path.
  HostGraph& host() noexcept { return *host_; }

 private:
  pto_status attach_on_device(const std::string& path, const char* variant,
                              std::span<const pto_option> options, pto_error* error);
  pto_status attach_on_host(const pto_runtime_api* api, std::span<const pto_option> options,
                            pto_error* error);
  void fill_table(const pto_attachment& attachment);
  void fill_host_calls();
  void launch(uint64_t orchestration);

  const cann::CannDriver& driver_;
  LogSettings log_;
  Card card_;
  AicpuDevice aicpu_;
  Buffers buffers_;
  Kernels kernels_{card_, aicpu_};
  RunDump dump_{card_, kernels_};
  CardAccessLog log_of_run_;
  uint64_t variant_ = 0;  // handle of its library; 0: no variant is attached
  std::string variant_name_;
  pto_runtime_api table_ = {};  // of the proxy
  std::vector<pto_statistic> statistics_;
  Explanation explanation_;
  std::unique_ptr<HostGraph> host_;      // null: the variant builds its graph on the device
  const pto_run* run_ = nullptr;         // the run that has started
  std::atomic<bool> is_running_{false};  // the device has the run
  pto_status refused_ = PTO_OK;          // why the device did not get the run
  pto_error refusal_ = {};
  pto_activity_page activity_ = {};  // without slots: no thread of this process runs kernels
};

// Return the device of a handle that the table gave to its caller.
inline CardDevice& device_of(void* device) noexcept {
  return *static_cast<CardDevice*>(device);
}

}  // namespace pto::a2a3
