// The children of a driver as its host changes them, and control frames to them.
#pragma once

#include <cstdint>
#include <string>

#include "driver/drive.hpp"

namespace pto::hierarchy {

class ChildControl {
 public:
  explicit ChildControl(Drive& drive) : drive_(drive) {}

  // Takes the end. Before the child is ready; again after it was lost.
  void attach(int32_t child, const pto_transport_api* api, pto_parent_end* end,
              uint32_t largest_frame_bytes, bool is_python);
  void detach_all();
  void set_ready(int32_t child);
  // The process of the child is gone. What it still answered is taken first. `returns`: attach()
  // and set_ready() will follow.
  void lose(int32_t child, int64_t cause, bool returns);
  // Sends a control frame and returns the number of its reply.
  uint64_t control(int32_t child, std::string data);
  // Returns each reply once; kPending after `timeout_ns`.
  ReplyState reply(uint64_t number, uint64_t timeout_ns, std::string* data);

 private:
  Drive& drive_;
};

}  // namespace pto::hierarchy
