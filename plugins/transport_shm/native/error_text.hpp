// The error text of one end of a connection. The first error that breaks the end is kept.
#pragma once

#include <cstdarg>
#include <cstdio>

namespace pto::shm {

class ErrorText {
 public:
  // Record an error in the data that the other side wrote. The end stays broken.
  [[gnu::format(printf, 2, 3)]] void set_broken(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!is_broken_) std::vsnprintf(text_, sizeof text_, format, arguments);
    va_end(arguments);
    is_broken_ = true;
  }

  // Record an error in the arguments of one call. The end stays usable.
  [[gnu::format(printf, 2, 3)]] void set_refused(const char* format, ...) {
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
