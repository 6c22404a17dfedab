// The parent's end of a connection to one child, for a program that passes on frames from another
// host.
//
// The gateway uses it instead of a driver: frames arrive in order from the relay, and answers go
// back to it. No call blocks. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "progress_table.hpp"
#include "pto/abi/endpoint.h"
#include "remote/packed_tasks.hpp"

namespace pto::hierarchy {

struct ReceivedAnswer {
  uint64_t number;
  uint16_t kind;
  uint16_t outcome;
  std::string data;
};

class ParentPort {
 public:
  // Take ownership of the end. `progress` has one child.
  ParentPort(const pto_transport_api& api, pto_parent_end* end, const ProgressTable& progress)
      : api_(api), end_(end), progress_(progress) {}
  ~ParentPort() { close(); }
  ParentPort(const ParentPort&) = delete;
  ParentPort& operator=(const ParentPort&) = delete;

  // Return false if the queue has no free space. Throws Refusal (protocol), also for a frame that
  // is too large.
  bool submit(const pto_frame& head, const std::string& data);
  // Send packed plain tasks; return how many of them the queue accepted. Throws as submit() does.
  PlainTasks submit_plain(std::string_view packed);
  // Return the answers that have arrived, in order. Throws Refusal (protocol) if the child closed.
  std::vector<ReceivedAnswer> poll();

  // The number of the newest frame that has started, and of the newest that has completed.
  uint64_t started() const { return record().started.load(std::memory_order_acquire); }
  uint64_t completed() const { return record().completed.load(std::memory_order_acquire); }
  // Return the newest frame up to which all frames have succeeded. The caller passes `count`, a
  // frame up to which it knows this already. The answers report successes late; the progress table
  // has each success at once.
  uint64_t succeeded(uint64_t count) const;
  // Return the nanoseconds since the newest frame started. The child records start times only after
  // the first call.
  uint64_t started_age_ns() const;

  pto_bell* bell() const { return progress_.parent_bell(); }
  bool is_open() const { return end_ != nullptr; }
  void close();

 private:
  ChildRecord& record() const { return progress_.child(0); }
  int32_t checked(int32_t result) const;

  const pto_transport_api& api_;
  pto_parent_end* end_;
  const ProgressTable progress_;
};

}  // namespace pto::hierarchy
