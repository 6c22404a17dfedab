#include "remote/bell_watch.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>

namespace pto::worker {

int open_bell_descriptor(pto_bell* bell) {
  const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0) throw std::system_error(errno, std::system_category(), "eventfd");
  __atomic_store_n(&bell->descriptor, static_cast<uint32_t>(descriptor) + 1, __ATOMIC_RELAXED);
  return descriptor;
}

void BellWatch::arm() {
  uint64_t count = 0;
  while (read(descriptor(), &count, sizeof count) < 0 && errno == EINTR) {
  }
  __atomic_exchange_n(&bell_->sleepers, 1, __ATOMIC_SEQ_CST);
}

}  // namespace pto::worker
