#include "processes/current_process.hpp"

#include <pthread.h>
#include <unistd.h>

namespace pto::worker {
namespace {

void note() {
  current_process_number.store(getpid(), std::memory_order_relaxed);
}

pid_t noted() {
  pthread_atfork(nullptr, nullptr, &note);
  return getpid();
}

}  // namespace

std::atomic<pid_t> current_process_number{noted()};

}  // namespace pto::worker
