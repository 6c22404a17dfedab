// Threads that block all signals, so that the threads of the program receive them.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace pto::core {

// Blocks all signals of this thread while the object exists. Threads inherit the mask.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

// Start a thread that blocks all signals. Throws std::system_error, whose text begins with `name`.
template <class Work>
std::thread start_thread(const char* name, Work work) {
  const BlockedSignals blocked;
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), std::string(name) + " cannot be started");
  }
}

}  // namespace pto::core
