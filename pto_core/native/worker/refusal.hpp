// Converts a Refusal of the engine or the driver to the matching exception of the error tree.
#pragma once

#include <utility>

#include "engine/interface.hpp"
#include "errors.hpp"

namespace pto::worker {

[[noreturn]] inline void raise_refusal(const Refusal& refusal) {
  static constexpr const char* kNames[] = {"UsageError", "CapacityError", "ProtocolError",
                                           "InternalError", "WorkerClosedError"};
  core::raise_error(kNames[static_cast<int>(refusal.kind)], refusal.what());
}

// Run a call that may be refused. Call with the GIL held.
template <class Call>
decltype(auto) guarded(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const Refusal& refusal) {
    raise_refusal(refusal);
  }
}

}  // namespace pto::worker
