// Calls the entry function of an orchestration. The entry_wrapper.hpp of each variant includes this
// header. Both are compiled into the orchestration's library, together with the user's source.
#pragma once

#include <cstdint>
#include <exception>
#include <type_traits>

namespace pto_orchestration {

// Calls `entry` and returns its result, or 0 if it returns void. If `entry` is not callable with
// these arguments, a static_assert of the wrapper fails, which names the expected signature.
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

// Calls `body` and returns its result. If `body` throws, passes the text of the exception to
// `report` and returns -1.
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
