// The structures of DLPack (versions 0 and 1) that are needed to import CPU memory.
#pragma once

#include <cstdint>

namespace pto::core::dlpack {

constexpr int32_t kCpu = 1;
constexpr uint64_t kFlagReadOnly = 1;

enum TypeCode : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4m3fn = 10,
  kFloat8E5m2 = 12
};

struct DlpackTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null means C order
  uint64_t byte_offset;
};

struct Managed {
  DlpackTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  DlpackTensor tensor;
};

static_assert(sizeof(DlpackTensor) == 48 && sizeof(Managed) == 64 &&
              sizeof(ManagedVersioned) == 80);

}  // namespace pto::core::dlpack
