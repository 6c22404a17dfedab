// The newest description of a run. Any thread may call.
#pragma once

#include <mutex>
#include <string>

namespace pto::a2a3 {

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

}  // namespace pto::a2a3
