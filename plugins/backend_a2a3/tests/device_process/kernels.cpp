// The kernels of the tests; PTO_TEST_KERNEL selects one for each library.
#include <unistd.h>

#include <cstdint>

#include "tensor_data.h"

extern "C" void silicon_use_flag();  // of the device process

namespace {

float* floats(int64_t address) {
  return reinterpret_cast<float*>(address);
}

const TensorData& tensor(const int64_t* args, int index) {
  return *reinterpret_cast<const TensorData*>(args[index]);
}

float* elements(const int64_t* args, int index) {
  return floats(static_cast<int64_t>(tensor(args, index).buffer.addr)) +
         tensor(args, index).start_offset;
}

}  // namespace

namespace kernels {

// Arguments: in, out, constant, count.
[[maybe_unused]] void add(int64_t* args) {
  for (int64_t i = 0; i < args[3]; ++i) {
    floats(args[1])[i] = floats(args[0])[i] + static_cast<float>(args[2]);
  }
}

// Arguments: left, right, out, count.
[[maybe_unused]] void multiply(int64_t* args) {
  for (int64_t i = 0; i < args[3]; ++i) {
    floats(args[2])[i] = floats(args[0])[i] * floats(args[1])[i];
  }
}

// Arguments: tensors in and out, and a constant.
[[maybe_unused]] void add_tensors(int64_t* args) {
  for (uint64_t i = 0; i < tensor(args, 1).shapes[0]; ++i) {
    elements(args, 1)[i] = elements(args, 0)[i] + static_cast<float>(args[2]);
  }
}

// Arguments: tensors left, right and out.
[[maybe_unused]] void multiply_tensors(int64_t* args) {
  for (uint64_t i = 0; i < tensor(args, 2).shapes[0]; ++i) {
    elements(args, 2)[i] = elements(args, 0)[i] * elements(args, 1)[i];
  }
}

// Arguments: tensors in and out, number of blocks, number of this block.
[[maybe_unused]] void add_block(int64_t* args) {
  const uint64_t part = tensor(args, 1).shapes[0] / static_cast<uint64_t>(args[2]);
  for (uint64_t i = 0; i < part; ++i) {
    const uint64_t at = static_cast<uint64_t>(args[3]) * part + i;
    elements(args, 1)[at] = elements(args, 0)[at] + 1;
  }
}

// The address is not 0, for which a sanitizer would end the process without a signal.
[[maybe_unused]] void crash(int64_t*) {
  const volatile uintptr_t address = 64;
  *reinterpret_cast<volatile int*>(address) = 1;
}

// Arguments: as those of add.
[[maybe_unused]] void flags(int64_t* args) {
  silicon_use_flag();
  add(args);
}

[[maybe_unused]] void hang(int64_t*) {
  while (true) usleep(1000);
}

}  // namespace kernels

extern "C" __attribute__((visibility("default"))) void kernel_entry(int64_t* args) {
  kernels::PTO_TEST_KERNEL(args);
}
