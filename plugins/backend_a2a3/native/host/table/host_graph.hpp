// The instance of a variant in the host process, which builds the graphs that the device runs.
//
//   create -> { begin -> orchestrate, or submits and build -> take -> finish }* -> destroy
//
// The orchestration and its submits run on the caller's thread. The instance makes no step, so its
// platform table dispatches nothing.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "life/aicpu_device.hpp"
#include "life/card.hpp"
#include "pto/abi/backend.h"
#include "pto/host/own_library.hpp"

namespace pto::a2a3 {

// Buffers in device memory, aligned to 1024 bytes; the driver aligns to 64. One thread at a time.
class Buffers {
 public:
  explicit Buffers(Card& card) : card_(card) {}

  pto_status allocate(size_t bytes, uint64_t* address, pto_error* error);
  pto_status free(uint64_t address, pto_error* error);
  // Frees all buffers. On an unusable card they are forgotten: its reset frees them.
  void free_all();
  pto_leak_report describe() const;
  void list(std::vector<pto_a2a3_range>& ranges) const;

 private:
  struct Buffer {
    uint64_t base;  // as the driver returned it
    uint64_t bytes;
  };

  Card& card_;
  std::map<uint64_t, Buffer> buffers_;  // by address
};

class HostGraph {
 public:
  HostGraph(const pto_runtime_api* api, Card& card, AicpuDevice& aicpu, const LogSettings& log);
  ~HostGraph();
  HostGraph(const HostGraph&) = delete;
  HostGraph& operator=(const HostGraph&) = delete;

  pto_status create(std::span<const pto_option> options, uint32_t blocks, pto_error* error);
  const pto_runtime_api& api() const noexcept { return *api_; }
  void* instance() const noexcept { return instance_; }

  const Buffers& buffers() const noexcept { return buffers_; }
  host::OwnLibraries& libraries() noexcept { return libraries_; }

  // Begins a run, and calls its orchestration if it has one. `run` lives until finish().
  pto_status begin(const pto_run& run, pto_error* error);
  // Returns the graph as the device takes it; empty after an error of the run.
  std::vector<char> take();
  // Ends the run. After success on the device, copies its outputs to the host.
  pto_status finish(bool has_succeeded, pto_error* error);
  pto_status last_error(pto_error* error) const { return api_->last_error(instance_, error); }
  // Adds the copies of the run.
  void describe(pto_run_report& report) const;

 private:
  pto_platform make_platform();
  pto_status copy_in(uint64_t address, const void* host, size_t bytes);
  pto_status copy_out(void* host, uint64_t address, size_t bytes);
  pto_status upload_kernel(const void* bytes, size_t length, uint64_t* address);

  const pto_runtime_api* const api_;
  Card& card_;
  AicpuDevice& aicpu_;
  const LogSettings log_;
  void* instance_ = nullptr;
  pto_topology topology_ = {};
  pto_platform platform_ = {};
  Buffers buffers_;                // of the run
  std::vector<uint64_t> kernels_;  // that the orchestration uploaded
  host::OwnLibraries libraries_;   // of orchestrations
  const pto_run* run_ = nullptr;
  uint64_t bytes_in_ = 0, bytes_out_ = 0, copies_in_ = 0, copies_out_ = 0;
};

}  // namespace pto::a2a3
