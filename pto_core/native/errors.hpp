// The Python exceptions of the error tree, raised by native code.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "pto/abi/status.h"
#include "text.hpp"

namespace pto::core {

namespace nb = nanobind;

// Return a pto_error in which every member is set to "does not apply".
pto_error empty_error();
pto_error make_error(pto_status status, const std::string& message);

// Raise the class `name` of pto_core.errors with `message` and the keyword `fields`.
[[noreturn]] void raise_error(const char* name, const std::string& message,
                              const nb::dict& fields = nb::dict());
[[noreturn]] void raise_usage(const std::string& message);
[[noreturn]] void raise_exception(const nb::object& exception);
// Convert each std::system_error of the module to a CapacityError that names the limit, or to an
// OSError.
void translate_system_errors();

// Return external or truncated text as a Python string. Bytes that are not UTF-8 are replaced.
nb::object text_of(const std::string& text);

// Convert a native error to an exception of the error tree, without raising it. `kernel` is the
// name of the kernel with error.func_id, or empty.
nb::object exception_of(const pto_error& error, const std::string& kernel);

// Take the current exception as one object, including its traceback.
nb::object take_exception();

// Return repr(object) for a message. This never fails.
std::string shown(nb::handle object);
std::string type_text(nb::handle object);

}  // namespace pto::core
