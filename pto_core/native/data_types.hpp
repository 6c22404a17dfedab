// Data type codes of the ABI and NumPy's descriptors for them.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "numpy_api.hpp"

namespace pto::core {

// The data types of arrays, in error messages.
constexpr const char* kSupported =
    "use float16/32/64, bfloat16, float8_e4m3fn, float8_e5m2, int8..64, uint8..64, bool or "
    "complex64/128";

void import_numpy();

// Return a borrowed reference, which is valid as long as the process lives. Import ml_dtypes for
// its types.
PyArray_Descr* descriptor_of(uint8_t code);
size_t element_bytes(uint8_t code);

// Return nothing if the ABI has no code for the type (objects, strings, swapped byte order, ...).
std::optional<uint8_t> code_of(PyArray_Descr* descriptor);

// Return the code for a `format` of the buffer protocol. A null pointer stands for bytes.
std::optional<uint8_t> code_of_format(const char* format, size_t item_bytes);

// Return the code of any object that NumPy accepts as a dtype. Raises UsageError if it has no code.
uint8_t code_of_object(nanobind::handle dtype);

}  // namespace pto::core
