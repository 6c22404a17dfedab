// The errors of a driver as exceptions of Python.
#pragma once

#include "driver/call.hpp"
#include "refusal.hpp"

namespace pto::hierarchy {

[[noreturn]] void raise_deadlock(const Deadlock& proof);

// Runs `call` and raises what the driver throws as an exception of the tree.
template <class Call>
auto or_error(Call call) {
  try {
    return call();
  } catch (const Refusal& refusal) {
    raise_refusal(refusal);
  } catch (const DeadlockFound& found) {
    raise_deadlock(found.proof);
  }
}

}  // namespace pto::hierarchy
