#include "processes/parent_watch.hpp"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace pto::hierarchy {
namespace {

void* watch(void* argument) {
  pollfd parent{static_cast<int>(reinterpret_cast<intptr_t>(argument)), POLLIN, 0};
  while (poll(&parent, 1, -1) < 0 && errno == EINTR) {
  }
  kill(getpid(), SIGKILL);
  return nullptr;
}

// Blocks all signals of this thread, so that a thread started meanwhile blocks them too and other
// threads receive them.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t saved_;
};

}  // namespace

void watch_parent(int parent) {
  constexpr size_t kStackBytes = 64 << 10;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes,
                            std::max(kStackBytes, static_cast<size_t>(PTHREAD_STACK_MIN)));
  const BlockedSignals blocked;
  pthread_t thread{};
  void* argument = reinterpret_cast<void*>(static_cast<intptr_t>(parent));
  const int error = pthread_create(&thread, &attributes, &watch, argument);
  pthread_attr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_create");
}

}  // namespace pto::hierarchy
