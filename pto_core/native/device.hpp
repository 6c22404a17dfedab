// An open device: one backend with one runtime attached.
//
// Call with the GIL held. Only one thread at a time may use a device; during a run, other threads
// may only query the activity. A process that is forked while the device is open does not have its
// threads. In that process every call raises UsageError, and close() does nothing.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "device_array.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "kernel_table.hpp"
#include "program.hpp"
#include "task_watch.hpp"
#include "views.hpp"

namespace pto::core {

// Return the number of forks between the process that loaded the module and this process. So a
// changed result means that this process was forked since the last call. This is cheaper than
// getpid(), which is a system call.
uint64_t fork_count();

class Run;

struct DeviceOptions {
  std::string backend_library;
  std::string runtime_library;
  std::string variant;
  std::vector<std::pair<std::string, std::string>> artefacts;  // kind and path
  int32_t number;
  nb::dict backend;  // option values by their native keys
  nb::dict runtime;
};

class OpenDevice {
 public:
  explicit OpenDevice(const DeviceOptions& options);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  // Close the device. Return the number of buffers and bytes that were not freed. A second call
  // does nothing and returns zeros.
  nb::tuple close();
  nb::tuple run(nb::handle self, const Program& program, nb::tuple arguments, nb::bytes call_config,
                std::optional<double> timeout_s, std::optional<double> task_timeout_s,
                uint32_t hazards, bool measures, std::optional<nb::tuple> trace_settings,
                nb::list traces, uint64_t stream);
  nb::object empty(nb::handle self, nb::handle shape, nb::handle dtype);
  nb::object to_device(nb::handle self, nb::handle array);
  nb::list activity() const;

  // Set the function load(kernel), which is called when an orchestration first uses a kernel
  // object, and which calls load_kernel(). `declared`: (code, shape) for each array and (code,
  // None) for each scalar. `task`: (parameters, number of required parameters, whether more
  // arguments are accepted, their direction); each parameter is (name, direction, code).
  void set_loader(nb::object load) { loader_ = std::move(load); }
  void load_kernel(nb::object callable, const std::string& name, int32_t core_type,
                   const std::optional<std::string>& path, nb::object function, nb::object declared,
                   nb::handle task);
  uint64_t load_library(const std::string& path);
  const LoadedKernel* loaded(nb::handle callable);

  // For the garbage collector: visit and clear references.
  int traverse(visitproc visit, void* arg) const;
  void clear() { close(); }

  // The methods below are for the other classes of the module.
  void require_usable();
  void require_thread_of_run() const;
  std::shared_ptr<Buffer> allocate(uint64_t bytes, bool of_run);
  void free(Buffer& buffer);
  void free_later(uint64_t address) { to_free_.push_back(address); }
  void adopt(Buffer* buffer) { buffers_.insert(buffer); }
  void forget(Buffer* buffer) { buffers_.erase(buffer); }
  void copy_in(uint64_t address, const void* host, uint64_t bytes);
  void copy_out(void* host, uint64_t address, uint64_t bytes);
  // Return an object that keeps device memory mapped while it lives, even after close().
  nb::object pin_memory();
  void mark_lost() { is_lost_ = true; }
  bool is_open() const;
  bool is_lost() const { return is_lost_; }

  const pto_backend_api* backend() const { return backend_; }
  void* handle() const { return handle_; }
  const pto_runtime_api* runtime_api() const { return runtime_api_; }
  void* runtime() const { return runtime_; }
  const LoadedKernels& kernels() const { return kernels_; }
  ViewTable& views() { return views_; }
  Run* current_run() const { return run_; }
  // Return the number of blocks of the device, and of a run with this configuration.
  uint32_t blocks() const { return shape_.blocks; }
  const pto_device_shape& shape() const { return shape_; }
  uint32_t blocks_of(const pto_call_config& call) const {
    return call.block_dim > 0 ? static_cast<uint32_t>(call.block_dim) : blocks();
  }
  size_t max_task_arguments() const { return max_task_arguments_; }
  bool has(uint32_t capability) const { return (runtime_api_->capabilities & capability) != 0; }
  bool orchestrates_on_host() const {
    return (runtime_api_->capabilities & PTO_RUNTIME_HOST_ORCHESTRATION) != 0;
  }

  // Call the runtime for the orchestrator. Release the GIL if the call may wait for kernels that
  // run on another thread.
  template <class Call>
  auto handing_over(Call call) {
    if (!submit_may_wait_) return call();
    ReleasedGil released;
    return call();
  }

 private:
  void check(pto_status status, const pto_error& error) const;
  void flush_frees();
  std::pair<uint64_t, uint64_t> release_backend(uint64_t buffers, uint64_t bytes);
  CallSignature declared_signature(nb::handle declared);
  static TaskSignature task_signature(nb::handle task);

  const pto_backend_api* backend_;
  const pto_runtime_api* runtime_api_ = nullptr;  // the table that attach() returned
  void* handle_ = nullptr;
  pto_device_shape shape_{};
  void* runtime_ = nullptr;
  int32_t number_;
  pid_t process_;  // the process that opened it, by fork_count()
  uint64_t forks_;
  size_t max_task_arguments_ = 0;
  bool submit_may_wait_ = false;
  bool is_closed_ = false;
  bool is_lost_ = false;
  Run* run_ = nullptr;  // the run in progress
  unsigned long run_thread_ = 0;
  nb::object loader_;
  ViewTable views_;
  LoadedKernels kernels_;
  std::unordered_set<Buffer*> buffers_;
  std::vector<uint64_t> to_free_;
  nb::object pin_;  // a capsule of MappedMemory, created on demand
};

void bind_device(nb::module_& module);

}  // namespace pto::core
