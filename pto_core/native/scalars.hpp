// Scalar arguments: convert a Python number to the 64-bit value of a kernel argument, and back.
//
// Signed integers are sign-extended. A float is passed as its bit pattern, zero-extended: a Python
// float is a double with 64 bits; ctypes.c_float and numpy.float32 have 32 bits.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

namespace pto::core {

enum class ScalarKind : uint8_t { kSigned = 1, kUnsigned, kBool, kFloat16, kFloat32, kFloat64 };

struct Scalar {
  uint64_t bits;
  ScalarKind kind;
};

// Convert a number. Return nothing if `object` is not a scalar, for example an array, None or a
// string. Raises UsageError for an integer outside -2**63 .. 2**64 - 1.
std::optional<Scalar> scalar_of(nanobind::handle object);

// Return the kind of a declared scalar with this data type code. Raises UsageError for complex
// types.
ScalarKind scalar_kind_of(uint8_t code);

// Return a new reference to the Python bool, int or float.
PyObject* number_of(uint64_t bits, ScalarKind kind);

}  // namespace pto::core
