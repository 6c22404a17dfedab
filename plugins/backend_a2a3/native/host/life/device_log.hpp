// The reader of the device's log, which is a ring in device memory (pto_a2a3_log).
//
// One thread at a time calls. The device writes its messages at any time.
#pragma once

#include <memory>

#include "abi/launch.h"
#include "life/memory.hpp"
#include "life/session.hpp"

namespace pto::a2a3 {

struct LogSettings {
  int32_t level = PTO_LOG_WARN;  // less severe messages are not shown
  bool is_json = false;
};

class DeviceLog {
 public:
  // A device writes its first message after this.
  void open(uint64_t address, bool is_json);
  // Shows the new messages on standard error. Returns how many the host has read since open(). A
  // failure of the driver has no consequence here: the next call of the driver returns it.
  uint64_t read(CardMemory& memory);
  // The same on an unusable device, if the driver still copies memory.
  void salvage(Session& session);

 private:
  void show();

  uint64_t address_ = 0;
  bool is_json_ = false;
  uint64_t read_ = 0, dropped_ = 0;
  std::unique_ptr<pto_a2a3_log> ring_;  // the newest copy
};

}  // namespace pto::a2a3
