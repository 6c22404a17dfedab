// Data type codes of the ABI and NumPy's descriptors for them.
#pragma once

#include <optional>
#include <string>

#include "numpy_api.hpp"

namespace pto::core {

void import_numpy();

// Borrowed; kept for the life of the process. bfloat16 imports ml_dtypes.
PyArray_Descr* descriptor_of(uint8_t code);
size_t element_bytes(uint8_t code);

// Empty when the type has no code (objects, strings, swapped byte order, ...).
std::optional<uint8_t> code_of(PyArray_Descr* descriptor);

// `format` of the buffer protocol; null means bytes.
std::optional<uint8_t> code_of_format(const char* format, size_t item_bytes);

// Anything that NumPy takes as a dtype; raises UsageError when it has no code.
uint8_t code_of_object(nanobind::handle dtype);

}  // namespace pto::core
