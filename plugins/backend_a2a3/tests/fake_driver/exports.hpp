// Declares all exported functions as the plugin knows them, so that a definition with other
// parameters does not compile.
#pragma once

#include "state.hpp"

namespace pto::a2a3::cann {

#define PTO_FAKE_DECLARE(library, need, result, name, parameters) extern "C" result name parameters;
PTO_A2A3_FUNCTIONS(PTO_FAKE_DECLARE)
#undef PTO_FAKE_DECLARE

}  // namespace pto::a2a3::cann
