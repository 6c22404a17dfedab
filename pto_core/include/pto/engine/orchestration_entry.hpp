// Calls the entry function of an orchestration. The entry_wrapper.hpp of a variant uses this; it is
// compiled into the orchestration's library, together with the user's source.
#pragma once

#include <cstdint>
#include <exception>
#include <type_traits>

namespace pto_orchestration {

// Returns the result of `entry`, or 0 if it returns nothing. The wrapper asserts that `entry` is
// callable with these arguments and names the signature that the variant expects.
template <class Entry, class... Arguments>
int32_t call_entry(Entry entry, Arguments... arguments) {
  if constexpr (std::is_invocable_v<Entry, Arguments...>) {
    using Result = std::invoke_result_t<Entry, Arguments...>;
    static_assert(std::is_void_v<Result> || std::is_integral_v<Result>,
                  "the entry of an orchestration returns int (0 = success) or void");
    if constexpr (std::is_void_v<Result>) {
      entry(arguments...);
    } else {
      return static_cast<int32_t>(entry(arguments...));
    }
  }
  return 0;
}

// Returns the result of `body`. Passes the text of an exception to `report` and returns -1.
template <class Body, class Report>
int32_t catch_exceptions(Body body, Report report) {
#ifdef __cpp_exceptions
  try {
    return body();
  } catch (const std::exception& error) {
    report(error.what());
  } catch (...) {
    report("not a std::exception");
  }
  return -1;
#else
  (void)report;
  return body();
#endif
}

}  // namespace pto_orchestration
