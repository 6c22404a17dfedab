// One device with a variant, driven as the backend's host part does, for C++ tests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "abi/launch.h"
#include "device_process/driver.hpp"

struct SessionSettings {
  std::vector<std::string> silicon{"blocks=1"};
  uint32_t blocks = 1;
  int32_t device_id = 0;
  uint64_t pool_bytes = uint64_t{256} << 20;
  uint32_t gate_timeout_ms = 20'000;
  uint32_t flags = PTO_A2A3_PLANNING;
  int32_t log_level = PTO_LOG_DEBUG;
  bool uses_registers = true;  // false: the device gets register pages of other cores
};

class Session {
 public:
  using Options = std::vector<std::pair<std::string, std::string>>;

  explicit Session(const SessionSettings& settings = {});
  // A second device in the device process of another session, with the same device library.
  Session(Session& sibling, const SessionSettings& settings);
  // Sends QUIT and ends the device process; both must succeed unless the device is lost.
  ~Session();

  // The path of a variant's library and the name of the variant.
  pto_status attach(const std::string& library, const std::string& variant,
                    const Options& options = {});
  void add_kernel(int32_t func_id, int32_t core_type, const std::string& library);
  void add_kernel_at(int32_t func_id, int32_t core_type, uint64_t address);
  uint64_t load(uint32_t kind, const std::string& path, uint64_t* address = nullptr);
  // Load bytes of device memory as a variant's library.
  pto_status load_bytes(uint64_t address, uint64_t bytes);
  pto_status unload(uint64_t handle);

  // Start a run, which uses `config`; end it and return its status.
  void start(uint64_t orchestration, const std::vector<uint64_t>& args) {
    start(orchestration, args, {});
  }
  // Start a run of a graph that the host has built.
  void start(const std::vector<char>& graph, const std::vector<uint64_t>& args) {
    start(0, args, graph);
  }
  pto_status finish();
  // The same for a launch whose threads do not all end: wait for the answer in device memory.
  pto_status finish_without_end();
  pto_status run(uint64_t orchestration, const std::vector<uint64_t>& args) {
    start(orchestration, args);
    return finish();
  }
  // The run of `args`, without a library.
  pto_run describe(const std::vector<uint64_t>& args) const;
  uint32_t blocks() const { return settings_.blocks; }
  bool has_ended() { return silicon_.has_ended(aicpu_); }
  // Ask the device during a run.
  void abort(const pto_error& cause, bool abandons);
  std::string explain();
  pto_a2a3_progress progress() const;
  // The tasks on the cores, from copies of what the device writes; also after a fault.
  struct InFlight {
    uint32_t core, physical;
    int32_t func_id;
    uint64_t task;
  };
  std::vector<InFlight> in_flight() const;

  // The answer to the newest command, and the end of the newest launches.
  pto_a2a3_status status;
  silicon_answer aicpu_end{}, aicore_end{};
  pto_call_config config{};

  Silicon& silicon() { return silicon_; }
  std::string log() const;
  bool is_lost = false;
  uint32_t aicpu_threads = 6;

 private:
  void start(uint64_t orchestration, const std::vector<uint64_t>& args,
             const std::vector<char>& graph);
  pto_status command(uint32_t command, uint64_t input, uint64_t bytes, uint64_t handle);
  pto_a2a3_launch launch_of(uint32_t command, uint64_t input, uint64_t bytes, uint64_t handle);

  Session(std::unique_ptr<Silicon> own, const SessionSettings& settings);
  void open();
  std::unique_ptr<Silicon> own_;
  Silicon& silicon_;
  const SessionSettings settings_;
  const uint64_t library_, executor_;
  uint64_t device_ = 0;
  uint64_t status_at_, control_at_, progress_at_, log_at_, cores_at_, input_at_;
  uint64_t sequence_ = 0, core_launch_ = 0, requests_ = 0;
  uint64_t aicpu_ = 0, aicore_ = 0;
  std::vector<pto_kernel_entry> kernels_;
  pto_a2a3_control control_{};
};
