// What every part of an instance shares: the platform, its memory, the run's first error.
#pragma once

#include <cstring>

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

  // The same, at a place of the user's program; a `file` of NULL is unknown.
  template <class... Parts>
  pto_status fail_at(const char* file, int32_t line, const ErrorFacts& facts, Parts... parts) {
    ErrorLatch local;
    local.latch(facts, parts...);
    pto_error error = *local.error();
    if (file != nullptr && *file != '\0') {
      Text(error.file, sizeof error.file).add(file);
      error.line = line;
      const char* slash = std::strrchr(file, '/');
      Text(error.message, sizeof error.message)
          .add(slash != nullptr ? slash + 1 : file, ":", line, ": ",
               static_cast<const char*>(local.error()->message));
    }
    latch.latch(error);
    return latch.status();
  }

  const pto_platform* platform;
  Memory memory;
  ErrorLatch latch;
};

}  // namespace pto::ring_buffer
