// Element types, with the published codes.
#ifndef PTO_DATA_TYPE_H
#define PTO_DATA_TYPE_H

#include <cstdint>

enum class DataType : uint8_t {
  FLOAT32 = 0,
  FLOAT16 = 1,
  INT32 = 2,
  INT16 = 3,
  INT8 = 4,
  UINT8 = 5,
  BFLOAT16 = 6,
  INT64 = 7,
  UINT64 = 8,
  UINT16 = 9,
  UINT32 = 10,
  BOOL = 11,
  FP8E4M3FN = 12,
  FP8E8M0 = 13,
  FP4E2M1 = 14  // two elements in a byte
};

// Return the size of one element in bytes, 1 for FP4E2M1; 0 for an invalid value.
constexpr uint64_t get_element_size(DataType dtype) {
  constexpr uint8_t kBytes[] = {4, 2, 4, 2, 1, 1, 2, 8, 8, 2, 4, 1, 1, 1, 1};
  return static_cast<uint8_t>(dtype) < sizeof kBytes ? kBytes[static_cast<uint8_t>(dtype)] : 0;
}

#endif
