// The codes that CANN and the driver return: status, meaning and advice.
//
// A code that is not in the table has no meaning here: `find_code` returns null, and the message
// says so. Codes of the HAL are small numbers of another list, so they are not looked up.
#pragma once

#include <cstdint>

#include "pto/abi/status.h"

namespace pto::a2a3::cann {

// The class of cause of a failed call. Tests fail every call site once for each class.
enum class Cause : uint8_t {
  kBinding,      // this plugin called the toolkit in a wrong way
  kEnvironment,  // installation, device number or permissions
  kMemory,
  kResource,  // a limit on objects of the driver
  kUnsupported,
  kTimeout,
  kKernel,   // a kernel failed on a core
  kLibrary,  // a library or function was not found on the device
  kAicpu,    // code on the AICPU failed
  kCascade,  // the consequence of an earlier failure
  kLost,     // the device does not answer
  kHardware,
  kUnknown
};

const char* name_of(Cause cause) noexcept;

struct CodeEntry {
  int32_t code;
  Cause cause;
  pto_status status;
  bool is_poison;  // the device is unusable until a forced reset
  const char* meaning;
  const char* advice;
};

// Returns the entry of a code, or null for an unknown code.
const CodeEntry* find_code(int32_t code) noexcept;

// Returns whether the device is unusable after `code`. Codes from 500000 on report the state of the
// device, so an unknown code among them counts as such.
bool is_poison(int32_t code) noexcept;

// Returns whether a call has refused the handle that it received.
constexpr bool is_refused_handle(int32_t code) noexcept {
  return code == 100000 || code == 107000 || code == 107003 || code == 107017;
}

// Returns all entries, in the order of their codes.
const CodeEntry* code_table(uint32_t* count) noexcept;

}  // namespace pto::a2a3::cann
