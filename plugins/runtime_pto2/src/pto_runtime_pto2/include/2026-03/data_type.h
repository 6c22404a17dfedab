// Element types: the published codes 0 to 8, then other types of NumPy and ml_dtypes. The codes are
// the same in all languages.
#ifndef PTO2_DATA_TYPE_H
#define PTO2_DATA_TYPE_H

#include <cstdint>

enum class DataType : uint32_t {
  FLOAT32 = 0,
  FLOAT16 = 1,
  INT32 = 2,
  INT16 = 3,
  INT8 = 4,
  UINT8 = 5,
  BFLOAT16 = 6,
  INT64 = 7,
  UINT64 = 8,
  FLOAT64 = 9,
  BOOL = 10,
  UINT16 = 11,
  UINT32 = 12,
  COMPLEX64 = 13,
  COMPLEX128 = 14,
  FLOAT8_E4M3FN = 15,
  FLOAT8_E5M2 = 16
};

// Return the size of one element in bytes; 0 for an invalid value.
constexpr uint64_t get_element_size(DataType dtype) {
  switch (dtype) {
    case DataType::INT8:
    case DataType::UINT8:
    case DataType::BOOL:
    case DataType::FLOAT8_E4M3FN:
    case DataType::FLOAT8_E5M2:
      return 1;
    case DataType::FLOAT16:
    case DataType::BFLOAT16:
    case DataType::INT16:
    case DataType::UINT16:
      return 2;
    case DataType::FLOAT32:
    case DataType::INT32:
    case DataType::UINT32:
      return 4;
    case DataType::INT64:
    case DataType::UINT64:
    case DataType::FLOAT64:
    case DataType::COMPLEX64:
      return 8;
    case DataType::COMPLEX128:
      return 16;
  }
  return 0;
}

namespace pto_orchestration {

// Return the name of the enumerator; "unknown" for an invalid value.
constexpr const char* name_of(DataType dtype) {
  constexpr const char* names[] = {
      "FLOAT32",  "FLOAT16",   "INT32",      "INT16",         "INT8",       "UINT8",
      "BFLOAT16", "INT64",     "UINT64",     "FLOAT64",       "BOOL",       "UINT16",
      "UINT32",   "COMPLEX64", "COMPLEX128", "FLOAT8_E4M3FN", "FLOAT8_E5M2"};
  return static_cast<uint32_t>(dtype) <= static_cast<uint32_t>(DataType::FLOAT8_E5M2)
             ? names[static_cast<uint32_t>(dtype)]
             : "unknown";
}

}  // namespace pto_orchestration

#endif
