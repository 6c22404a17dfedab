#include "fork_count.hpp"

#include <pthread.h>

#include <atomic>

namespace pto::core {
namespace {

std::atomic<uint64_t> count{0};

const int registered =
    pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

uint64_t fork_count() {
  return registered == 0 ? count.load(std::memory_order_relaxed) : 0;
}

}  // namespace pto::core
