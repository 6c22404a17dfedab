// Turns what an engine refuses into the exception of the error tree that it means.
#pragma once

#include <utility>

#include "engine/interface.hpp"
#include "errors.hpp"

namespace pto::hierarchy {

[[noreturn]] inline void raise_refusal(const Refusal& refusal) {
  static constexpr const char* kNames[] = {"UsageError", "CapacityError", "ProtocolError",
                                           "InternalError", "WorkerClosedError"};
  core::raise_error(kNames[static_cast<int>(refusal.kind)], refusal.what());
}

// Calls what may be refused. With the GIL.
template <class Call>
decltype(auto) guarded(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const Refusal& refusal) {
    raise_refusal(refusal);
  }
}

}  // namespace pto::hierarchy
