// Python exceptions of the error tree, raised from native code.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "pto/abi/status.h"

namespace pto::core {

namespace nb = nanobind;

// A pto_error with every member that does not apply set so.
pto_error empty_error();
pto_error make_error(pto_status status, const std::string& message);

// Raises the class `name` of pto_core.errors with `message` and the keyword `fields`.
[[noreturn]] void raise_error(const char* name, const std::string& message,
                              const nb::dict& fields = nb::dict());
[[noreturn]] void raise_usage(const std::string& message);
[[noreturn]] void raise_exception(const nb::object& exception);

// Words that came from elsewhere, or were cut to fit, as a Python string: what is not UTF-8 in them
// is replaced.
nb::object text_of(const std::string& text);

// Turns a native error into an exception of the tree, without raising it. `kernel` is the name of
// the kernel that error.func_id means, empty when there is none.
nb::object exception_of(const pto_error& error, const std::string& kernel);

// Takes the exception that is set, as one object with its traceback.
nb::object take_exception();

// repr() for messages; never fails.
std::string shown(nb::handle object);
std::string type_text(nb::handle object);

}  // namespace pto::core
