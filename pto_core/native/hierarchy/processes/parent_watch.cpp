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

#include "blocked_signals.hpp"

namespace pto::hierarchy {
namespace {

void* watch(void* argument) {
  pollfd parent{static_cast<int>(reinterpret_cast<intptr_t>(argument)), POLLIN, 0};
  while (poll(&parent, 1, -1) < 0 && errno == EINTR) {
  }
  kill(getpid(), SIGKILL);
  return nullptr;
}

}  // namespace

void watch_parent(int parent) {
  constexpr size_t kStackBytes = 64 << 10;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes,
                            std::max(kStackBytes, static_cast<size_t>(PTHREAD_STACK_MIN)));
  const core::BlockedSignals blocked;
  pthread_t thread{};
  void* argument = reinterpret_cast<void*>(static_cast<intptr_t>(parent));
  const int error = pthread_create(&thread, &attributes, &watch, argument);
  pthread_attr_destroy(&attributes);
  if (error != 0)
    throw std::system_error(error, std::generic_category(),
                            "the thread that watches the parent cannot be started");
}

}  // namespace pto::hierarchy
