// Converts the errors of a driver to Python exceptions.
#pragma once

#include "driver/call.hpp"
#include "refusal.hpp"

namespace pto::hierarchy {

[[noreturn]] void raise_deadlock(const Deadlock& proof);

// Run `call`. Convert the exceptions of the driver to Python exceptions of the error tree.
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
