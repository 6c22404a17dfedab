// What every part of an instance shares: the platform, its memory, the run's first error.
#pragma once

#include "pto/abi/platform.h"
#include "pto/engine/latch.hpp"
#include "pto/engine/memory.hpp"

namespace pto::ring_buffer {

using namespace engine;

struct Context {
  explicit Context(const pto_platform* table) : platform(table), memory(table) {}

  // Latches an error; gives the status that the run has now, which may be an earlier error's.
  template <class... Parts>
  pto_status fail(const ErrorFacts& facts, Parts... parts) {
    latch.latch(facts, parts...);
    return latch.status();
  }

  const pto_platform* platform;
  Memory memory;
  ErrorLatch latch;
};

}  // namespace pto::ring_buffer
