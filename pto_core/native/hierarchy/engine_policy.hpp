// A placement policy of the program, for the engine.
#pragma once

#include <nanobind/nanobind.h>

#include "engine/policy.hpp"

namespace pto::hierarchy {

// Return the function that the engine calls. `policy`: None, which selects the default; the policy
// near_inputs, which is called without Python; or a Python object, which has the method pick or is
// called itself.
Policy policy_of(nanobind::object policy);

}  // namespace pto::hierarchy
