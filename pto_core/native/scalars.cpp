#include "scalars.hpp"

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "data_types.hpp"
#include "errors.hpp"
#include "numpy_api.hpp"
#include "pto/abi/dtype.h"
#include "text.hpp"

namespace pto::core {
namespace {

// The value of a number before its conversion. It represents every 64-bit integer and every double.
using Value = long double;
static_assert(LDBL_MANT_DIG >= 64);

struct ScalarType {
  const char* name;
  ScalarKind kind;
  int digits;    // binary digits of an integer without its sign, or of a significand
  int exponent;  // a floating-point type: its smallest positive number is 2**exponent

  bool is_real() const { return kind >= ScalarKind::kFloat16; }
  Value largest() const {
    const Value digits_set = std::ldexp(Value{1}, digits) - 1;
    return is_real() ? std::ldexp(digits_set, 3 - exponent - 2 * digits) : digits_set;
  }
  Value smallest() const {
    if (is_real()) return -largest();
    return kind == ScalarKind::kSigned ? -std::ldexp(Value{1}, digits) : 0;
  }
};

// By data type code. The ABI has complex types too, which are not types of scalars.
constexpr ScalarType kScalarTypes[] = {
    {"float32", ScalarKind::kFloat32, 24, -149},
    {"float16", ScalarKind::kFloat16, 11, -24},
    {"int32", ScalarKind::kSigned, 31, 0},
    {"int16", ScalarKind::kSigned, 15, 0},
    {"int8", ScalarKind::kSigned, 7, 0},
    {"uint8", ScalarKind::kUnsigned, 8, 0},
    {"bfloat16", ScalarKind::kBfloat16, 8, -133},
    {"int64", ScalarKind::kSigned, 63, 0},
    {"uint64", ScalarKind::kUnsigned, 64, 0},
    {"float64", ScalarKind::kFloat64, 53, -1074},
    {"bool", ScalarKind::kBool, 1, 0},
    {"uint16", ScalarKind::kUnsigned, 16, 0},
    {"uint32", ScalarKind::kUnsigned, 32, 0},
};
static_assert(std::size(kScalarTypes) == PTO_DTYPE_COMPLEX64);

const ScalarType& scalar_type_of(uint8_t code) {
  if (code < std::size(kScalarTypes)) return kScalarTypes[code];
  raise_usage("data type code " + std::to_string(code) + " is not the type of a scalar");
}

// Raises UsageError, which starts with what(), for an integer that does not fit into 64 bits.
template <class What>
ScalarValue of_integer(PyObject* object, const What& what) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow == 0) return {static_cast<uint64_t>(value), ScalarKind::kSigned};
  const unsigned long long large = PyLong_AsUnsignedLongLong(object);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    raise_usage(what() + shown(object) +
                " does not fit into 64 bits; use an integer from -2**63 to 2**64 - 1");
  }
  return {large, ScalarKind::kUnsigned};
}

std::string the_integer() {
  return "the integer ";
}

template <class T>
ScalarValue of_signed(const void* memory) {
  T value;
  std::memcpy(&value, memory, sizeof(T));
  return {static_cast<uint64_t>(static_cast<int64_t>(value)), ScalarKind::kSigned};
}

template <class T>
ScalarValue of_bits(const void* memory, ScalarKind kind) {
  T value;
  std::memcpy(&value, memory, sizeof(T));
  return {static_cast<uint64_t>(value), kind};
}

// The exported memory of an object without dimensions; nothing if the object has dimensions or
// exports no memory.
class Exported {
 public:
  explicit Exported(PyObject* object) {
    is_given_ = PyObject_CheckBuffer(object) &&
                PyObject_GetBuffer(object, &buffer_, PyBUF_FORMAT | PyBUF_ND) == 0;
    if (!is_given_) PyErr_Clear();
  }
  ~Exported() {
    if (is_given_) PyBuffer_Release(&buffer_);
  }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;

  std::optional<ScalarValue> scalar() const {
    if (!is_given_ || buffer_.ndim != 0) return std::nullopt;
    if (buffer_.format && std::strchr(buffer_.format, 'c')) return std::nullopt;  // a character
    const auto code = code_of_format(buffer_.format, static_cast<size_t>(buffer_.itemsize));
    return code ? scalar_in_memory(buffer_.buf, *code) : std::nullopt;
  }
  std::optional<Value> long_double() const {
    if (!is_given_ || buffer_.ndim != 0 || !buffer_.format) return std::nullopt;
    const char* format = buffer_.format + (*buffer_.format == '<' || *buffer_.format == '@');
    if (std::strcmp(format, "g") != 0 || buffer_.itemsize != sizeof(Value)) return std::nullopt;
    Value value;
    std::memcpy(&value, buffer_.buf, sizeof value);
    return value;
  }

 private:
  Py_buffer buffer_{};
  bool is_given_ = false;
};

Value value_of(const ScalarValue& scalar) {
  switch (scalar.kind) {
    case ScalarKind::kSigned:
      return static_cast<Value>(static_cast<int64_t>(scalar.bits));
    case ScalarKind::kUnsigned:
    case ScalarKind::kBool:
      return static_cast<Value>(scalar.bits);
    default:
      const nb::object number = nb::steal(number_of(scalar.bits, scalar.kind));
      return PyFloat_AS_DOUBLE(number.ptr());
  }
}

nb::object or_throw(PyObject* object) {
  if (!object) throw nb::python_error();
  return nb::steal(object);
}

// Return the value of an integer of any size. Of more than 64 binary digits the 64 highest count,
// and the last of them is set if a lower digit is set, so that a later rounding is correct.
Value value_of_integer(nb::handle object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) return static_cast<Value>(value);
  const nb::object size = or_throw(PyNumber_Absolute(object.ptr()));
  const auto digits = nb::cast<int64_t>(size.attr("bit_length")());
  const int64_t shift = std::max<int64_t>(digits - 64, 0);
  const nb::object by = nb::int_(shift);
  const nb::object high = or_throw(PyNumber_Rshift(size.ptr(), by.ptr()));
  const nb::object again = or_throw(PyNumber_Lshift(high.ptr(), by.ptr()));
  const uint64_t top = PyLong_AsUnsignedLongLong(high.ptr()) | (again.equal(size) ? 0 : 1);
  const int exponent = static_cast<int>(std::min<int64_t>(shift, LDBL_MAX_EXP));
  return std::ldexp(static_cast<Value>(top), exponent) * overflow;
}

bool is_user_defined(PyObject* object) {
  if (!PyObject_TypeCheck(object, &PyGenericArrType_Type)) return false;
  const nb::object descriptor =
      or_throw(reinterpret_cast<PyObject*>(PyArray_DescrFromScalar(object)));
  return PyTypeNum_ISUSERDEF(reinterpret_cast<PyArray_Descr*>(descriptor.ptr())->type_num);
}

// Return the element of an array without dimensions as a number; an invalid object for any other
// object.
nb::object element_of(nb::handle object) {
  if (PyArray_Check(object.ptr())) {
    auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
    if (PyArray_NDIM(array) != 0) return {};
    return or_throw(PyArray_ToScalar(PyArray_DATA(array), array));
  }
  if (PyType_Check(object.ptr()) || !nb::hasattr(object, "__dlpack__")) return {};
  const nb::object dimensions = nb::getattr(object, "ndim", nb::none());
  if (!PyLong_Check(dimensions.ptr()) || PyLong_AsLong(dimensions.ptr()) != 0) return {};
  return nb::hasattr(object, "item") ? object.attr("item")() : nb::object();
}

std::optional<Value> value_of(nb::handle object) {
  if (PyLong_Check(object.ptr())) return value_of_integer(object);
  if (auto value = Exported(object.ptr()).long_double()) return value;
  if (auto scalar = scalar_of(object)) return value_of(*scalar);
  const nb::object element = element_of(object);
  return element.is_valid() && !element.is(object) ? value_of(element) : std::nullopt;
}

// Round to the nearest number of a floating-point type, as if it had no largest number.
Value rounded(Value value, const ScalarType& type) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int step = std::max(std::ilogb(value) - (type.digits - 1), type.exponent);
  return std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
}

uint64_t pattern_of(Value value, ScalarKind kind) {
  if (kind == ScalarKind::kFloat64) return std::bit_cast<uint64_t>(static_cast<double>(value));
  const auto narrow = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (kind == ScalarKind::kFloat32) return narrow;
  if (kind == ScalarKind::kBfloat16) return narrow >> 16;
  uint64_t bits = 0;
  if (PyFloat_Pack2(static_cast<double>(value), reinterpret_cast<char*>(&bits), 1) != 0)
    throw nb::python_error();
  return bits;
}

// Return nothing if the type does not contain the value.
std::optional<ScalarValue> converted(Value value, const ScalarType& type) {
  if (type.is_real()) {
    const Value nearest = rounded(value, type);
    if (std::isfinite(nearest) && std::fabs(nearest) > type.largest()) return std::nullopt;
    return ScalarValue{pattern_of(nearest, type.kind), type.kind};
  }
  const bool is_inside = value >= type.smallest() && value <= type.largest();
  if (!is_inside || std::trunc(value) != value) return std::nullopt;
  const bool is_negative = value < 0;
  return ScalarValue{is_negative ? static_cast<uint64_t>(static_cast<int64_t>(value))
                                 : static_cast<uint64_t>(value),
                     type.kind};
}

// Return the number of an array without dimensions in the floating-point type that its dtype names,
// for example torch.float32. item() of the array returns a Python float for each of these types.
ScalarValue in_type_of(nb::handle array, const ScalarValue& element) {
  if (element.kind != ScalarKind::kFloat64) return element;
  const std::string text = nb::str(nb::getattr(array, "dtype", nb::none())).c_str();
  const std::string name = text.substr(text.rfind('.') + 1);
  for (const ScalarType& type : kScalarTypes) {
    if (type.is_real() && name == type.name)
      return converted(std::bit_cast<double>(element.bits), type).value_or(element);
  }
  return element;
}

std::string text_of_limit(const ScalarType& type) {
  const nb::object largest = nb::float_(static_cast<double>(type.largest()));
  return shown(largest);
}

std::string range_text(const ScalarType& type) {
  if (type.is_real())
    return "numbers from -" + text_of_limit(type) + " to " + text_of_limit(type) + ", inf and nan";
  return "integers from " + std::to_string(static_cast<int64_t>(type.smallest())) + " to " +
         std::to_string(static_cast<uint64_t>(type.largest()));
}

[[noreturn]] void refuse_value(nb::handle object, const ScalarType& type,
                               const std::function<std::string()>& describe) {
  raise_usage(describe() + " is " + shown(object) + ", but its declared type " + type.name +
              " has " + range_text(type) + "; pass such a number, or declare another type");
}

}  // namespace

std::optional<ScalarValue> scalar_in_memory(const void* memory, uint8_t code) {
  if (code >= std::size(kScalarTypes)) return std::nullopt;
  const ScalarKind kind = kScalarTypes[code].kind;
  const bool is_signed = kind == ScalarKind::kSigned;
  switch (element_bytes(code)) {
    case 1:
      return is_signed ? of_signed<int8_t>(memory) : of_bits<uint8_t>(memory, kind);
    case 2:
      return is_signed ? of_signed<int16_t>(memory) : of_bits<uint16_t>(memory, kind);
    case 4:
      return is_signed ? of_signed<int32_t>(memory) : of_bits<uint32_t>(memory, kind);
    default:
      return is_signed ? of_signed<int64_t>(memory) : of_bits<uint64_t>(memory, kind);
  }
}

std::optional<ScalarValue> scalar_of(nb::handle handle) {
  PyObject* object = handle.ptr();
  if (PyBool_Check(object))
    return ScalarValue{static_cast<uint64_t>(object == Py_True), ScalarKind::kBool};
  if (PyLong_Check(object)) return of_integer(object, the_integer);
  if (PyFloat_Check(object))
    return ScalarValue{std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(object)), ScalarKind::kFloat64};
  if (PyArray_Check(object) || PyType_Check(object)) return std::nullopt;
  if (PyObject_CheckBuffer(object)) {
    const Exported exported(object);
    if (auto scalar = exported.scalar()) return scalar;
    if (auto value = exported.long_double())
      return converted(*value, scalar_type_of(PTO_DTYPE_FLOAT64));
  }
  if (is_user_defined(object)) {
    const nb::object number = or_throw(PyNumber_Float(object));
    const bool is_bfloat16 = Py_TYPE(object) == descriptor_of(PTO_DTYPE_BFLOAT16)->typeobj;
    return converted(PyFloat_AS_DOUBLE(number.ptr()),
                     scalar_type_of(is_bfloat16 ? PTO_DTYPE_BFLOAT16 : PTO_DTYPE_FLOAT64));
  }
  if (!PyIndex_Check(object) || nb::hasattr(handle, "__dlpack__")) return std::nullopt;
  const nb::object integer = or_throw(PyNumber_Index(object));
  return of_integer(integer.ptr(), the_integer);
}

ScalarValue declared_scalar_of(nb::handle object, int code,
                               const std::function<std::string()>& describe) {
  if (code == kNoType) {
    if (PyLong_Check(object.ptr()) && !PyBool_Check(object.ptr()))
      return of_integer(object.ptr(), [&] { return describe() + " is "; });
    if (const auto scalar = scalar_of(object)) return *scalar;
    const nb::object element = element_of(object);
    const auto scalar = element.is_valid() ? scalar_of(element) : std::nullopt;
    if (scalar) return in_type_of(object, *scalar);
  } else {
    const ScalarType& type = scalar_type_of(static_cast<uint8_t>(code));
    const auto value = value_of(object);
    const auto scalar = value ? converted(*value, type) : std::nullopt;
    if (scalar) return *scalar;
    if (value) refuse_value(object, type, describe);
  }
  raise_usage(describe() + " is " + shown(object) + " of type " + type_text(object) +
              ", but its signature declares a scalar; pass a bool, an int, a float, or a scalar of "
              "ctypes or NumPy");
}

ScalarValue declared_scalar_of(const ScalarValue& number, int code,
                               const std::function<std::string()>& describe) {
  if (code == kNoType) return number;
  const ScalarType& type = scalar_type_of(static_cast<uint8_t>(code));
  if (const auto scalar = converted(value_of(number), type)) return *scalar;
  refuse_value(nb::steal(number_of(number.bits, number.kind)), type, describe);
}

ScalarKind scalar_kind_of(uint8_t code) {
  return scalar_type_of(code).kind;
}

std::optional<int64_t> integer_of(nb::handle object, int64_t least, int64_t most) {
  if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr())) return std::nullopt;
  const nb::object integer = nb::steal(PyNumber_Index(object.ptr()));
  int overflow = 0;
  const long long value =
      integer.is_valid() ? PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow) : 0;
  PyErr_Clear();
  if (!integer.is_valid() || overflow != 0 || value < least || value > most) return std::nullopt;
  return value;
}

PyObject* number_of(uint64_t bits, ScalarKind kind) {
  switch (kind) {
    case ScalarKind::kUnsigned:
      return PyLong_FromUnsignedLongLong(bits);
    case ScalarKind::kBool:
      return PyBool_FromLong(bits != 0);
    case ScalarKind::kFloat16:
      return PyFloat_FromDouble(PyFloat_Unpack2(reinterpret_cast<const char*>(&bits), 1));
    case ScalarKind::kFloat32:
      return PyFloat_FromDouble(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case ScalarKind::kFloat64:
      return PyFloat_FromDouble(std::bit_cast<double>(bits));
    case ScalarKind::kBfloat16:
      return PyFloat_FromDouble(std::bit_cast<float>(static_cast<uint32_t>(bits << 16)));
    case ScalarKind::kSigned:
      break;
  }
  return PyLong_FromLongLong(static_cast<long long>(bits));
}

namespace {

nb::object pair_of(const ScalarValue& scalar) {
  return nb::make_tuple(scalar.bits, nb::steal(number_of(scalar.bits, scalar.kind)));
}

}  // namespace

void bind_scalars(nb::module_& module) {
  module.def(
      "number",
      [](nb::handle value) {
        const auto scalar = scalar_of(value);
        return scalar ? pair_of(*scalar) : nb::none();
      },
      nb::arg("value").none(),
      nb::sig("def number(value: object) -> tuple[int, bool | int | float] | None"),
      "Return the 64 bits of a number in its own type, and the number; None for another object.");
  module.def(
      "declared_number",
      [](nb::handle value, int code, const std::string& where) {
        return pair_of(declared_scalar_of(value, code, [&] { return where; }));
      },
      nb::arg("value").none(), nb::arg("code"), nb::arg("where"),
      nb::sig("def declared_number(value: object, code: int, where: str) -> tuple[int, bool | int "
              "| float]"),
      "Convert a number to the data type `code`, or keep its own type if that is -1. Return its 64 "
      "bits and the number. Raises UsageError, which starts with `where`.");
  module.def(
      "integer", &integer_of, nb::arg("value").none(), nb::arg("least"), nb::arg("most"),
      nb::sig("def integer(value: object, least: int, most: int) -> int | None"),
      "Return an integer of any kind, such as a NumPy integer, as an int; None for a bool, another "
      "object, and an integer outside the range.");
}

}  // namespace pto::core
