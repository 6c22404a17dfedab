// The host's interface to the children of a driver: it changes their state and sends control
// frames.
#pragma once

#include <cstdint>
#include <string>

#include "driver/drive.hpp"

namespace pto::hierarchy {

class ChildControl {
 public:
  explicit ChildControl(Drive& drive) : drive_(drive) {}

  // Take ownership of the end. Called before the child is ready, and again before a restarted child
  // is ready.
  void attach(int32_t child, const pto_transport_api* api, pto_parent_end* end,
              uint32_t largest_frame_bytes, bool is_python);
  void detach_all();
  void set_ready(int32_t child);
  // Called when the process of the child has ended. Handles the last answers of the process, then
  // reports the loss. `returns`: attach() and set_ready() will follow, because the child is
  // restarted.
  void lose(int32_t child, int64_t cause, bool returns);
  // Send a control frame. Return a number, which is passed to reply() to get the answer.
  uint64_t control(int32_t child, std::string data);
  // Wait for the reply to a control frame, and return it once. Return kPending after `timeout_ns`.
  ReplyState reply(uint64_t number, uint64_t timeout_ns, std::string* data);

 private:
  Drive& drive_;
};

}  // namespace pto::hierarchy
