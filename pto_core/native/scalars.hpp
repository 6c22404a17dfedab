// Scalar arguments: convert a number to the 64-bit value of a kernel argument, and back.
//
// A parameter may declare the type of its scalar. Then every number is converted to that type:
// exactly, or rounded to the nearest number of a floating-point type, ties to even. A number that
// the type does not contain is refused. Without a declared type a number keeps its own type. In
// both cases signed integers are sign-extended. A float is passed as its bit pattern,
// zero-extended: a Python float is a double with 64 bits; ctypes.c_float and numpy.float32 have 32
// bits.
#pragma once

#include <nanobind/nanobind.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "pto/abi/dtype.h"

namespace pto::core {

enum class ScalarKind : uint8_t {
  kSigned = 1,
  kUnsigned,
  kBool,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16
};

struct ScalarValue {
  uint64_t bits;
  ScalarKind kind;
};

// The code of a scalar without a declared type.
constexpr int kNoType = -1;

// Convert a number in its own type. Return nothing if `object` is not a number, for example an
// array, None or a string. Raises UsageError for an integer outside -2**63 .. 2**64 - 1.
std::optional<ScalarValue> scalar_of(nanobind::handle object);

// Convert the most frequent numbers: a float or int whose own type is the declared type `code`, or
// without a declared type. Return nothing for other objects.
inline std::optional<ScalarValue> frequent_scalar_of(PyObject* object, int code) {
  if (PyFloat_CheckExact(object) && (code == kNoType || code == PTO_DTYPE_FLOAT64)) {
    const double value = PyFloat_AS_DOUBLE(object);
    return ScalarValue{std::bit_cast<uint64_t>(value), ScalarKind::kFloat64};
  }
  if (!PyLong_CheckExact(object) || (code != kNoType && code != PTO_DTYPE_INT64))
    return std::nullopt;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0) return std::nullopt;
  return ScalarValue{static_cast<uint64_t>(value), ScalarKind::kSigned};
}

// Convert the number in memory with a data type in its own type. Return nothing for a complex type.
std::optional<ScalarValue> scalar_in_memory(const void* memory, uint8_t code);

// Convert the number that is passed where a scalar is declared; an array without dimensions counts
// as a number here. `code`: the declared data type, or kNoType. Raises UsageError, which starts
// with describe(), for any other object and for a number that the type does not contain.
ScalarValue declared_scalar_of(nanobind::handle object, int code,
                               const std::function<std::string()>& describe);
// The same for a number that was converted in its own type before.
ScalarValue declared_scalar_of(const ScalarValue& number, int code,
                               const std::function<std::string()>& describe);

// Return the kind of a declared scalar with this data type code. Raises UsageError for complex
// types.
ScalarKind scalar_kind_of(uint8_t code);

// Return a new reference to the Python bool, int or float.
PyObject* number_of(uint64_t bits, ScalarKind kind);

// Return the integer of an int, or of another object with __index__, such as a NumPy integer.
// Return nothing for a bool, and for an integer outside `least` .. `most`.
std::optional<int64_t> integer_of(nanobind::handle object, int64_t least, int64_t most);

void bind_scalars(nanobind::module_& module);

}  // namespace pto::core
