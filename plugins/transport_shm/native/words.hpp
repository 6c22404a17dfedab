// What an end says about bytes that cannot be; the first ones stay.
#pragma once

#include <cstdarg>
#include <cstdio>

namespace pto::shm {

class Words {
 public:
  // For good: nothing that arrives later is believed.
  [[gnu::format(printf, 2, 3)]] void break_off(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!is_broken_) std::vsnprintf(text_, sizeof text_, format, arguments);
    va_end(arguments);
    is_broken_ = true;
  }

  // About one call, which changes nothing.
  [[gnu::format(printf, 2, 3)]] void refuse(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof text_, format, arguments);
    va_end(arguments);
  }

  bool is_broken() const { return is_broken_; }
  const char* text() const { return text_; }

 private:
  char text_[200] = "";
  bool is_broken_ = false;
};

}  // namespace pto::shm
