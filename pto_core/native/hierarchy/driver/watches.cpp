#include "driver/watches.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

namespace pto::hierarchy {

void Watches::stop() {
  watched_.clear();
  ended_.clear();
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

int Watches::descriptor() {
  if (descriptor_ < 0) descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return descriptor_;
}

void Watches::end_all() {
  for (const int64_t task : std::exchange(watched_, {})) report(task);
}

// Only the first of several tasks is written to the descriptor, so the counter is 0 and this write
// cannot fail.
void Watches::report(int64_t task) {
  ended_.push_back(task);
  if (ended_.size() == 1) static_cast<void>(eventfd_write(descriptor_, 1));
}

std::vector<int64_t> Watches::take() {
  eventfd_t count = 0;
  static_cast<void>(eventfd_read(descriptor_, &count));
  return std::exchange(ended_, {});
}

}  // namespace pto::hierarchy
