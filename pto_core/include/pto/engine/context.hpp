// The platform of a runtime instance, its memory, and the first error of the run.
#pragma once

#include <cstring>

#include "pto/abi/platform.h"
#include "pto/abi/runtime.h"
#include "pto/engine/latch.hpp"
#include "pto/engine/memory.hpp"

namespace pto::engine {

struct Context {
  explicit Context(const pto_platform* table) : platform(table), memory(table) {}

  // Latches an error. Returns the status of the run, which is the status of its first error.
  template <class... Parts>
  pto_status fail(const ErrorFacts& facts, Parts... parts) {
    latch.latch(facts, parts...);
    return latch.status();
  }

  // Latches an error with the position of the call in the user's program. `file` is NULL if the
  // position is unknown.
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

  // Latches `cause`, or an error "aborted" if `cause` is NULL. `completed`: the number of completed
  // tasks so far.
  void abort(const pto_error* cause, int64_t completed) {
    if (cause != nullptr && cause->status != PTO_OK) {
      latch.latch(*cause);
    } else {
      fail({PTO_ERROR_ABORTED}, "the run was aborted with ", completed, " tasks completed");
    }
  }

  // Finds the function that the run's orchestration library exports as `symbol`. If the library
  // does not export it, latches an error and returns nullptr.
  template <class Function>
  Function find_orchestration(const pto_run& run, const char* symbol, const char* variant) {
    void* address = nullptr;
    const pto_status status = platform->resolve(platform->self, run.library, symbol, &address);
    if (status != PTO_OK || address == nullptr) {
      fail({PTO_ERROR_LOAD}, "the orchestration library does not export ", symbol,
           ", so it was not built for ", variant,
           "; build it with the headers and entry_wrapper.hpp of this variant");
      return nullptr;
    }
    Function function;
    static_assert(sizeof function == sizeof address, "POSIX: a symbol's address can be a function");
    std::memcpy(&function, &address, sizeof function);
    return function;
  }

  const pto_platform* platform;
  Memory memory;
  ErrorLatch latch;
};

}  // namespace pto::engine
