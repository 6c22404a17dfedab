// Link stubs, as the devlib folder of the toolkit has them: every function fails with one code.
#include <type_traits>

#include "functions.hpp"

using namespace pto::a2a3::cann;

namespace {

template <class Result>
Result refuse() {
  if constexpr (std::is_pointer_v<Result>) return nullptr;
  if constexpr (!std::is_pointer_v<Result>) return kLinkStub;
}

}  // namespace

#define PTO_FAKE_STUB(library, need, result, name, parameters) \
  extern "C" result name parameters {                          \
    return refuse<result>();                                   \
  }
PTO_A2A3_FUNCTIONS(PTO_FAKE_STUB)
