#include "remote/bell_watch.hpp"

#include <signal.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>

namespace pto::hierarchy {

BellWatch::BellWatch(pto_bell* bell)
    : bell_(bell), descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::system_category(), "eventfd");
  // The interpreter's thread receives the signals of the process, not this one.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void BellWatch::arm() {
  uint64_t count = 0;
  while (read(descriptor_, &count, sizeof count) < 0 && errno == EINTR) {
  }
  __atomic_exchange_n(&bell_->sleepers, 1, __ATOMIC_SEQ_CST);
}

void BellWatch::close() {
  if (!thread_.joinable()) return;
  is_closing_ = true;
  engine::ring(bell_);
  syscall(SYS_futex, &bell_->rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  thread_.join();
  ::close(descriptor_);
  descriptor_ = -1;
}

void BellWatch::run() {
  constexpr uint64_t kOne = 1;
  while (!is_closing_) {
    const uint32_t seen = __atomic_load_n(&bell_->rung, __ATOMIC_SEQ_CST);
    // The write fails only if the counter is full; then the descriptor is already readable.
    [[maybe_unused]] const ssize_t written = write(descriptor_, &kOne, sizeof kOne);
    if (is_closing_) return;
    syscall(SYS_futex, &bell_->rung, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
}

}  // namespace pto::hierarchy
