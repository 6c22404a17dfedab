// One open device: everything that INIT makes and QUIT frees. The library has no other state, so
// two devices with two variants can share one AICPU process.
//
// Commands run one after another; all but RUN on one AICPU thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "abi/launch.h"
#include "device/gate.hpp"
#include "device/loader.hpp"
#include "device/log.hpp"
#include "device/pool.hpp"
#include "device/run.hpp"

namespace pto::a2a3 {

class DeviceProgram {
 public:
  // Returns NULL and an error if the host's description is wrong or memory is exhausted.
  static DeviceProgram* create(uint64_t description, uint64_t bytes, pto_error& error);
  static void destroy(DeviceProgram* device);

  pto_status load(const pto_a2a3_launch& launch, pto_a2a3_status& answer);
  pto_status unload(const pto_a2a3_launch& launch, pto_a2a3_status& answer);
  pto_status attach(const pto_a2a3_launch& launch, pto_a2a3_status& answer);
  pto_status detach(pto_a2a3_status& answer);
  // Every AICPU thread of a RUN calls this. Returns true to the leader when the run is over and
  // only the sequence number of the answer is missing.
  bool run(const pto_a2a3_launch& launch, pto_a2a3_status& answer);

  bool has_planning() const { return platform_.planning != 0; }
  Pool& pool() { return pool_; }
  Loader& loader() { return loader_; }
  Log& log() { return log_; }
  CardRun& current_run() { return run_; }
  // Records why a call of the platform table failed, for calls that cannot return a reason.
  void note_cause(const pto_error& cause);

 private:
  explicit DeviceProgram(const pto_a2a3_device& config) : config_(config) {}
  ~DeviceProgram();

  // Parts of a RUN. Only the leader calls them, except for follow().
  pto_status lead(const pto_a2a3_launch& launch, pto_a2a3_status& answer);
  void follow(uint64_t sequence);
  pto_status read_run(const pto_a2a3_launch& launch, CardRunShape& shape, pto_error& error);
  // `shape.has_orchestrator` is known.
  pto_status shape_of(const pto_call_config* config, CardRunShape& shape, pto_error& error) const;
  pto_status gather(const pto_a2a3_launch& launch, const CardRunShape& shape, int32_t& role,
                    pto_error& error);
  pto_status begin(const pto_a2a3_launch& launch, bool has_orchestrator, pto_error& error);
  void drive(uint64_t sequence, int32_t role);
  void give_up(uint64_t sequence);
  pto_status stop_cores(const pto_a2a3_launch& launch, pto_status status, pto_error& error);
  pto_status outcome(pto_error& error);
  pto_status latched(pto_status status, pto_error& error);
  void describe(pto_a2a3_status& answer);

  const pto_a2a3_device config_;
  Pool pool_;
  Loader loader_;
  Log log_;
  Gate gate_;
  CardRun run_;
  pto_platform platform_{};
  const pto_runtime_api* api_ = nullptr;
  void* runtime_ = nullptr;
  pto_run run_image_{};  // the current run; its parts are in the image of the host
  pto_error cause_{};    // of the first failed call of the platform table
  std::atomic<bool> has_cause_{false};
  std::atomic<uint64_t> entered_{0};   // sequence of the run that threads with a role may enter
  std::atomic<uint64_t> given_up_{0};  // sequence of the run that they must not enter
  std::atomic<uint32_t> inside_{0};    // threads with a role that have not left
  bool is_lost_ = false;               // by an earlier run; only QUIT is possible
};

// Removes the answer of an earlier command.
void clear(pto_a2a3_status& answer);

}  // namespace pto::a2a3
